#include "controller/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace meshwright::controller {
namespace {

using proto::GroupMarks;
using proto::RankMarks;

// More are no help to a reader.
constexpr size_t kMostNamed = 8;

// In words. list: null: its instructions have no names.
std::string PlaceOf(const RankAt& at, const StepList* list) {
  const RankMarks& marks = at.marks;
  if (!marks.in_step) {
    return fmt::format("behind step {} of program '{}', {}", marks.step, marks.program, at.doing);
  }
  const std::string name = list == nullptr ? "" : NameItem(*list, marks.instruction);
  std::string text = fmt::format("at instruction {}{}", marks.instruction,
                                 name.empty() ? "" : fmt::format(" ({})", name));
  for (const GroupMarks& group : marks.groups) {
    if (group.entered == group.done) continue;
    text += fmt::format(" in collective {} of group {}", group.entered, group.name);
  }
  if (marks.awaits_rows) text += ", for which rows of data are read";
  return text + fmt::format(" of step {} of program '{}'", marks.step, marks.program);
}

class Walk {
 public:
  Walk(const StepLists* lists, const std::vector<RankAt>& ranks) : lists_(lists) {
    for (const RankAt& rank : ranks) ranks_[rank.marks.rank] = &rank;
    for (const auto& [rank, at] : ranks_) {
      for (const GroupMarks& group : at->marks.groups) members_[group.name].push_back(rank);
    }
    for (const auto& [rank, at] : ranks_) waits_[rank] = WaitsOf(at->marks);
  }

  Diagnosis Run() const {
    Diagnosis diagnosis;
    for (const auto& [rank, awaited] : waits_) {
      if (!awaited.empty()) diagnosis.waits[rank] = awaited;
    }
    std::vector<int> roots = Roots();
    if (const std::optional<int> lost = WaitsWithoutARoot(roots)) {
      diagnosis.circle = true;
      roots = CircleFrom(*lost);
    }
    if (roots.empty()) roots = Farthest();
    if (roots.empty()) return diagnosis;
    std::set<int> from = {roots[0]};
    if (diagnosis.circle) from.insert(roots.begin(), roots.end());
    for (const int rank : roots) diagnosis.roots.push_back({rank, WhereIs(rank)});
    for (const int rank : WaitersOf(from)) diagnosis.waiters.push_back({rank, WhereIs(rank)});
    return diagnosis;
  }

 private:
  const RankMarks* MarksOf(int rank) const {
    const auto it = ranks_.find(rank);
    return it == ranks_.end() ? nullptr : &it->second->marks;
  }
  const StepList* ListOf(const RankMarks& marks) const {
    return lists_ == nullptr ? nullptr : lists_->Find(marks.program, marks.rank);
  }

  // ---- Whom a rank waits for ----

  std::vector<int> WaitsOf(const RankMarks& marks) const {
    if (!marks.in_step) return {};
    for (const GroupMarks& group : marks.groups) {
      if (group.entered > group.done) return BehindInGroup(marks.rank, group);
    }
    const StepList* const list = ListOf(marks);
    const bool known = list != nullptr && marks.instruction >= 0 &&
                       static_cast<size_t>(marks.instruction) < list->items.size();
    if (!known) return {};
    const StepList::Item& item = list->items[static_cast<size_t>(marks.instruction)];
    const bool transfers = item.op == ir::Opcode::kSend || item.op == ir::Opcode::kRecv;
    if (!transfers) return {};
    const StepList::Channel& channel = list->channels[static_cast<size_t>(item.ref)];
    const bool waits = item.op == ir::Opcode::kRecv ? AwaitsMessage(marks, *list, channel)
                                                    : AwaitsRoom(marks, *list, channel);
    return waits ? std::vector<int>{channel.peer} : std::vector<int>{};
  }

  std::vector<int> BehindInGroup(int rank, const GroupMarks& group) const {
    std::vector<int> behind;
    for (const int member : members_.at(group.name)) {
      if (member == rank) continue;
      const auto& groups = MarksOf(member)->groups;
      const auto its = std::find_if(groups.begin(), groups.end(),
                                    [&](const GroupMarks& of) { return of.name == group.name; });
      MW_CHECK(its != groups.end()) << "rank " << member << " is not in " << group.name;
      if (its->entered < group.entered) behind.push_back(member);
    }
    return behind;
  }

  // What the peer has done on the channel in the step that `marks` is in; all: it is through it.
  struct PeerCount {
    bool all = false;
    int64_t done = 0;    // in this step
    int64_t before = 0;  // that it has still to do in the step before
  };
  PeerCount CountOfPeer(const RankMarks& marks, const StepList::Channel& channel,
                        ir::Opcode op) const {
    const RankMarks* const peer = MarksOf(channel.peer);
    if (peer == nullptr) return {};
    if (peer->steps_begun > marks.steps_begun) return {true, 0, 0};
    const StepList* const list = peer->in_step ? ListOf(*peer) : nullptr;
    if (peer->steps_begun == marks.steps_begun) {
      if (!peer->in_step) return {true, 0, 0};
      return {false, list ? CountBefore(*list, op, channel.name, peer->instruction) : 0, 0};
    }
    // A step behind it has done nothing of this one.
    if (list == nullptr) return {};
    return {false, 0,
            CountAll(*list, op, channel.name) -
                CountBefore(*list, op, channel.name, peer->instruction)};
  }

  bool AwaitsMessage(const RankMarks& marks, const StepList& list,
                     const StepList::Channel& channel) const {
    const int64_t received = CountBefore(list, ir::Opcode::kRecv, channel.name, marks.instruction);
    const PeerCount sent = CountOfPeer(marks, channel, ir::Opcode::kSend);
    return !sent.all && sent.done <= received;
  }

