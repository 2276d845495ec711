// The room on a disk, as metrics.
//
// Thread rule: thread-safe.
#pragma once

#include <string>

#include "base/metrics.h"

namespace meshwright {

// Sets meshwright_disk_bytes and meshwright_disk_available_bytes {use} to those of the file system
// of `folder`; where it does not answer, nothing.
void SetDiskMetrics(MetricsRegistry& registry, const std::string& use, const std::string& folder);

}  // namespace meshwright
