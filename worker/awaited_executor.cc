#include "worker/awaited_executor.h"

#include <utility>

#include "base/check.h"

namespace meshwright::worker {

void AwaitedExecutor::Attach(std::unique_ptr<ExecutorProcess> process, MessageHandlers handlers) {
  MW_CHECK(process != nullptr) << "no process is attached";
  const MutexLock lock(mutex_);
  MW_CHECK(process_ == nullptr && !refused_) << "a second process " << process->pid();
  if (taken_) return;
  process_ = std::move(process);
  process_->Serve(std::move(handlers));
  for (const ToExecutor& message : waiting_) (void)process_->Send(message);
  waiting_.clear();
}

void AwaitedExecutor::Refuse() {
  const MutexLock lock(mutex_);
  refused_ = true;
  waiting_.clear();
}

bool AwaitedExecutor::refused() {
  const MutexLock lock(mutex_);
  return refused_;
}

void AwaitedExecutor::Send(ToExecutor message) {
  const MutexLock lock(mutex_);
  if (process_) {
    (void)process_->Send(message);
  } else if (!refused_ && !taken_) {
    waiting_.push_back(std::move(message));
  }
}

UniqueFd AwaitedExecutor::TakeConnections() {
  const MutexLock lock(mutex_);
  return process_ ? process_->TakeConnections() : UniqueFd();
}

UniqueFd AwaitedExecutor::TakeSnapshots() {
  const MutexLock lock(mutex_);
  return process_ ? process_->TakeSnapshots() : UniqueFd();
}

pid_t AwaitedExecutor::Kill() {
  const MutexLock lock(mutex_);
  if (!process_) return 0;
  process_->Kill();
  return process_->pid();
}

std::optional<proto::MeshMarks> AwaitedExecutor::Marks(MeshGeneration mesh_gen) {
  const MutexLock lock(mutex_);
  if (!process_) return std::nullopt;
  proto::MeshMarks marks = process_->Marks();
  marks.mesh_gen = mesh_gen;
  return marks;
}

std::unique_ptr<ExecutorProcess> AwaitedExecutor::Take() {
  const MutexLock lock(mutex_);
  taken_ = true;
  waiting_.clear();
  return std::move(process_);
}

}  // namespace meshwright::worker
