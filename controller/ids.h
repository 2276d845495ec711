// The ids by which the control core names who speaks to it. Thread rule: values.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace meshwright::controller {

using SessionId = Id<struct SessionTag, uint64_t>;  // one stream of a worker
using CallId = Id<struct CallTag, uint64_t>;        // one call of a client, until it is answered

}  // namespace meshwright::controller
