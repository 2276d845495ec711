#include "controller/core_ahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "controller/core_recovery.h"
#include "controller/elastic.h"
#include "controller/kind_placement.h"
#include "mesh/device_order.h"

namespace meshwright::controller {
namespace {

bool IsPlanning(const CoreState& core) {
  return std::any_of(core.book.all().begin(), core.book.all().end(),
                     [](const auto& each) { return each.second.run && !each.second.run->mesh(); });
}

bool MayBeAsked(const JobEntry& job, const CoreState& core, Now now) {
  if (job.record.state != JobState::kRunning || !job.run || !job.run->mesh()) return false;
  const ir::FaultToleranceSpec& spec = job.request->fault_tolerance;
  const bool is_elastic = spec.enable && spec.elastic != ir::Elastic::kOff &&
                          job.request->driver.kind != ir::DriverKind::kClient;
  if (!is_elastic || job.run->halt() || job.ahead.IsComplete(job.run->number())) return false;
  return now.ms - job.active_ms >= core.options.plan_ahead_ms &&
         core.meshes.At(*job.run->mesh()).state().phase == MeshPhase::kActive;
}

// What goes at once: a worker, or a host with all of its workers.
struct Part {
  std::set<std::string> workers;
  std::vector<mesh::Device> devices;  // of the run
  std::string loss;  // the same where as much is left, on hosts that are left with as much
};

std::vector<Part> PartsOf(const Run& run, const Membership& members) {
  std::map<std::string, Part> of_workers;
  std::map<std::string, Part> of_hosts;
  for (const RankPlace& rank : run.ranks()) {
    const mesh::Device device = DeviceOf(members, rank.worker, rank.local_device);
    for (Part* const part : {&of_workers[rank.worker], &of_hosts[device.host]}) {
      part->workers.insert(rank.worker);
      part->devices.push_back(device);
    }
  }
  std::vector<Part> parts;
  for (auto& [worker, part] : of_workers) {
    const mesh::Device& first = part.devices.front();
    part.loss = fmt::format("{} devices of {} on the host, {} bytes each", part.devices.size(),
                            of_hosts.at(first.host).devices.size(), first.memory_bytes);
    parts.push_back(std::move(part));
  }
  for (auto& [host, part] : of_hosts) {
    if (part.workers.size() == 1) continue;
    part.loss = fmt::format("a host with {} devices, {} bytes each", part.devices.size(),
                            part.devices.front().memory_bytes);
    parts.push_back(std::move(part));
  }
  return parts;
}

// False: the job does not go on with what is left.
bool Ask(JobEntry& job, const Part& lost, CoreState& core, Context& context) {
  const MeshOrder& order = core.meshes.At(*job.run->mesh()).state().order;
  std::vector<mesh::Device> left;
  for (const RankPlace& rank : job.run->ranks()) {
    if (lost.workers.contains(rank.worker)) continue;
    left.push_back(DeviceOf(core.members, rank.worker, rank.local_device));
  }
  if (left.empty()) return false;
  const ir::ParallelSpec& had = order.plan.degrees;
  const auto count = static_cast<int64_t>(left.size());
  Placement placement =
      Place(ToPlaceOnFewer(*job.request, order.kind, had).parallel, std::move(left), {}, count);
  if (placement.outcome != PlacementOutcome::kPlaced) return false;
  auto request =
      ToPlanForFewer(*job.request, order.kind, had, static_cast<int64_t>(placement.devices.size()));
  if (!request) return false;
  core.plan_ahead = CoreState::PlanAheadUnderWay{job.id(), job.ahead.epoch()};
  context.Do(MakePlanAhead{job.id(), job.ahead.epoch(), lost.loss,
                           std::make_shared<const ir::JobRequest>(*std::move(request)),
                           TopologyOf(std::move(placement.devices), core.members)});
  return true;
}

// True: it was asked for one.
bool AskNext(JobEntry& job, CoreState& core, Context& context) {
  const MeshOrder& order = core.meshes.At(*job.run->mesh()).state().order;
  std::map<std::string, size_t> spares;  // on each worker
  size_t all_spares = 0;
  for (const mesh::Device& device : core.members.FreeDevices(order.kind)) {
    if (device.memory_bytes < order.plan.device_memory_bytes) continue;
    ++spares[device.worker];
    ++all_spares;
  }
  bool may_be_replaced = false;
  for (const Part& part : PartsOf(*job.run, core.members)) {
    size_t spares_left = all_spares;
    for (const std::string& worker : part.workers) spares_left -= spares[worker];
    if (spares_left >= part.devices.size()) {
      may_be_replaced = true;
      continue;
    }
    if (!job.ahead.Wants(part.loss)) continue;
    if (Ask(job, part, core, context)) return true;
    job.ahead.Take(part.loss, nullptr);
  }
  if (may_be_replaced) return false;
  const std::string layouts = job.ahead.Complete(job.run->number());
  if (layouts.empty()) return false;
  const std::string text = fmt::format("prepared for the loss of a worker: {}", layouts);
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
  return false;
}

}  // namespace

void PlanAhead(CoreState& core, Context& context) {
  if (core.stopping || core.plan_ahead || IsPlanning(core)) return;
  for (auto& [id, job] : core.book.all()) {
    if (MayBeAsked(job, core, context.now) && AskNext(job, core, context)) return;
  }
}

void On(const PlannedAhead& event, CoreState& core, Context& context) {
  const auto& under_way = core.plan_ahead;
  if (under_way && under_way->job == event.job && under_way->epoch == event.epoch) {
    core.plan_ahead.reset();
  }
  JobEntry* const job = core.book.Find(event.job);
  if (job == nullptr || !job->request || job->ahead.epoch() != event.epoch) return;
  std::shared_ptr<const PlannedJob> plan;
  if (event.plan.has_value() && CheckPlacement(*event.plan, event.devices).ok() &&
      static_cast<int64_t>(event.plan->devices.size()) >=
          job->request->fault_tolerance.min_devices) {
    plan = std::make_shared<const PlannedJob>(*event.plan);
  }
  if (!event.plan.has_value()) {
    context.Do(LogLine{job->id(), fmt::format("not prepared for the loss of a worker: {}",
                                              event.plan.error().message())});
  }
  job->ahead.Take(event.loss, std::move(plan));
}

void KeepProgramsFor(const PlannedJob& plan, JobEntry& job, CoreState& core) {
  const size_t devices = plan.devices.size();
  const size_t before = job.recovery ? job.recovery->plan.devices.size() : 0;
  if (before == devices && job.recovery->plan.layout == plan.layout) return;
  const int64_t epoch = ++core.ahead_epochs;
  job.ahead = before > devices ? job.ahead.After(devices, epoch) : ProgramsAhead(epoch);
}

std::vector<mesh::Device> DevicesForRecovery(const JobEntry& job, const CoreState& core) {
  const std::set<std::pair<std::string, int>> kept = KeptDevices(core);
  const std::vector<RankPlace>& own = job.recovery->ranks;
  std::vector<mesh::Device> free = core.members.FreeDevices(job.recovery->kind);
  std::erase_if(free, [&](const mesh::Device& device) {
    const RankPlace place{device.worker, device.local_index};
    return kept.contains({device.worker, device.local_index}) &&
           std::find(own.begin(), own.end(), place) == own.end();
  });
  return free;
}

std::optional<SeatedPlan> FindProgramAhead(const JobEntry& job, const CoreState& core) {
  const Recovery& recovery = *job.recovery;
  const std::vector<mesh::Device> free = DevicesForRecovery(job, core);
  std::vector<mesh::Device> left;
  for (const mesh::Device& device : free) {
    const RankPlace place{device.worker, device.local_index};
    const bool had =
        std::find(recovery.ranks.begin(), recovery.ranks.end(), place) != recovery.ranks.end();
    if (had && device.worker != recovery.avoid) left.push_back(device);
  }
  mesh::SortForPlacement(left);
  for (const auto& plan : job.ahead.plans()) {
    std::vector<RankPlace> wanted(plan->devices.size());
    for (size_t rank = 0; rank < wanted.size(); ++rank) {
      const size_t at = plan->placement.empty() ? rank : static_cast<size_t>(plan->placement[rank]);
      if (at < left.size()) wanted[rank] = {left[at].worker, left[at].local_index};
    }
    if (auto seats = FindSeats(*plan, wanted, recovery.avoid, free)) {
      SeatedPlan seated{*plan, *std::move(seats)};
      seated.plan.placement.clear();
      return seated;
    }
  }
  return std::nullopt;
}

}  // namespace meshwright::controller
