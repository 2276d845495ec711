// What can be said of a job before there is a cluster: the one check that a request passes before a
// controller accepts it and before a command line submits it.
//
// Whatever a client sends is either refused here, with a message that names the field, or can be
// placed and planned without harm to who does it.
//
// Thread rule: pure function.
#pragma once

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::search {

// ir::ValidateJob, planner::CheckPins and CheckShardingPins. Errors: kInvalidArgument naming the
// field.
Status CheckJob(const ir::JobRequest& job);

}  // namespace meshwright::search
