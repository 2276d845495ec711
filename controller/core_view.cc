#include "controller/core_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "controller/host_means.h"
#include "controller/standings.h"

namespace meshwright::controller {
namespace {

void AddBlobs(const ir::JobRequest& request, std::set<std::string>& blobs) {
  for (const ir::BlobRef& blob : ir::BlobsOf(request)) blobs.insert(blob.sha256);
}

void AddBlobs(const PlannedJob& plan, std::set<std::string>& blobs) {
  blobs.insert(plan.graph.sha256);
  for (const PlannedDevice& device : plan.devices) {
    for (const ir::BlobRef& program : device.programs) blobs.insert(program.sha256);
  }
}

}  // namespace

namespace {

// What a worker is to people: one that could work and gets none says why.
const char* StateText(const Worker& worker, const Membership& members) {
  const StandingRecord* const standing = members.standings().Of(worker.info.name);
  const bool closed = worker.state == WorkerState::kReady && standing != nullptr;
  return closed ? Name(standing->standing) : Name(worker.state);
}

proto::WorkerInfo TileOf(const std::string& name, const Worker& worker, const Membership& members) {
  proto::WorkerInfo info;
  info.name = name;
  info.host = worker.info.host_id;
  info.state = StateText(worker, members);
  if (const StandingRecord* const standing = members.standings().Of(name)) {
    info.note = standing->why;
  }
  info.devices = worker.info.devices;
  info.busy_devices =
      static_cast<int32_t>(std::count_if(worker.device_job.begin(), worker.device_job.end(),
                                         [](JobId job) { return job.value() != 0; }));
  return info;
}

}  // namespace

proto::JobInfo InfoOf(const JobEntry& job, const CoreOptions& options) {
  const JobRecord& record = job.record;
  proto::JobInfo info;
  info.id = record.id;
  info.name = record.name;
  info.state = record.state;
  info.reason = record.reason;
  info.message = record.message;
  // What becomes of it goes before what is wrong with it.
  const bool has_news = !record.reason.empty();
  if (record.state == JobState::kRunning && !has_news && !job.attention.text.empty()) {
    info.reason = job.attention.reason;
    info.message = job.attention.text;
  }
  info.steps_done = record.steps_done;
  info.steps = record.steps;
  info.loss = record.loss;
  info.layout = record.layout;
  info.directory = fmt::format("{}/{}", options.jobs_dir, record.id);
  info.submitted_unix_ms = record.submitted_unix_ms;
  info.started_unix_ms = record.started_unix_ms;
  info.ended_unix_ms = record.ended_unix_ms;
  info.device_memory_bytes = job.device_memory_bytes;
  info.device_budget_bytes = job.device_budget_bytes;
  info.peak_flops_per_s = job.peak_flops_per_s;
  info.checkpoint_step = job.record.checkpoint_step;
  info.checkpoint_folder = job.record.checkpoint_folder;
  info.tool = job.record.tool;
  return info;
}

std::vector<proto::WorkerInfo> InfoOf(const Membership& members, Now now) {
  std::vector<proto::WorkerInfo> infos;
  infos.reserve(members.all().size());
  const std::map<std::string, HostMeans> hosts = MeansOfHosts(members);
  for (const auto& [name, worker] : members.all()) {
    proto::WorkerInfo info = TileOf(name, worker, members);
    info.memory_bytes = worker.info.memory_bytes;
    info.address = worker.info.address;
    info.version = worker.info.version;
    info.metrics_address = worker.info.metrics_address;
    info.device_profile = worker.info.device_profile;
    info.threads_per_device = worker.info.threads_per_device;
    const auto host = hosts.find(worker.info.host_id);
    info.host_cores = host == hosts.end() ? 0 : host->second.cores;
    info.host_memory_bytes = worker.info.host_memory_bytes;
    info.disk_bytes = worker.info.disk_bytes;
    info.no_scratch_dir = worker.info.no_scratch_dir;
    info.device_kind = KindOf(worker.info);
    info.device_name = worker.info.device_name;
    info.data_roots = worker.info.data_roots;
    info.checkpoint_roots = worker.info.checkpoint_roots;
    info.last_seen_s = static_cast<double>(now.ms - worker.last_seen_ms) / 1000.0;
    infos.push_back(std::move(info));
  }
  return infos;
}

std::vector<proto::WorkerInfo> TilesOf(const Membership& members) {
  std::vector<proto::WorkerInfo> tiles;
  tiles.reserve(members.all().size());
  for (const auto& [name, worker] : members.all()) tiles.push_back(TileOf(name, worker, members));
  return tiles;
}

JobStory StoryOf(const JobEntry& job) {
  JobStory story;
  story.runs = job.runs;
  story.recoveries = static_cast<int64_t>(job.history.unix_ms.size());
  if (job.run) story.ranks = job.run->ranks();
  return story;
}

std::map<std::string, std::vector<int64_t>> DeviceJobsOf(const Membership& members) {
  std::map<std::string, std::vector<int64_t>> jobs;
  for (const auto& [name, worker] : members.all()) {
    for (const JobId job : worker.device_job) jobs[name].push_back(job.value());
  }
  return jobs;
}

std::map<std::string, std::vector<DeviceRun>> DeviceRunsOf(const LiveMeshes& meshes) {
  std::map<std::string, std::vector<DeviceRun>> runs;
  for (const MeshGeneration gen : meshes.Generations()) {
    const MeshLife& mesh = meshes.At(gen);
    const PlannedJob& plan = mesh.state().order.plan;
    for (const MeshMember& member : mesh.state().members) {
      for (size_t i = 0; i < member.ranks.size(); ++i) {
        DeviceRun& run = runs[member.worker].emplace_back();
        run.device = member.local_devices[i];
        run.job = mesh.job();
        run.rank = member.ranks[i];
        for (const std::string& name : plan.programs) {
          const StepList* const list =
              plan.lists == nullptr ? nullptr : plan.lists->Find(name, run.rank);
          if (list == nullptr) continue;
          run.stage = list->stage;
          run.programs[name] = static_cast<int64_t>(list->items.size());
        }
      }
    }
  }
  return runs;
}

std::map<std::string, int64_t> CountStates(const JobBook& book) {
  std::map<std::string, int64_t> counts;
  for (int i = 1; i < proto::kJobStateCount; ++i) {
    counts[proto::JobStateName(static_cast<JobState>(i))] = 0;
  }
  for (const auto& [id, job] : book.all()) ++counts[proto::JobStateName(job.record.state)];
  return counts;
}

std::map<std::string, int64_t> CountStates(const Membership& members) {
  std::map<std::string, int64_t> counts;
  for (int i = 0; i < kWorkerStateCount; ++i) counts[Name(static_cast<WorkerState>(i))] = 0;
  for (int i = 1; i < kStandingCount; ++i) counts[Name(static_cast<Standing>(i))] = 0;
  for (const auto& [name, worker] : members.all()) ++counts[StateText(worker, members)];
  return counts;
}

namespace {

// What it reads, and the plans that it may go on by.
void AddPlans(const JobEntry& job, std::set<std::string>& blobs) {
  if (job.request) AddBlobs(*job.request, blobs);
  if (job.recovery) AddBlobs(job.recovery->plan, blobs);
  if (job.larger) AddBlobs(job.larger->plan, blobs);
  for (const auto& plan : job.ahead.plans()) AddBlobs(*plan, blobs);
}

}  // namespace

std::set<std::string> BlobsOf(const JobEntry& job, const CoreState& core) {
  std::set<std::string> blobs;
  AddPlans(job, blobs);
  for (const auto& [gen, mesh] : core.meshes.all()) {
    if (mesh.job() == job.id()) AddBlobs(mesh.state().order.plan, blobs);
  }
  blobs.erase("");  // none
  return blobs;
}

std::set<std::string> BlobsInUse(const CoreState& core) {
  std::set<std::string> blobs;
  for (const auto& [id, job] : core.book.all()) {
    AddPlans(job, blobs);
  }
  for (const auto& [gen, mesh] : core.meshes.all()) AddBlobs(mesh.state().order.plan, blobs);
  blobs.erase("");  // none
  return blobs;
}

}  // namespace meshwright::controller
