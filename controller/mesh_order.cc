#include "controller/mesh_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"

namespace meshwright::controller {
namespace {

std::vector<MeshMember> MakeMembers(const std::vector<RankPlace>& ranks) {
  std::vector<MeshMember> members;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string& worker = ranks[rank].worker;
    auto it = std::find_if(members.begin(), members.end(),
                           [&](const MeshMember& m) { return m.worker == worker; });
    if (it == members.end()) {
      MeshMember member;
      member.worker = worker;
      it = members.insert(members.end(), std::move(member));
    }
    it->ranks.push_back(static_cast<int>(rank));
    it->local_devices.push_back(ranks[rank].local_device);
  }
  return members;
}

// The tensors that the devices of a plan keep between programs.
StateNames StateOf(const PlannedJob& plan) {
  StateNames state;
  for (const PlannedDevice& device : plan.devices) {
    state.insert(device.state_slots.begin(), device.state_slots.end());
  }
  return state;
}

// Where the workers of a run are fewer than those that are to hold each part of a snapshot: others,
// of other hosts first, and not all jobs the same ones.
std::set<std::string> KeepersFor(const JobEntry& job, const Membership& workers) {
  std::set<std::string> members;
  std::set<std::string> hosts;
  for (const RankPlace& rank : job.run->ranks()) {
    members.insert(rank.worker);
    hosts.insert(workers.At(rank.worker).info.host_id);
  }
  const auto wanted = static_cast<size_t>(1 + job.request->fault_tolerance.copies);
  if (!TakesSnapshots(*job.request) || members.size() >= wanted) return {};
  std::vector<std::tuple<bool, std::string, std::string>> others;
  for (const auto& [name, worker] : workers.all()) {
    const bool stays = worker.state == WorkerState::kReady && workers.standings().IsOpen(name);
    if (!stays || members.contains(name)) continue;
    others.emplace_back(hosts.contains(worker.info.host_id),
                        Sha256Hex(fmt::format("{}/{}", job.record.id, name)), name);
  }
  std::sort(others.begin(), others.end());
  others.resize(std::min(others.size(), wanted - members.size()));
  std::set<std::string> keepers;
  for (const auto& [is_near, hash, name] : others) keepers.insert(name);
  return keepers;
}

// What does not depend on who is there.
MeshOrder MakeOrder(MeshGeneration gen, const JobEntry& job, PlannedJob plan,
                    const std::set<std::string>& keepers) {
  const ir::JobRequest& request = *job.request;
  const std::vector<RankPlace>& ranks = job.run->ranks();
  MW_CHECK(!ranks.empty() && ranks.size() == plan.devices.size())
      << ranks.size() << " ranks for a plan of " << plan.devices.size() << " devices";
  MeshOrder order;
  order.gen = gen;
  order.job = job.id();
  order.members = MakeMembers(ranks);
  order.load.mesh_gen = gen;
  order.load.job = order.job;
  order.load.programs = plan.programs;
  order.load.inputs = ir::ClientInputsOf(request);
  order.checkpoints = MakeCheckpointOrder(request, job.record.id, job.record.checkpoint_folder,
                                          plan.layout, job.run->start().point);
  order.checkpoints.unheard = job.record.unheard_commits;
  order.snapshots = job.run->start().snapshots;
  if (TakesSnapshots(request) && !plan.boxes.empty()) {
    std::vector<std::string> worker_of;
    for (const RankPlace& rank : ranks) worker_of.push_back(rank.worker);
    checkpoint::SnapshotPlan snapshots =
        checkpoint::PlanSnapshots(plan.boxes, worker_of, request.fault_tolerance.copies, keepers);
    order.snapshot_slots = std::move(snapshots.slots);
    order.copies = std::move(snapshots.copies);
    order.keepers = keepers;
  }
  order.state = StateOf(plan);
  order.plan = std::move(plan);
  return order;
}

}  // namespace

std::string FilesKeyOf(MeshGeneration gen, const CoreOptions& options) {
  return Sha256Hex(fmt::format("files/{}/{}", options.files_key, gen.value())).substr(0, 32);
}

ir::FolderRef CheckpointFolderOn(const JobEntry& job, const Membership& workers) {
  ir::FolderRef folder = job.record.checkpoint_folder;
  const bool is_open =
      !folder.path.empty() && folder.root.empty() && job.record.checkpoint_step < 0;
  if (!is_open || !job.run) return folder;
  const std::vector<RankPlace>& ranks = job.run->ranks();
  const bool shared = std::all_of(ranks.begin(), ranks.end(), [&](const RankPlace& rank) {
    return !workers.At(rank.worker).info.checkpoint_roots.empty();
  });
  if (!shared) folder.root = ir::kControllerRoot;
  return folder;
}

MeshOrder MakeMeshOrder(const RunRecord& run, const JobEntry& job) {
  MeshOrder order = MakeOrder(run.gen, job, run.plan, run.keepers);
  order.kind = run.kind;
  order.checkpoints.recorded = job.record.checkpoint_step;
  for (MeshMember& member : order.members) member.away = true;
  return order;
}

RunRecord RecordOf(const MeshOrder& order, const JobEntry& job) {
  return {job.run->number(),      order.gen,  order.kind,    job.run->ranks(),
          job.run->start().point, order.plan, order.keepers, job.larger};
}

MeshOrder MakeMeshOrder(MeshGeneration gen, const JobEntry& job, PlannedJob plan,
                        const Membership& workers, const CoreOptions& options) {
  const ir::JobRequest& request = *job.request;
  MeshOrder order = MakeOrder(gen, job, std::move(plan), KeepersFor(job, workers));
  const std::vector<RankPlace>& ranks = job.run->ranks();
  for (MeshMember& member : order.members) member.session = workers.At(member.worker).session;
  order.kind = proto::KindOf(workers.At(ranks.front().worker).info);
  proto::LoadMesh& load = order.load;
  load.cluster_id = options.cluster_id;
  const std::string key =
      fmt::format("{}/{}/{}", options.secret_key, options.term.value(), gen.value());
  load.secret = Sha256Hex(key).substr(0, 32);
  load.seed = request.train.seed;
  load.tf32 = request.train.tf32;
  for (const RankPlace& rank : ranks) {
    const proto::Register& info = workers.At(rank.worker).info;
    load.members.push_back(
        proto::Member{info.name, info.address, info.host_id, info.incarnation.value()});
  }
  load.data = request.data;
  load.sequence = request.train.sequence;
  load.vocabulary = order.plan.vocabulary;
  load.init_weights = request.init_weights;
  load.graph = order.plan.graph;
  load.files_key = FilesKeyOf(gen, options);
  load.orphan_grace_ms = request.fault_tolerance.orphan_grace_s * 1000;
  return order;
}

}  // namespace meshwright::controller
