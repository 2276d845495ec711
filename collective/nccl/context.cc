#include "collective/nccl/context.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/log.h"
#include "collective/nccl/comm.h"

namespace meshwright::collective::nccl {
namespace {

constexpr std::chrono::microseconds kYield{200};
constexpr std::chrono::microseconds kSleep{50};
constexpr int64_t kFirstTimeoutMs = 300'000;
constexpr int64_t kLaterTimeoutMs = 60'000;
// A call only puts work into a queue: it waits for NCCL's own threads, and for no peer that
// computes.
constexpr int64_t kCallTimeoutMs = 600'000;

}  // namespace

Context::Context(Library& nccl, FabricOptions options, Timing when)
    : library(nccl), timing(std::move(when)) {
  fabric.operation_timeout_ms =
      options.operation_timeout_ms == 0 ? kCallTimeoutMs : options.operation_timeout_ms;
  fabric.options = std::move(options);
}

Context::~Context() = default;

Comm& Context::Add(std::unique_ptr<Comm> comm) {
  const MutexLock lock(mutex_);
  comms_.push_back(std::move(comm));
  return *comms_.back();
}

std::vector<Comm*> Context::comms() const {
  const MutexLock lock(mutex_);
  std::vector<Comm*> all;
  for (const auto& comm : comms_) all.push_back(comm.get());
  return all;
}

CommHandle* Context::Spare() {
  const MutexLock lock(mutex_);
  spares_.push_back(nullptr);
  return &spares_.back();
}

HostDeadline Context::ConnectDeadline(bool first) const {
  return After(
      std::min(first ? kFirstTimeoutMs : kLaterTimeoutMs, fabric.options.connect_timeout_ms));
}

HostDeadline Context::FirstCallDeadline() const {
  return After(std::max(fabric.operation_timeout_ms,
                        std::min(kFirstTimeoutMs, fabric.options.connect_timeout_ms)));
}

std::string Context::NameOf(int rank, const std::string& comm) const {
  return fmt::format("{}: communicator {}", fabric.RankName(rank), comm);
}

void Context::StartAbort() { StartEnd(&Context::AbortAll); }

void Context::StartDestroy() { StartEnd(&Context::DestroyAll); }

void Context::StartEnd(void (Context::*end)()) {
  {
    const MutexLock lock(mutex_);
    if (over_) return;
    ++ending_;
  }
  std::thread([context = shared_from_this(), end] {
    (*context.*end)();
    const MutexLock lock(context->mutex_);
    --context->ending_;
    context->changed_.NotifyAll();
  }).detach();
}

// One after the other would wait for kernels that wait for the ones not yet aborted.
void Context::AbortAll() {
  if (!gate.Close(timing.gate_ms)) {
    LogWarn("a thread is stuck inside a call of NCCL; aborting all the same");
  }
  // A split in progress shows its communicator when its parent is gone: hence the second round.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (Comm* comm : comms()) {
      threads.emplace_back([this, comm] {
        if (Enter(*comm)) comm->Abort();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// Children first: they may use what their parents have. All ranks do it in this order, and those of
// one process beside each other: a rank that waits for a peer holds up no other.
void Context::DestroyAll() {
  std::map<int, std::vector<Comm*>> of_rank;
  for (Comm* comm : comms()) of_rank[comm->rank()].push_back(comm);
  std::vector<std::thread> threads;
  for (auto& [rank, comms] : of_rank) {
    threads.emplace_back([this, &comms = comms] {
      for (auto comm = comms.rbegin(); comm != comms.rend() && Enter(**comm); ++comm) {
        (*comm)->Destroy();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A device that is lost is no reason not to go on.
bool Context::Enter(const Comm& comm) {
  const MutexLock lock(mutex_);
  if (!over_) (void)comm.device().EnterThread();
  return !over_;
}

bool Context::AwaitEnd(int64_t timeout_ms) {
  const MutexLock lock(mutex_);
  const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (ending_ != 0 && changed_.WaitUntil(mutex_, due)) {
  }
  over_ = true;
  return ending_ == 0;
}

Status HostWait::Pause(FunctionRef<std::string()> what) {
  if (context_.fabric.latch.stopped()) return context_.fabric.latch.status();
  if (deadline_.expired()) return DeadlineExceeded(what());
  if (context_.timing.pause) {
    context_.timing.pause();
  } else if (std::chrono::steady_clock::now() - begin_ < kYield) {
    (void)::sched_yield();
  } else {
    const MutexLock lock(context_.mutex_);
    (void)context_.changed_.WaitFor(context_.mutex_, kSleep);
  }
  return OkStatus();
}

}  // namespace meshwright::collective::nccl
