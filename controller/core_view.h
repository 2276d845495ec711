// What people see of the core.
//
// Thread rule: pure functions, between steps.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/core_state.h"
#include "proto/views.h"

namespace meshwright::controller {

proto::JobInfo InfoOf(const JobEntry& job, const CoreOptions& options);
std::vector<proto::WorkerInfo> InfoOf(const Membership& members, Now now);
std::map<std::string, int64_t> CountStates(const JobBook& book);        // by name, every state
std::map<std::string, int64_t> CountStates(const Membership& members);  // likewise
// What the job reads and its mesh runs.
std::set<std::string> BlobsOf(const JobEntry& job, const CoreState& core);
// What jobs that have not ended read, and what all meshes run.
std::set<std::string> BlobsInUse(const CoreState& core);

}  // namespace meshwright::controller
