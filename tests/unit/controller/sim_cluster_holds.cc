// The part of the simulated cluster in which sessions begin and end, and workers hold their meshes
// without one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {

void SimCluster::Drop(SimWorker& worker, uint64_t gen) {
  worker.meshes.erase(gen);
  worker.logs.erase(gen);
  std::erase_if(worker.writes, [&](const proto::UpBody& write) {
    const auto* saved = std::get_if<proto::StateSaved>(&write);
    const auto* committed = std::get_if<proto::CheckpointCommitted>(&write);
    return gen == (saved != nullptr ? saved->mesh_gen : committed->mesh_gen).value();
  });
}

// A number means the same launch to every member, whichever controller says it.
void SimCluster::CheckLaunch(const proto::DownBody& told) {
  std::string content;
  std::pair<uint64_t, uint64_t> at;
  if (const auto* launch = std::get_if<proto::Launch>(&told)) {
    at = {launch->mesh_gen.value(), launch->launch_seq.value()};
    content = fmt::format("{} {} {}", launch->program, launch->first_step, launch->count);
  } else if (const auto* save = std::get_if<proto::SaveState>(&told)) {
    at = {save->mesh_gen.value(), save->launch_seq.value()};
    content = "save " + save->temporary;
  } else if (const auto* restore = std::get_if<proto::RestoreState>(&told)) {
    at = {restore->mesh_gen.value(), restore->launch_seq.value()};
    content = "restore " + restore->checkpoint.path;
  } else {
    return;
  }
  EXPECT_EQ(launches_.emplace(at, content).first->second, content)
      << "launch " << at.second << " of generation " << at.first << " is two";
}

// Its session is over.
void SimCluster::Part(SimWorker& worker) {
  worker.session = SessionId(0);
  worker.actors.clear();
  std::vector<uint64_t> dropped;
  for (const uint64_t gen : worker.meshes) {
    const auto log = worker.logs.find(gen);
    const bool held = workers_hold && log != worker.logs.end() && log->second.can_be_held();
    if (!held) dropped.push_back(gen);
  }
  for (const uint64_t gen : dropped) Drop(worker, gen);
}

void SimCluster::Reconnect(const std::string& name) {
  SimWorker& worker = workers_.at(name);
  if (worker.session.value() != 0) closing_.insert(worker.session.value());
  if (workers_hold) {
    Part(worker);
  } else {
    worker.meshes.clear();
    worker.logs.clear();
    worker.writes.clear();
    worker.last_seq.clear();
  }
  worker.actors.clear();
  worker.session = SessionId(next_session_++);
  worker.silent = false;
  worker.welcomed = false;
  proto::Register info;
  info.name = name;
  info.incarnation = Incarnation(worker.incarnation);
  info.devices = worker.devices;
  info.address = name + ":1";
  info.host_id = worker.host;
  info.version = proto::kVersion;
  info.max_term = worker.term;
  info.device_profile = worker.profile;
  info.threads_per_device = 2;
  info.host_cores = 8;
  info.cpus = worker.cpus;
  info.device_kind = worker.kind;
  info.actor_types = worker.actor_types;
  if (shared_root) info.checkpoint_roots = {{"shared", "/mnt"}};
  for (const auto& [gen, log] : worker.logs)
    info.meshes.push_back({MeshGeneration(gen), log.job()});
  up_[worker.session.value()].push_back(proto::UpMessage{Term(0), std::move(info)});
}

void SimCluster::Kill(const std::string& name) {
  SimWorker& worker = workers_.at(name);
  if (worker.session.value() == 0) return;
  closing_.insert(worker.session.value());
  down_.erase(worker.session.value());
  worker.session = SessionId(0);
  worker.meshes.clear();
  worker.logs.clear();
  worker.actors.clear();
  worker.writes.clear();
}

void SimCluster::Crash(const std::string& name) {
  up_[workers_.at(name).session.value()].clear();
  Kill(name);
}

void SimCluster::Flap(const std::string& name) {
  SimWorker& worker = workers_.at(name);
  if (worker.session.value() == 0) return;
  const uint64_t before = worker.session.value();
  // What was under way is lost, in both directions; the worker's end may be heard of later.
  up_[before].clear();
  down_.erase(before);
  closing_.insert(before);
  Part(worker);
  Reconnect(name);
}

void SimCluster::OnWelcome(SimWorker& worker, const proto::DownMessage& message) {
  EXPECT_GE(message.term, worker.term);
  worker.term = message.term;
  worker.welcomed = true;
  const auto& kept = std::get<proto::Welcome>(message.body).meshes;
  std::vector<uint64_t> dropped;
  for (const auto& [gen, log] : worker.logs) {
    if (std::find(kept.begin(), kept.end(), MeshGeneration(gen)) == kept.end()) {
      dropped.push_back(gen);
    }
  }
  for (const uint64_t gen : dropped) Drop(worker, gen);
  Say(worker, heartbeat ? heartbeat(worker) : proto::Heartbeat{});
  for (const MeshGeneration gen : kept) {
    const auto log = worker.logs.find(gen.value());
    ASSERT_NE(log, worker.logs.end()) << "generation " << gen << " was not registered";
    ++resumes;
    const worker::MeshLog& held = log->second;
    Say(worker, held.Resume());
    for (proto::UpBody& body : held.Rest()) Say(worker, std::move(body));
  }
}

}  // namespace meshwright::controller
