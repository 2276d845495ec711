#include "client/ask_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace meshwright::client {

uint64_t AskTable::Add(proto::ClientAsk ask, Done done) {
  const uint64_t id = NextId();
  asks_.emplace(id, Waiting{std::move(ask), std::move(done)});
  return id;
}

proto::SessionAsk AskTable::MessageOf(uint64_t id) {
  MW_CHECK(asks_.contains(id)) << "ask " << id << " is answered";
  unacknowledged_bytes_ = 0;
  return {id, asks_.at(id).ask, std::exchange(to_acknowledge_, {})};
}

AskTable::Done AskTable::Answered(uint64_t id, int64_t answer_bytes) {
  to_acknowledge_.push_back(id);
  unacknowledged_bytes_ += answer_bytes;
  const auto it = asks_.find(id);
  if (it == asks_.end()) return nullptr;
  Done done = std::move(it->second.done);
  asks_.erase(it);
  return done;
}

std::vector<uint64_t> AskTable::DueAcks() {
  const bool due = to_acknowledge_.size() >= kMostUnacknowledged ||
                   unacknowledged_bytes_ >= kMostUnacknowledgedBytes;
  if (!due) return {};
  unacknowledged_bytes_ = 0;
  acks_on_their_way_ += to_acknowledge_.size();
  return std::exchange(to_acknowledge_, {});
}

void AskTable::AcksSent(size_t count) {
  MW_CHECK(count <= acks_on_their_way_) << count << " of " << acks_on_their_way_;
  acks_on_their_way_ -= count;
}

std::vector<uint64_t> AskTable::ToRepeat(const std::vector<uint64_t>& held) {
  std::set<uint64_t> there(held.begin(), held.end());
  to_acknowledge_.clear();  // what was under way is lost, or known
  std::vector<uint64_t> repeat;
  for (const auto& [id, ask] : asks_) {
    if (there.erase(id) == 0) repeat.push_back(id);
  }
  to_acknowledge_.assign(there.begin(), there.end());
  return repeat;
}

std::vector<AskTable::Done> AskTable::TakeAll() {
  std::vector<Done> all;
  for (auto& [id, waiting] : asks_) all.push_back(std::move(waiting.done));
  asks_.clear();
  return all;
}

}  // namespace meshwright::client
