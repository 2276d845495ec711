#include "controller/core_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "controller/core_runs.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

namespace {

const StepLists* ListsOf(const MeshState& mesh) { return mesh.order.plan.lists.get(); }

// By rank; without lists nobody knows who does the same work, and each is one of its own.
std::vector<int> StagesOf(const MeshState& mesh) {
  std::vector<int> stages(mesh.order.plan.devices.size());
  std::iota(stages.begin(), stages.end(), 0);
  const StepLists* const lists = ListsOf(mesh);
  for (size_t rank = 0; lists != nullptr && rank < stages.size(); ++rank) {
    const StepList* const list = lists->Find(ir::kStepProgram, static_cast<int>(rank));
    if (list != nullptr) stages[rank] = list->stage;
  }
  return stages;
}

MeshWatch& WatchOf(const MeshLife& mesh, CoreState& core, const Context& context) {
  const auto it = core.watches.find(mesh.gen());
  if (it != core.watches.end()) return it->second;
  return core.watches
      .emplace(mesh.gen(), MeshWatch{StallWatch(context.now.ms), SlowRanks(StagesOf(mesh.state()))})
      .first->second;
}

// The member that has the rank, and the place of the rank in it; null: none has.
std::pair<const MeshMember*, size_t> FindMember(const MeshState& mesh, int rank) {
  for (const MeshMember& member : mesh.members) {
    const auto at = std::find(member.ranks.begin(), member.ranks.end(), rank);
    if (at != member.ranks.end()) {
      return {&member, static_cast<size_t>(at - member.ranks.begin())};
    }
  }
  return {nullptr, 0};
}

std::string RankName(const MeshState& mesh, int rank) {
  const auto [member, place] = FindMember(mesh, rank);
  if (member == nullptr) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (worker '{}', device {})", rank, member->worker,
                     member->local_devices[place]);
}

// The job whose run works on this mesh; null: none does any more.
JobEntry* JobOn(const MeshLife& mesh, CoreState& core) {
  JobEntry* const job = core.book.Find(mesh.job());
  const bool runs = job != nullptr && job->request && job->run && job->run->mesh() == mesh.gen();
  return runs ? job : nullptr;
}

void TellHealth(const JobEntry& job, const std::string& text, Context& context) {
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
  context.Do(JobChanged{job.id()});
}

std::string SlowText(const MeshState& mesh, const SlowRanks& slow, int rank, double ratio) {
  return fmt::format("{} takes {:.2f} times as long {} for its own work", RankName(mesh, rank),
                     ratio, slow.HasPeers(rank) ? "as its peers" : "as when the run began");
}

// What is wrong with a job that runs, for who asks how it is.
void SetAttention(JobEntry& job, const MeshWatch& watch, const std::string& stall,
                  const MeshState& mesh) {
  job.attention = {};
  if (!stall.empty()) {
    job.attention = {"Stalled", stall};
    return;
  }
  for (const auto& [rank, ratio] : watch.slow.slow()) {
    job.attention.reason = "SlowRank";
    std::string& text = job.attention.text;
    text += (text.empty() ? "" : "; ") + SlowText(mesh, watch.slow, rank, ratio);
  }
}

StallRule RuleOf(const JobEntry& job, const CoreOptions& options) {
  StallRule rule;
  rule.end_ms = job.request->fault_tolerance.stall_s * 1000;
  rule.silent_ms = options.suspect_ms;
  return rule;
}

double SecondsOf(int64_t ms) { return static_cast<double>(ms) / 1000; }

std::string StallText(const MeshState& mesh, const StallNews& news) {
  const auto name = [&](int rank) { return RankName(mesh, rank); };
  const std::string why = news.stopped   ? "its process is stopped"
                          : news.at_work ? "it is at work, and is waited for"
                                         : "it uses no processor and reads nothing";
  return fmt::format("nothing has moved for {:.0f} s: {}; of the first: {}",
                     SecondsOf(news.still_ms), Describe(news.diagnosis, name), why);
}

