// The one rule for a job that there is not: kNotFound, and exit code 2 of the commands.
//
// Thread rule: a pure function.
#pragma once

#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace meshwright::controller {

inline Status NoSuchJob(JobId id) {
  return NotFound("there is no job " + std::to_string(id.value()));
}

}  // namespace meshwright::controller
