// A small job that its client drives: four weights, trained on rows that calls bring.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "client/client.h"
#include "ir/job.h"

namespace meshwright::testing {

// "step" trains a regression in f64, "predict" gives what it says of rows. grace_s: of its driver.
Result<ir::JobRequest> MakeDrivenJob(int64_t data, int64_t grace_s);
// The rows of a step, the same every time.
client::Feeds DrivenRows(int64_t step);

}  // namespace meshwright::testing
