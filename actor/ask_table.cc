#include "actor/ask_table.h"

#include <fmt/format.h>

#include <vector>

#include "base/check.h"

namespace meshwright::actor {

std::optional<AskId> AskTable::Add(std::unique_ptr<PendingAsk> ask, const Address& asked,
                                   Deadline deadline) {
  MW_CHECK(ask != nullptr) << "a question of " << ToString(asked) << " that nobody waits for";
  {
    const MutexLock lock(mutex_);
    if (asks_.size() < bound_) {
      const uint64_t id = next_id_++;
      by_due_.emplace(deadline.due_ms, id);
      asks_.emplace(id, Entry{std::move(ask), asked, deadline});
      return AskId(id);
    }
  }
  ask->Fail(ResourceExhausted(fmt::format(
      "{} questions wait for an answer, the most at once; ask {} later", bound_, ToString(asked))));
  return std::nullopt;
}

AskTable::Entry AskTable::TakeEntry(uint64_t id) {
  const auto it = asks_.find(id);
  MW_CHECK(it != asks_.end()) << "question " << id << " has its answer already";
  Entry entry = std::move(it->second);
  asks_.erase(it);
  by_due_.erase({entry.deadline.due_ms, id});
  MW_CHECK(asks_.size() == by_due_.size())
      << asks_.size() << " questions, " << by_due_.size() << " deadlines";
  return entry;
}

std::unique_ptr<PendingAsk> AskTable::Take(AskId id) {
  const MutexLock lock(mutex_);
  if (!asks_.contains(id.value())) return nullptr;
  return TakeEntry(id.value()).ask;
}

bool AskTable::Fail(AskId id, Status status) {
  const std::unique_ptr<PendingAsk> ask = Take(id);
  if (ask) ask->Fail(std::move(status));
  return ask != nullptr;
}

std::optional<int64_t> AskTable::ExpireDue(int64_t now_ms) {
  std::vector<Entry> due;
  std::optional<int64_t> next;
  {
    const MutexLock lock(mutex_);
    while (!by_due_.empty() && by_due_.begin()->first <= now_ms) {
      due.push_back(TakeEntry(by_due_.begin()->second));
    }
    if (!by_due_.empty()) next = by_due_.begin()->first;
  }
  for (const Entry& entry : due) {
    entry.ask->Fail(LateError(entry.asked, entry.deadline.deadline_ms));
  }
  return next;
}

void AskTable::FailPlace(PlaceId place, const Status& cause) {
  std::vector<Entry> lost;
  {
    const MutexLock lock(mutex_);
    std::vector<uint64_t> ids;
    for (const auto& [id, entry] : asks_) {
      if (entry.asked.place == place) ids.push_back(id);
    }
    for (const uint64_t id : ids) lost.push_back(TakeEntry(id));
  }
  for (const Entry& entry : lost) entry.ask->Fail(DeadError(entry.asked, cause));
}

void AskTable::FailAll(const Status& status) {
  std::map<uint64_t, Entry> all;
  {
    const MutexLock lock(mutex_);
    all.swap(asks_);
    by_due_.clear();
  }
  for (const auto& [id, entry] : all) entry.ask->Fail(status);
}

size_t AskTable::size() const {
  const MutexLock lock(mutex_);
  return asks_.size();
}

}  // namespace meshwright::actor
