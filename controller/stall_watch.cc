#include "controller/stall_watch.h"

#include <algorithm>
#include <utility>

namespace meshwright::controller {
namespace {

using proto::MeshMarks;
using proto::RankMarks;

// Who waits wakes up now and then: that takes less than a hundredth of a core, and a look seldom
// meets it.
constexpr double kWorkingShare = 0.02;
constexpr int64_t kLooksPerWant = 10;
// What a process did before that says nothing of what it does.
constexpr int64_t kLatelyMs = 10'000;
// Of the usual step, by which a new one counts.
constexpr double kNewStep = 0.1;

bool SamePlace(const RankMarks& a, const RankMarks& b) {
  return a.rank == b.rank && a.in_step == b.in_step && a.steps_begun == b.steps_begun &&
         a.instruction == b.instruction && a.groups == b.groups;
}

bool SamePlace(const MeshMarks& a, const MeshMarks& b) {
  return a.doing == b.doing &&
         std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(),
                    [](const RankMarks& x, const RankMarks& y) { return SamePlace(x, y); });
}

bool Wants(const RankMarks& marks) { return marks.state == "R" || marks.state == "D"; }

}  // namespace

void StallWatch::Hear(const std::string& worker, const MeshMarks& marks, int64_t now_ms) {
  const auto [it, first] = members_.try_emplace(worker);
  Member& member = it->second;
  if (first || !SamePlace(member.marks, marks)) moved_ms_ = now_ms;
  member.marks = marks;
  member.heard_ms = now_ms;
  Seen seen{now_ms, marks.cpu_ms, {}};
  for (const RankMarks& rank : marks.ranks) {
    if (Wants(rank)) seen.wants.insert(rank.rank);
  }
  member.lately.push_back(std::move(seen));
  const int64_t from_ms = std::max(moved_ms_, now_ms - kLatelyMs);
  while (member.lately.front().ms < from_ms) member.lately.pop_front();
}

void StallWatch::OnStep(double seconds) {
  usual_step_s_ =
      usual_step_s_ == 0 ? seconds : usual_step_s_ * (1 - kNewStep) + seconds * kNewStep;
}

int64_t StallWatch::LimitMs(const StallRule& rule) const {
  const double steps_ms = static_cast<double>(rule.steps) * usual_step_s_ * 1000;
  // Who ends a stall early wants to hear of it as early.
  const int64_t base_ms = rule.end_ms == 0 ? rule.base_ms : std::min(rule.base_ms, rule.end_ms);
  return std::max(base_ms, static_cast<int64_t>(steps_ms));
}

const StallWatch::Member* StallWatch::MemberOf(int rank) const {
  for (const auto& [worker, member] : members_) {
    for (const RankMarks& marks : member.marks.ranks) {
      if (marks.rank == rank) return &member;
    }
  }
  return nullptr;
}

bool StallWatch::IsAtWork(int rank) const {
  const Member* const member = MemberOf(rank);
  if (member == nullptr || IsStopped(rank)) return false;
  const auto& ranks = member->marks.ranks;
  const bool reads = std::any_of(ranks.begin(), ranks.end(), [&](const RankMarks& marks) {
    return marks.rank == rank && marks.awaits_rows;
  });
  if (reads) return true;
  const std::deque<Seen>& lately = member->lately;
  const auto wants = std::count_if(lately.begin(), lately.end(),
                                   [&](const Seen& seen) { return seen.wants.contains(rank); });
  if (wants * kLooksPerWant >= static_cast<int64_t>(lately.size())) return true;
  const auto cpu_ms = static_cast<double>(lately.back().cpu_ms - lately.front().cpu_ms);
  return cpu_ms > kWorkingShare * static_cast<double>(lately.back().ms - lately.front().ms);
}

bool StallWatch::IsStopped(int rank) const {
  const Member* const member = MemberOf(rank);
  if (member == nullptr) return false;
  const auto& ranks = member->marks.ranks;
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankMarks& marks) {
    return marks.rank == rank && (marks.state == "T" || marks.state == "t");
  });
}

// As long as nothing moves it stays the same.
const Diagnosis& StallWatch::Look(const StepLists* lists) {
  if (std::exchange(looked_ms_, moved_ms_) == moved_ms_) return diagnosis_;
  diagnosis_ = Diagnose(lists, RanksAt());
  return diagnosis_;
}

std::vector<RankAt> StallWatch::RanksAt() const {
  std::vector<RankAt> ranks;
  for (const auto& [worker, member] : members_) {
    for (const RankMarks& marks : member.marks.ranks) ranks.push_back({marks, member.marks.doing});
  }
  return ranks;
}

StallView StallWatch::See(const StepLists* lists, const StallRule& rule, int64_t now_ms) const {
  StallView view;
  view.still_ms = now_ms - moved_ms_;
  view.limit_ms = LimitMs(rule);
  view.usual_step_s = usual_step_s_;
  for (const auto& [worker, member] : members_) {
    for (const RankMarks& marks : member.marks.ranks) {
      view.ranks[marks.rank] = {worker,
                                member.marks.doing,
                                marks,
                                now_ms - member.heard_ms,
                                IsAtWork(marks.rank),
                                IsStopped(marks.rank),
                                member.marks.pid};
    }
  }
  view.diagnosis = Diagnose(lists, RanksAt());
  return view;
}

StallNews StallWatch::Check(const StepLists* lists, const std::vector<std::string>& workers,
                            bool runs, const StallRule& rule, int64_t now_ms) {
  StallNews news;
  if (!runs) moved_ms_ = now_ms;
  news.still_ms = now_ms - moved_ms_;
  const int64_t limit_ms = LimitMs(rule);
  if (news.still_ms < limit_ms) {
    if (named_) news.change = StallChange::kMoves;
    named_ = false;
    return news;
  }
  const bool all_heard = std::all_of(workers.begin(), workers.end(), [&](const auto& worker) {
    const auto it = members_.find(worker);
    return it != members_.end() && now_ms - it->second.heard_ms <= rule.silent_ms;
  });
  const bool ends = rule.end_ms != 0 && news.still_ms >= std::max(rule.end_ms, limit_ms);
  if (!all_heard || (named_ && !ends)) return news;
  news.diagnosis = Look(lists);
  const auto& roots = news.diagnosis.roots;
  if (roots.empty()) return news;
  news.at_work = std::any_of(roots.begin(), roots.end(),
                             [&](const auto& root) { return IsAtWork(root.rank); });
  news.stopped = IsStopped(roots[0].rank);
  if (named_) {
    if (!news.at_work) news.change = StallChange::kEnd;
    return news;
  }
  // Until a step is done nobody knows how long one takes: who is at work may be about to end it.
  if (news.at_work && usual_step_s_ == 0) return news;
  named_ = true;
  news.change = StallChange::kNamed;
  return news;
}

}  // namespace meshwright::controller
