// The arithmetic of a training step, by which its speed is told: tflops, mfu.
//
// Thread rule: pure functions.
#pragma once

#include "ir/job.h"

namespace meshwright::ir {

// Of a step of all devices together, forward plus backward: the gradient of a contraction costs two
// of its size. What is recomputed does not count. 0: the job does not train.
double TrainingFlops(const JobRequest& job);

}  // namespace meshwright::ir
