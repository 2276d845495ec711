#include "controller/hang_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "controller/core_view.h"
#include "controller/step_lists.h"

namespace meshwright::controller {
namespace {

using proto::GroupMarks;

// In which nothing moves: heartbeats, and steps of the usual length.
constexpr int64_t kStillBeats = 2;
constexpr double kStillSteps = 3;

std::string Seconds(int64_t ms) { return FormatDuration(static_cast<double>(ms) / 1000); }

// The kernel's letter for a thread, in a word.
std::string ThreadState(const std::string& letter) {
  static const std::map<std::string, std::string> words = {
      {"R", "runs"},        {"S", "sleeps"},   {"D", "in the disk"}, {"T", "stopped"},
      {"t", "in debugger"}, {"Z", "a zombie"}, {"X", "dead"},        {"I", "sleeps"}};
  const auto found = words.find(letter);
  return found == words.end() ? (letter.empty() ? "unknown" : letter) : found->second;
}

// What is known of each rank, whether it says something or not.
std::vector<HangRank> RanksOf(const MeshState& mesh, const StallView& view) {
  std::map<int, HangRank> ranks;
  for (const MeshMember& member : mesh.members) {
    for (size_t i = 0; i < member.ranks.size(); ++i) {
      HangRank& rank = ranks[member.ranks[i]];
      rank.rank = member.ranks[i];
      rank.worker = member.worker;
      rank.device = member.local_devices[i];
    }
  }
  const StepLists* const lists = mesh.order.plan.lists.get();
  for (const auto& [number, seen] : view.ranks) {
    HangRank& rank = ranks[number];
    const proto::RankMarks& marks = seen.marks;
    rank.rank = number;
    rank.known = true;
    rank.in_step = marks.in_step;
    rank.program = marks.program;
    rank.step = marks.step;
    rank.instruction = marks.instruction;
    rank.since_ms = marks.age_ms + seen.heard_ms;
    rank.heard_ms = seen.heard_ms;
    rank.pid = seen.pid;
    rank.thread = ThreadState(marks.state);
    rank.at_work = seen.at_work;
    rank.awaits_rows = marks.awaits_rows;
    const StepList* const list = lists == nullptr ? nullptr : lists->Find(marks.program, number);
    rank.what = !marks.in_step    ? "behind its step, " + seen.doing
                : list == nullptr ? ""
                                  : NameItem(*list, marks.instruction);
    const auto waits = view.diagnosis.waits.find(number);
    if (waits != view.diagnosis.waits.end()) rank.waits_for = waits->second;
  }
  std::vector<HangRank> all;
  for (auto& [number, rank] : ranks) all.push_back(std::move(rank));
  return all;
}

std::vector<HangCollective> CollectivesOf(const StallView& view) {
  std::map<std::string, std::map<int, GroupMarks>> groups;
  for (const auto& [rank, seen] : view.ranks) {
    for (const GroupMarks& group : seen.marks.groups) groups[group.name].emplace(rank, group);
  }
  std::vector<HangCollective> all;
  for (const auto& [name, members] : groups) {
    std::set<int64_t> calls;  // that somebody is in
    for (const auto& [rank, marks] : members) {
      if (marks.entered > marks.done) calls.insert(marks.entered);
    }
    for (const int64_t call : calls) {
      HangCollective& collective = all.emplace_back();
      collective.group = name;
      collective.call = call;
      for (const auto& [rank, marks] : members) {
        collective.members.push_back(rank);
        if (marks.entered < call) collective.missing.push_back(rank);
        if (marks.entered == call && marks.done < call) collective.inside.push_back(rank);
      }
    }
  }
  return all;
}

// ---- Who is suspected ----

class HangJudge {
 public:
  HangJudge(HangReport& report, const StallView& view, int64_t silent_ms)
      : report_(report), view_(view), silent_ms_(silent_ms) {}

