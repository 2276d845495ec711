// What a worker says of itself when it comes, before anyone believes it.
//
// It is shown in listings and told to its peers, so it must stay small and printable. Thread rule:
// pure functions.
#pragma once

#include "base/result.h"
#include "mesh/device_profile.h"
#include "proto/messages.h"

namespace meshwright::controller {

// Errors: kInvalidArgument naming the worker, what it says and what is allowed.
Status CheckRegistration(const proto::Register& info);

// Null where the worker did not measure. Errors: kInvalidArgument.
Result<mesh::SharedProfile> ProfileOfWorker(const proto::Register& info);

}  // namespace meshwright::controller
