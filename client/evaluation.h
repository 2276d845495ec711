// Jobs that ask what another job has made: its model on data, or on what a client brings.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "ir/job.h"
#include "proto/job_description.h"

namespace meshwright::client {

// The trained program of `of`, without training, once over the validation data with the weights
// that the job left. batches: at most so many; 0: as many as its own validations had. `id`: of the
// job, for messages and the name. Errors: kFailedPrecondition: the job trained nothing, or left no
// weights.
Result<ir::JobRequest> EvaluationOf(const proto::JobDescription& of, int64_t id, int64_t batches);

// The program "predict" alone, on the weights that the job left, driven by a client. Errors: as
// above, and a job without such a program.
Result<ir::JobRequest> PredictionOf(const proto::JobDescription& of, int64_t id);

// The same of a job that is not there yet, under a name of its own: weights are the caller's.
// Errors: kFailedPrecondition: it has no such program.
Result<ir::JobRequest> PredictionOf(ir::JobRequest of, const std::string& name);

}  // namespace meshwright::client
