// What a worker says of itself when it comes, before anyone believes it.
//
// It is shown in listings and told to its peers, so it must stay small and printable. Thread rule:
// pure functions.
#pragma once

#include "base/result.h"
#include "controller/core_options.h"
#include "controller/membership.h"
#include "mesh/device_profile.h"
#include "proto/messages.h"

namespace meshwright::controller {

// Errors: kInvalidArgument naming the worker, what it says and what is allowed.
Status CheckRegistration(const proto::Register& info);

// Whether a worker that says this of itself may take part. known: the worker that had its name till
// now, or null. Errors: kFailedPrecondition: it is of another version, cluster or term;
// kAlreadyExists: its name is taken; those of CheckRegistration.
Status CheckAdmission(const proto::Register& info, const Worker* known, const CoreOptions& options);

// Whether the worker and the others could reach each other: a loopback address is one of its host
// alone. Errors: kFailedPrecondition naming who to start otherwise, and how.
Status CheckReach(const proto::Register& info, const Membership& members);

// Null where the worker did not measure. Errors: kInvalidArgument.
Result<mesh::SharedProfile> ProfileOfWorker(const proto::Register& info);

}  // namespace meshwright::controller
