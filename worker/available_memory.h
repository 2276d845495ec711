// How much memory a host's process can still take.
//
// Thread rule: pure functions over files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace meshwright::worker {

// What the machine has available, or what the control group (version 2) of this process leaves, if
// that is less. Nothing: not known. proc, cgroups: where the kernel shows it.
std::optional<int64_t> AvailableMemoryBytes(const std::string& proc = "/proc",
                                            const std::string& cgroups = "/sys/fs/cgroup");

// All that there is of it, used or not: of the machine, or what the group allows, if that is less.
std::optional<int64_t> WholeMemoryBytes(const std::string& proc = "/proc",
                                        const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace meshwright::worker