  void Run() {
    report_.waiters = static_cast<int64_t>(view_.diagnosis.waiters.size());
    if (FindSilent() || FindStopped() || FindCircle() || FindNetwork()) return;
    JudgeRoots();
  }

 private:
  const HangRank* Find(int rank) const {
    const auto it = std::find_if(report_.ranks.begin(), report_.ranks.end(),
                                 [&](const HangRank& each) { return each.rank == rank; });
    return it == report_.ranks.end() ? nullptr : &*it;
  }
  void Say(HangCause cause, std::vector<int> suspects, std::string evidence, std::string advice) {
    report_.cause = cause;
    report_.suspects = std::move(suspects);
    report_.evidence = std::move(evidence);
    report_.advice = std::move(advice);
  }

  bool FindSilent() {
    std::vector<int> silent;
    std::set<std::string> workers;
    int64_t heard_ms = 0;
    for (const HangRank& rank : report_.ranks) {
      if (rank.known && rank.heard_ms <= silent_ms_) continue;
      silent.push_back(rank.rank);
      workers.insert(rank.worker);
      if (rank.known) heard_ms = std::max(heard_ms, rank.heard_ms);
    }
    if (silent.empty()) return false;
    Say(HangCause::kSilent, silent,
        fmt::format("no heartbeat of {} {} has come {}: its daemon, its host, or the network to it",
                    workers.size() == 1 ? "worker" : "workers", fmt::join(workers, ", "),
                    heard_ms == 0 ? "in this run" : "for " + Seconds(heard_ms)),
        fmt::format("look at that host; the controller takes the worker for lost by itself, or "
                    "now: meshwright worker evict {}",
                    *workers.begin()));
    return true;
  }

  // Of the roots, or where nobody waits yet, any.
  bool FindStopped() {
    std::vector<int> stopped;
    for (const HangRank& rank : report_.ranks) {
      const auto seen = view_.ranks.find(rank.rank);
      if (seen != view_.ranks.end() && seen->second.stopped) stopped.push_back(rank.rank);
    }
    if (stopped.empty()) return false;
    const HangRank& first = *Find(stopped[0]);
    const std::string process =
        first.pid > 0 ? fmt::format("{}, the", first.pid) : std::string("PID of the");
    Say(HangCause::kStopped, stopped,
        "its process is stopped, by a signal (SIGSTOP, SIGTSTP) or a debugger, and does not answer",
        fmt::format("on the host of worker {}: kill -CONT {} mw-executor of job {}; or give its "
                    "work to others: meshwright worker drain {}",
                    first.worker, process, report_.job, first.worker));
    return true;
  }

  bool FindCircle() {
    if (!view_.diagnosis.circle) return false;
    std::vector<int> circle;
    for (const RankPlaceText& root : view_.diagnosis.roots) circle.push_back(root.rank);
    Say(HangCause::kCircle, circle, "these ranks wait for each other, and nobody can go on",
        fmt::format("this is a defect of the plan: report it with `meshwright debug hang {} -o "
                    "json`; then: meshwright cancel {}",
                    report_.job, report_.job));
    return true;
  }

  // A collective that all members have entered, or a message that was sent: nobody is waited for.
  bool FindNetwork() {
    if (!report_.stalled) return false;
    for (const HangCollective& each : report_.collectives) {
      const bool all = each.missing.empty() && each.inside.size() > 1;
      const bool idle = std::none_of(each.inside.begin(), each.inside.end(),
                                     [&](int rank) { return Find(rank)->at_work; });
      if (!all || !idle) continue;
      Say(HangCause::kNetwork, each.inside,
          fmt::format("all of them have come to call {} of group {}, none works, and it does not "
                      "end: what they send each other does not arrive",
                      each.call, each.group),
          "look at the network between their hosts: meshwright doctor on each of them");
      return true;
    }
    for (const RankPlaceText& root : view_.diagnosis.roots) {
      const HangRank* const rank = Find(root.rank);
      if (rank == nullptr || !rank->what.starts_with("RECV") || rank->at_work) continue;
      Say(HangCause::kNetwork, {rank->rank},
          fmt::format("it waits in {} for what was sent: it does not arrive", rank->what),
          "look at the network between the two hosts: meshwright doctor on each of them");
      return true;
    }
    return false;
  }

