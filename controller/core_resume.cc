#include "controller/core_resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/core_runs.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

namespace {

bool Lists(const Worker& worker, const MeshLife& mesh) {
  const auto& held = worker.info.meshes;
  return std::any_of(held.begin(), held.end(), [&](const proto::HeldMesh& each) {
    return each.mesh_gen == mesh.gen() && each.job == mesh.job();
  });
}

// Null: it has no part in it, or has let go.
const MeshMember* MemberOf(const MeshLife& mesh, const std::string& worker) {
  for (const MeshMember& member : mesh.state().members) {
    if (member.worker == worker && !member.freed) return &member;
  }
  return nullptr;
}

void Free(const std::vector<int>& devices, const Worker& worker, CoreState& core) {
  for (const int device : devices) core.members.SetOwner(worker.info.name, device, JobId(0));
}

RuntimeError CameBackWithout(const Worker& worker, MeshGeneration gen) {
  return MakeError(ErrorKind::kWorkerLost,
                   Unavailable(fmt::format("worker '{}' came back without mesh generation {}",
                                           worker.info.name, gen.value()))
                       .WithBlame(Blame::kInfra),
                   worker.info.name);
}

// The worker has no session that this controller knows of a mesh by.
bool TakesBack(const MeshLife& mesh, const MeshMember& member, const Worker& worker) {
  const int devices = worker.info.devices;
  return mesh.state().phase == MeshPhase::kResuming && Lists(worker, mesh) &&
         std::all_of(member.local_devices.begin(), member.local_devices.end(),
                     [&](int device) { return device >= 0 && device < devices; });
}

}  // namespace

bool HoldsMesh(const Worker& worker, const CoreState& core) {
  return std::any_of(core.meshes.all().begin(), core.meshes.all().end(), [&](const auto& each) {
    const MeshState& mesh = each.second.state();
    return mesh.phase == MeshPhase::kActive && mesh.Hears(worker.session);
  });
}

void PartFromMeshes(const Worker& worker, const RuntimeError& why, CoreState& core,
                    Context& context) {
  for (const MeshGeneration gen : core.meshes.Generations()) {
    const MeshLife* const mesh = core.meshes.Find(gen);
    if (mesh == nullptr || !mesh->state().Hears(worker.session)) continue;
    if (mesh->state().phase == MeshPhase::kActive) {
      Feed(gen, MeshMemberAway{worker.session}, core, context);
    } else if (!mesh->state().IsEnding()) {
      const std::vector<int> devices = MemberOf(*mesh, worker.info.name)->local_devices;
      Feed(gen, MeshMemberLost{worker.session, why}, core, context);
      Free(devices, worker, core);
    }
  }
}

void LeaveEndingMeshes(const Worker& worker, CoreState& core, Context& context) {
  for (const MeshGeneration gen : core.meshes.Generations()) {
    const MeshLife* const mesh = core.meshes.Find(gen);
    if (mesh == nullptr || !mesh->state().IsEnding() || !mesh->state().Hears(worker.session)) {
      continue;
    }
    Feed(gen, MeshReport{worker.session, proto::MeshReleased{gen}}, core, context);
  }
}

void LoseUnlisted(SessionId before, const Worker& worker, CoreState& core, Context& context) {
  for (const MeshGeneration gen : core.meshes.Generations()) {
    const MeshLife* const mesh = core.meshes.Find(gen);
    if (mesh == nullptr || !mesh->state().Hears(before)) continue;
    if (Lists(worker, *mesh)) {
      Feed(gen, MeshMemberBack{worker.info.name, worker.session}, core, context);
      continue;
    }
    const std::vector<int> devices = MemberOf(*mesh, worker.info.name)->local_devices;
    Feed(gen, MeshMemberLost{before, CameBackWithout(worker, gen)}, core, context);
    Free(devices, worker, core);
  }
}

std::vector<MeshGeneration> TakeBack(const Worker& worker, CoreState& core, Context& context) {
  std::vector<MeshGeneration> kept;
  for (const MeshGeneration gen : core.meshes.Generations()) {
    const MeshLife* const mesh = core.meshes.Find(gen);
    const MeshMember* const member = mesh == nullptr ? nullptr : MemberOf(*mesh, worker.info.name);
    if (member == nullptr) continue;
    if (member->session == worker.session) {
      if (mesh->state().phase == MeshPhase::kActive) kept.push_back(gen);
    } else if (TakesBack(*mesh, *member, worker)) {
      for (const int device : member->local_devices) {
        core.members.SetOwner(worker.info.name, device, mesh->job());
      }
      Feed(gen, MeshMemberBack{worker.info.name, worker.session}, core, context);
      kept.push_back(gen);
    } else if (mesh->state().phase == MeshPhase::kResuming) {
      RuntimeError why = CameBackWithout(worker, gen);
      why.kind = ErrorKind::kControllerRestarted;
      Feed(gen, MeshMemberMissing{worker.info.name, why}, core, context);
    }
  }
  return kept;
}

}  // namespace meshwright::controller