  bool AwaitsRoom(const RankMarks& marks, const StepList& list,
                  const StepList::Channel& channel) const {
    const int64_t sent = CountBefore(list, ir::Opcode::kSend, channel.name, marks.instruction);
    const PeerCount received = CountOfPeer(marks, channel, ir::Opcode::kRecv);
    return !received.all && sent + received.before - received.done >= channel.capacity;
  }

  // ---- From there to the root ----

  bool Waits(int rank) const {
    const auto it = waits_.find(rank);
    return it != waits_.end() && !it->second.empty();
  }

  // Who is waited for, or is in a step, and waits for nobody; whom most wait for comes first.
  std::vector<int> Roots() const {
    std::map<int, size_t> waiting;  // by root: those that wait for it directly
    for (const auto& [rank, awaited] : waits_) {
      if (awaited.empty() && ranks_.at(rank)->marks.in_step) waiting[rank];
      for (const int peer : awaited) {
        if (!Waits(peer)) ++waiting[peer];
      }
    }
    std::vector<int> roots;
    std::map<int, size_t> all;
    for (const auto& [rank, direct] : waiting) {
      roots.push_back(rank);
      // Through others, too; of very many roots an order by their own waiters is enough.
      all[rank] = waiting.size() <= kMostNamed ? WaitersOf({rank}).size() : direct;
    }
    std::stable_sort(roots.begin(), roots.end(), [&](int a, int b) { return all[a] > all[b]; });
    return roots;
  }

  std::vector<int> WaitersOf(const std::set<int>& roots) const {
    std::map<int, std::vector<int>> waiters;  // by whom they wait for
    for (const auto& [rank, awaited] : waits_) {
      for (const int peer : awaited) waiters[peer].push_back(rank);
    }
    std::set<int> seen = roots;
    std::deque<int> open(roots.begin(), roots.end());
    while (!open.empty()) {
      for (const int rank : waiters[open.front()]) {
        if (seen.insert(rank).second) open.push_back(rank);
      }
      open.pop_front();
    }
    for (const int root : roots) seen.erase(root);
    return {seen.begin(), seen.end()};
  }

  // The first that waits, and behind all others for whom it does for no root.
  std::optional<int> WaitsWithoutARoot(const std::vector<int>& roots) const {
    const std::vector<int> explained = WaitersOf({roots.begin(), roots.end()});
    for (const auto& [rank, awaited] : waits_) {
      const bool known = std::binary_search(explained.begin(), explained.end(), rank);
      if (!awaited.empty() && !known) return rank;
    }
    return std::nullopt;
  }

  // REQUIRES that whom the rank waits for waits, too, and so on.
  std::vector<int> CircleFrom(int rank) const {
    std::vector<int> path;
    auto again = path.end();
    while ((again = std::find(path.begin(), path.end(), rank)) == path.end()) {
      path.push_back(rank);
      rank = waits_.at(rank).front();
    }
    return {again, path.end()};
  }

  // Nobody is in a step: those that have begun the fewest.
  std::vector<int> Farthest() const {
    std::vector<int> last;
    for (const auto& [rank, at] : ranks_) {
      const int64_t begun = at->marks.steps_begun;
      if (!last.empty() && begun > MarksOf(last[0])->steps_begun) continue;
      if (!last.empty() && begun < MarksOf(last[0])->steps_begun) last.clear();
      last.push_back(rank);
    }
    return last;
  }

  std::string WhereIs(int rank) const {
    const auto it = ranks_.find(rank);
    return it == ranks_.end() ? "of which nothing is known"
                              : PlaceOf(*it->second, ListOf(it->second->marks));
  }

  const StepLists* const lists_;
  std::map<int, const RankAt*> ranks_;
  std::map<std::string, std::vector<int>, std::less<>> members_;  // by group
  std::map<int, std::vector<int>> waits_;                         // by rank: for whom
};

std::string Listed(const std::vector<RankPlaceText>& places,
                   const std::function<std::string(int)>& name) {
  std::string text;
  for (size_t i = 0; i < std::min(places.size(), kMostNamed); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name(places[i].rank), places[i].where);
  }
  if (places.size() > kMostNamed) text += fmt::format(" and {} more", places.size() - kMostNamed);
  return text;
}

}  // namespace

Diagnosis Diagnose(const StepLists* lists, const std::vector<RankAt>& ranks) {
  return Walk(lists, ranks).Run();
}

std::string Describe(const Diagnosis& diagnosis, const std::function<std::string(int)>& name) {
  MW_CHECK(!diagnosis.roots.empty()) << "a diagnosis without a root";
  std::string text;
  if (diagnosis.circle) {
    text = fmt::format("{} ranks wait for each other in a circle: {}", diagnosis.roots.size(),
                       Listed(diagnosis.roots, name));
  } else {
    text = Listed({diagnosis.roots[0]}, name);
  }
  const size_t count = diagnosis.waiters.size();
  if (count != 0) {
    text += fmt::format("; {} {} for {}: {}", count, count == 1 ? "rank waits" : "ranks wait",
                        diagnosis.circle ? "them" : "it", Listed(diagnosis.waiters, name));
  }
  const size_t others = diagnosis.circle ? 0 : diagnosis.roots.size() - 1;
  if (others != 0) {
    const std::vector<RankPlaceText> rest(diagnosis.roots.begin() + 1, diagnosis.roots.end());
    text += fmt::format("; {} more {} for nobody: {}", others, others == 1 ? "waits" : "wait",
                        Listed(rest, name));
  }
  return text;
}

}  // namespace meshwright::controller
