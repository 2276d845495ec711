// Jobs as a new controller finds them in its store.
//
// Thread rule: pure functions.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "controller/store.h"
#include "ir/job.h"

namespace meshwright::controller {

struct RestoredJob {
  JobRecord record;
  Result<std::shared_ptr<const ir::JobRequest>> request;  // of jobs that are not terminal
};

// A request that cannot be read any more is an error of its job, not of the others.
std::vector<RestoredJob> RestoreJobs(const StoredState& stored);

}  // namespace meshwright::controller