void OnStall(const MeshLife& mesh, JobEntry& job, MeshWatch& watch, const StallNews& news,
             CoreState& core, Context& context) {
  const MeshState& state = mesh.state();
  if (news.change == StallChange::kMoves) {
    SetAttention(job, watch, "", state);
    context.Do(HealthChanged{job.id(), false, {}});
    return TellHealth(job, "it moves again", context);
  }
  const std::string text = StallText(state, news);
  if (news.change == StallChange::kNamed) {
    SetAttention(job, watch, text, state);
    context.Do(HealthChanged{job.id(), true, {}});
    return TellHealth(job, text, context);
  }
  const int root = news.diagnosis.roots.front().rank;
  const MeshMember* const member = FindMember(state, root).first;
  // A process that was stopped from outside is no fault of the job, and does not come again.
  const Status status =
      DeadlineExceeded(fmt::format("{}; ended after fault_tolerance.stall_seconds = {}", text,
                                   job.request->fault_tolerance.stall_s))
          .WithBlame(news.stopped ? Blame::kInfra : Blame::kInternal);
  proto::RuntimeError error =
      MakeError(ErrorKind::kStalled, status, member == nullptr ? "" : member->worker);
  error.device = root;
  Feed(mesh.gen(), MeshFault{std::move(error)}, core, context);
}

}  // namespace

void HearMarks(const Worker& worker, const proto::Heartbeat& heartbeat, CoreState& core,
               Context& context) {
  for (const proto::MeshMarks& marks : heartbeat.meshes) {
    const MeshLife* const mesh = core.meshes.Find(marks.mesh_gen);
    if (mesh == nullptr || !mesh->state().Hears(worker.session)) continue;
    WatchOf(*mesh, core, context).stalls.Hear(worker.info.name, marks, context.now.ms);
  }
}

void WatchLaunched(MeshGeneration gen, const LaunchResult& launched, CoreState& core,
                   Context& context) {
  const MeshLife* const mesh = core.meshes.Find(gen);
  JobEntry* const job = mesh == nullptr ? nullptr : JobOn(*mesh, core);
  if (job == nullptr || launched.launch.program != ir::kStepProgram) return;
  MeshWatch& watch = WatchOf(*mesh, core, context);
  for (const proto::StepReport& step : launched.reports) {
    watch.stalls.OnStep(step.seconds);
    for (const SlowRanks::News& news : watch.slow.OnStep(step.busy)) {
      SetAttention(*job, watch, "", mesh->state());
      context.Do(HealthChanged{job->id(), false, {{news.rank, news.slow ? news.ratio : 0}}});
      const std::string text =
          news.slow
              ? fmt::format("slow: {}, by its last {} steps",
                            SlowText(mesh->state(), watch.slow, news.rank, news.ratio), news.steps)
              : fmt::format("no longer slow: {}", RankName(mesh->state(), news.rank));
      TellHealth(*job, text, context);
    }
  }
}

void CheckStalls(CoreState& core, Context& context) {
  std::erase_if(core.watches,
                [&](const auto& entry) { return core.meshes.Find(entry.first) == nullptr; });
  for (const MeshGeneration gen : core.meshes.Generations()) {
    const MeshLife* const mesh = core.meshes.Find(gen);
    if (mesh == nullptr || mesh->state().phase != MeshPhase::kActive) continue;
    JobEntry* const job = JobOn(*mesh, core);
    if (job == nullptr) continue;
    std::vector<std::string> workers;
    for (const MeshMember& member : mesh->state().members) workers.push_back(member.worker);
    MeshWatch& watch = WatchOf(*mesh, core, context);
    const StallNews news =
        watch.stalls.Check(ListsOf(mesh->state()), workers, mesh->state().launches.runs_program(),
                           RuleOf(*job, core.options), context.now.ms);
    if (news.change != StallChange::kNone) OnStall(*mesh, *job, watch, news, core, context);
  }
}

void EndWatch(MeshGeneration gen, JobEntry& job, CoreState& core, Context& context) {
  const auto it = core.watches.find(gen);
  if (it == core.watches.end()) return;
  HealthChanged over{job.id(), false, it->second.slow.slow()};
  for (auto& [rank, ratio] : over.slow_ranks) ratio = 0;
  if (!job.attention.text.empty()) context.Do(std::move(over));
  job.attention = {};
  core.watches.erase(it);
}

}  // namespace meshwright::controller
