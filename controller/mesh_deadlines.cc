#include "controller/mesh_deadlines.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::controller {

using proto::ErrorKind;

std::optional<proto::RuntimeError> FindLate(const MeshState& mesh, int64_t now_ms) {
  struct Rule {
    MeshPhase phase;
    int64_t deadline_ms;
    bool MeshMember::*done;
    const char* what;
    ErrorKind kind;
  };
  const Rule rules[] = {
      {MeshPhase::kLoading, mesh.limits.load_deadline_ms, &MeshMember::loaded,
       "load its programs and data", ErrorKind::kLoadFailed},
      {MeshPhase::kConnecting, mesh.limits.connect_deadline_ms, &MeshMember::connected,
       "connect to its peers", ErrorKind::kConnectFailed},
      {MeshPhase::kSaving, mesh.limits.save_deadline_ms, &MeshMember::saved, "send its weights",
       ErrorKind::kSaveFailed},
  };
  for (const Rule& rule : rules) {
    if (rule.phase != mesh.phase) continue;
    if (now_ms - mesh.phase_since_ms < rule.deadline_ms) return std::nullopt;
    const auto late = std::find_if(mesh.members.begin(), mesh.members.end(),
                                   [&](const MeshMember& m) { return !(m.*rule.done); });
    const std::string worker = late == mesh.members.end() ? "" : late->worker;
    const std::string text = fmt::format("worker '{}' did not {} within {} s", worker, rule.what,
                                         rule.deadline_ms / 1000);
    return proto::MakeError(rule.kind, Internal(text).WithBlame(Blame::kInfra), worker);
  }
  return std::nullopt;
}

}  // namespace meshwright::controller
