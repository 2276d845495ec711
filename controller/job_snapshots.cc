#include "controller/job_snapshots.h"

#include <algorithm>
#include <utility>

namespace meshwright::controller {

std::set<std::string> JobSnapshots::workers() const {
  std::set<std::string> workers;
  for (const auto& [worker, oldest] : oldest_) workers.insert(worker);
  return workers;
}

std::set<std::string> JobSnapshots::NoteWhole(MeshGeneration mesh_gen,
                                              const std::set<std::string>& members) {
  std::set<std::string> older;
  for (const auto& [worker, oldest] : oldest_) {
    if (oldest < mesh_gen) older.insert(worker);
  }
  oldest_.clear();
  for (const std::string& member : members) oldest_.emplace(member, mesh_gen);
  return older;
}

std::optional<JobSnapshots::Copying> JobSnapshots::Copied(const std::string& worker, int64_t step) {
  if (!copying_ || copying_->taken.step != step) return std::nullopt;
  copying_->awaited.erase(worker);
  if (!copying_->awaited.empty()) return std::nullopt;
  return std::exchange(copying_, std::nullopt);
}

bool JobSnapshots::Arrive(const std::string& worker, int64_t now_ms) {
  if (expected_.erase(worker) == 0 || query_ == 0) return false;
  awaited_.insert(worker);
  asked_ms_ = now_ms;
  return true;
}

std::optional<JobSnapshots::Copying> JobSnapshots::CopierLost(const std::string& worker) {
  const bool is_awaited = copying_ && copying_->awaited.contains(worker);
  return is_awaited ? Copied(worker, copying_->taken.step) : std::nullopt;
}

uint64_t JobSnapshots::Ask(std::set<std::string> workers, int64_t now_ms) {
  awaited_ = std::move(workers);
  answers_.clear();
  needs_.clear();
  asked_ms_ = asked_again_ms_ = now_ms;
  return ++query_;
}

std::optional<uint64_t> JobSnapshots::AskAgain(int64_t now_ms) {
  if (query_ == 0 || now_ms - asked_again_ms_ < kAskAgainMs) return std::nullopt;
  asked_again_ms_ = now_ms;
  return query_;
}

void JobSnapshots::Answer(uint64_t query, SnapshotHolder holder) {
  if (query != query_ || awaited_.erase(holder.worker) == 0) return;
  needs_.clear();
  const std::string worker = holder.worker;
  answers_.emplace(worker, std::move(holder));
}

void JobSnapshots::Lose(const std::string& worker) {
  awaited_.erase(worker);
  answers_.erase(worker);
  needs_.clear();
}

std::optional<bool> JobSnapshots::Needs(const std::string& worker) const {
  const auto it = needs_.find(worker);
  return it == needs_.end() ? std::nullopt : std::optional(it->second);
}

bool JobSnapshots::Settled(int64_t now_ms) const {
  const bool answered = awaited_.empty() || now_ms - asked_ms_ >= kAnswerMs;
  return answered && std::all_of(expected_.begin(), expected_.end(),
                                 [&](const auto& each) { return now_ms >= each.second; });
}

std::vector<SnapshotHolder> JobSnapshots::holders() const {
  std::vector<SnapshotHolder> holders;
  for (const auto& [worker, holder] : answers_) holders.push_back(holder);
  return holders;
}

}  // namespace meshwright::controller
