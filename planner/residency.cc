#include "planner/residency.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace meshwright::planner {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();

class Keeper {
 public:
  Keeper(const std::vector<std::vector<size_t>>& uses, const std::vector<int64_t>& bytes,
         int64_t capacity_bytes)
      : uses_(uses),
        bytes_(bytes),
        capacity_bytes_(capacity_bytes),
        turns_(bytes.size()),
        passed_(bytes.size(), 0),
        there_(bytes.size(), false) {
    for (size_t turn = 0; turn < uses.size(); ++turn) {
      for (const size_t item : uses[turn]) {
        MW_CHECK(item < bytes.size()) << "turn " << turn << " uses item " << item;
        turns_[item].push_back(turn);
      }
    }
  }

  Residency Run() {
    Residency result;
    for (size_t turn = 0; turn < uses_.size(); ++turn) {
      std::vector<bool>& fetched = result.fetched.emplace_back();
      MakeRoom(turn, 0);
      for (const size_t item : uses_[turn]) {
        fetched.push_back(!there_[item]);
        if (there_[item]) continue;
        MakeRoom(turn, bytes_[item]);
        there_[item] = true;
        held_bytes_ += bytes_[item];
        result.fetched_bytes += bytes_[item];
        result.most_bytes = std::max(result.most_bytes, held_bytes_);
      }
      result.held_bytes.push_back(held_bytes_);
      for (const size_t item : uses_[turn]) ++passed_[item];
      LetGo(turn);
    }
    return result;
  }

 private:
  size_t NextUse(size_t item) const {
    return passed_[item] < turns_[item].size() ? turns_[item][passed_[item]] : kNever;
  }

  bool IsNeeded(size_t item, size_t turn) const {
    const auto uses = [&](size_t of) {
      return std::find(uses_[of].begin(), uses_[of].end(), item) != uses_[of].end();
    };
    return uses(turn) || (turn > 0 && uses(turn - 1));
  }

  void Drop(size_t item) {
    there_[item] = false;
    held_bytes_ -= bytes_[item];
    MW_CHECK(held_bytes_ >= 0) << "more is dropped than was there";
  }

  void MakeRoom(size_t turn, int64_t wanted_bytes) {
    while (held_bytes_ + wanted_bytes > capacity_bytes_) {
      size_t last = kNever;
      for (size_t item = 0; item < there_.size(); ++item) {
        if (!there_[item] || IsNeeded(item, turn)) continue;
        if (last == kNever || NextUse(item) > NextUse(last)) last = item;
      }
      if (last == kNever) return;
      Drop(last);
    }
  }

  // What nothing needs any more; of the turn itself it is there until the next one runs.
  void LetGo(size_t turn) {
    for (size_t item = 0; item < there_.size(); ++item) {
      if (there_[item] && NextUse(item) == kNever && !IsNeeded(item, turn)) Drop(item);
    }
  }

  const std::vector<std::vector<size_t>>& uses_;
  const std::vector<int64_t>& bytes_;
  const int64_t capacity_bytes_;
  std::vector<std::vector<size_t>> turns_;  // per item, in order
  std::vector<size_t> passed_;              // of these
  std::vector<bool> there_;
  int64_t held_bytes_ = 0;
};

}  // namespace

Residency PlanResidency(const std::vector<std::vector<size_t>>& uses,
                        const std::vector<int64_t>& bytes, int64_t capacity_bytes) {
  return Keeper(uses, bytes, capacity_bytes).Run();
}

std::vector<std::vector<size_t>> FetchEarly(const std::vector<std::vector<size_t>>& uses,
                                            const std::vector<int64_t>& bytes,
                                            int64_t capacity_bytes, const Residency& residency,
                                            const std::vector<std::vector<bool>>& copied) {
  MW_CHECK(residency.held_bytes.size() == uses.size() && copied.size() == uses.size())
      << "a residency of " << residency.held_bytes.size() << " turns for " << uses.size();
  constexpr size_t kTurnsToLeave = 3;  // its last use, the one beside which it goes, a free one
  std::vector<int64_t> held = residency.held_bytes;
  std::vector<size_t> first(bytes.size(), 0);  // turn that an item may come with
  std::vector<std::vector<size_t>> turns;
  size_t before = 0;  // of the copy before
  for (size_t turn = 0; turn < uses.size(); ++turn) {
    std::vector<size_t>& of_turn = turns.emplace_back(uses[turn].size(), turn);
    for (size_t i = 0; i < of_turn.size(); ++i) {
      const size_t item = uses[turn][i];
      if (copied[turn][i]) {
        size_t& at = of_turn[i];
        const size_t least = std::max(before, first[item]);
        while (at > least && held[at - 1] + bytes[item] <= capacity_bytes) {
          held[--at] += bytes[item];
        }
        before = at;
      }
      first[item] = turn + kTurnsToLeave;
    }
  }
  return turns;
}

}  // namespace meshwright::planner
