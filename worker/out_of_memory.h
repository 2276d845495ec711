// Whether the kernel has killed a process of this control group for want of memory: the group's own
// count of such kills (cgroup v2, memory.events), before and after.
//
// Thread rule: pure functions over files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace meshwright::worker {

// Kills in the control group of this process and below it; none: there is no such count to read.
// proc, cgroups: where these file systems are.
std::optional<int64_t> OutOfMemoryKills(const std::string& proc = "/proc",
                                        const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace meshwright::worker
