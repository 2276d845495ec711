// What a job may say of its optimizer. Thread rule: pure functions.
#pragma once

#include "base/result.h"

namespace meshwright::ir {

struct JobRequest;

// Errors: kInvalidArgument naming the field: an unknown name, a number out of range, a layout that
// splits what the optimizer has to see whole.
Status CheckOptimizer(const JobRequest& job);

}  // namespace meshwright::ir
