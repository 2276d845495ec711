// Where devices are, as heartbeats carry it.
#include "proto/convert.h"

namespace meshwright::proto {
namespace {

void PutRank(const RankMarks& m, v1::RankMarks& out) {
  out.set_rank(m.rank);
  out.set_in_step(m.in_step);
  out.set_program(m.program);
  out.set_step(m.step);
  out.set_steps_begun(m.steps_begun);
  out.set_instruction(m.instruction);
  out.set_age_ms(m.age_ms);
  out.set_awaits_rows(m.awaits_rows);
  out.set_state(m.state);
  for (const GroupMarks& group : m.groups) {
    v1::GroupMarks& to = *out.add_groups();
    to.set_name(group.name);
    to.set_entered(group.entered);
    to.set_done(group.done);
  }
}

// Of a mark that is too long what is beyond is dropped: a heartbeat is a sign of life all the same.
RankMarks GetRankMarks(const v1::RankMarks& wire) {
  RankMarks m;
  m.rank = wire.rank();
  m.in_step = wire.in_step();
  m.program = wire.program();
  m.step = wire.step();
  m.steps_begun = wire.steps_begun();
  m.instruction = wire.instruction();
  m.age_ms = wire.age_ms();
  m.awaits_rows = wire.awaits_rows();
  m.state = wire.state();
  for (const v1::GroupMarks& from : wire.groups()) {
    if (m.groups.size() == kMostMarkedGroups) break;
    m.groups.push_back({from.name(), from.entered(), from.done()});
  }
  return m;
}

}  // namespace

v1::Heartbeat Encode(const Heartbeat& m) {
  v1::Heartbeat out;
  for (const MeshMarks& mesh : m.meshes) {
    v1::MeshMarks& to = *out.add_meshes();
    to.set_mesh_gen(mesh.mesh_gen.value());
    to.set_doing(mesh.doing);
    to.set_cpu_ms(mesh.cpu_ms);
    to.set_pid(mesh.pid);
    for (const RankMarks& rank : mesh.ranks) PutRank(rank, *to.add_ranks());
  }
  return out;
}

Heartbeat Decode(const v1::Heartbeat& wire) {
  Heartbeat m;
  for (const v1::MeshMarks& from : wire.meshes()) {
    if (m.meshes.size() == kMostMarkedMeshes) break;
    MeshMarks& mesh = m.meshes.emplace_back();
    mesh.mesh_gen = MeshGeneration(from.mesh_gen());
    mesh.doing = from.doing();
    mesh.cpu_ms = from.cpu_ms();
    mesh.pid = from.pid();
    for (const v1::RankMarks& rank : from.ranks()) {
      if (mesh.ranks.size() == kMostMarkedRanks) break;
      mesh.ranks.push_back(GetRankMarks(rank));
    }
  }
  return m;
}

}  // namespace meshwright::proto
