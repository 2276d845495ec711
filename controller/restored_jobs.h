// Jobs as a new controller finds them in its store.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "controller/run_record.h"
#include "controller/store.h"
#include "ir/job.h"

namespace meshwright::controller {

struct RestoredJob {
  JobRecord record;
  Result<std::shared_ptr<const ir::JobRequest>> request;  // of jobs that are not terminal
  std::optional<RunRecord> run = {};                      // none, or none that can be read
};

// Steps of a job that people have seen the metrics of: what a store knows of them may be old, or
// ahead of what is in the job's journal. REQUIRES a job that is not terminal.
using ToldSteps = std::function<int64_t(const JobRecord&)>;

// A request or a run that cannot be read any more is an error of its job, not of the others.
std::vector<RestoredJob> RestoreJobs(const StoredState& stored, const ToldSteps& told_steps);

}  // namespace meshwright::controller
