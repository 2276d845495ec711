// What devices wrote down, as it travels. Included by proto/ only. Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "ir/step_record.h"
#include "proto/meshwright.pb.h"

namespace meshwright::proto {

void Put(const ir::StepRecord& record, v1::StepRecord& wire);
// Errors: kInvalidArgument: marks without their parts, or too many of them.
Result<ir::StepRecord> Get(const v1::StepRecord& wire);

}  // namespace meshwright::proto