  void JudgeRoots() {
    if (view_.diagnosis.roots.empty()) return;
    const HangRank* const root = Find(view_.diagnosis.roots[0].rank);
    if (root == nullptr) return;
    const std::vector<int> suspect = {root->rank};
    if (root->awaits_rows) {
      return Say(HangCause::kRows, suspect, "it waits for rows of data: files, or a host actor",
                 fmt::format("look at the disk or share with the data, and at host actors: "
                             "meshwright logs {} --worker {}",
                             report_.job, root->worker));
    }
    if (root->thread == "in the disk") {
      return Say(HangCause::kDisk, suspect, "its thread is in the kernel, waiting for a disk",
                 fmt::format("look at the disks of worker {}: dmesg, iostat -x 1", root->worker));
    }
    if (root->at_work) {
      return Say(HangCause::kAtWork, suspect,
                 "it computes: it is slow, or has more to do than the others",
                 fmt::format("look at clock, temperature and neighbours of that host; where it "
                             "goes: meshwright why {}; without it: meshwright worker drain {}",
                             report_.job, root->worker));
    }
    Say(HangCause::kStuck, suspect, "it uses no processor, reads nothing and waits for nobody",
        fmt::format("meshwright logs {} --worker {}; after fault_tolerance.stall_seconds the run "
                    "is ended and recovers",
                    report_.job, root->worker));
  }

  HangReport& report_;
  const StallView& view_;
  const int64_t silent_ms_;
};

}  // namespace

const char* HangCauseName(HangCause cause) {
  static constexpr std::array<const char*, 9> kNames = {
      "none", "silent", "stopped", "circle", "network", "rows", "disk", "at_work", "stuck"};
  return kNames[static_cast<size_t>(cause)];
}

HangReport HangOf(const JobEntry& job, const CoreState& core, Now now) {
  HangReport report;
  const proto::JobInfo info = InfoOf(job, core.options);
  report.job = info.id;
  report.name = info.name;
  report.state = proto::JobStateName(info.state);
  report.message = info.message.empty() ? info.reason : info.message;
  const MeshLife* const mesh =
      job.run && job.run->mesh() ? core.meshes.Find(*job.run->mesh()) : nullptr;
  if (mesh == nullptr || job.ended()) return report;
  report.running = true;
  const auto watch = core.watches.find(mesh->gen());
  const MeshState& state = mesh->state();
  StallView view;
  StallRule rule;
  rule.end_ms = job.request ? job.request->fault_tolerance.stall_s * 1000 : 0;
  if (watch != core.watches.end()) {
    view = watch->second.stalls.See(state.order.plan.lists.get(), rule, now.ms);
  }
  report.still_ms = view.still_ms;
  report.limit_ms = view.limit_ms;
  report.usual_step_s = view.usual_step_s;
  // Sooner than it is called a stall: who asks suspects one.
  const auto steps_ms = static_cast<int64_t>(kStillSteps * view.usual_step_s * 1000);
  report.stalled = !view.ranks.empty() &&
                   view.still_ms >= std::max(kStillBeats * core.options.heartbeat_ms, steps_ms);
  report.ranks = RanksOf(state, view);
  report.collectives = CollectivesOf(view);
  const bool odd = std::any_of(view.ranks.begin(), view.ranks.end(), [&](const auto& rank) {
    return rank.second.stopped || rank.second.heard_ms > core.options.suspect_ms;
  });
  if (report.stalled || odd) HangJudge(report, view, core.options.suspect_ms).Run();
  return report;
}

}  // namespace meshwright::controller
