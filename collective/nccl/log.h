// Where NCCL writes its log, and the end of it.
//
// NCCL reads NCCL_DEBUG and NCCL_DEBUG_FILE at its first call and writes to the standard output
// otherwise, which in a worker nobody reads.
//
// Thread rule: ConfigureLog() changes the environment: before other threads read it. LogTail() from
// any thread.
#pragma once

#include <cstdint>
#include <string>

namespace meshwright::collective::nccl {

// Sets what the user has not set, and returns the file's path, with NCCL's %h and %p (host and
// process) replaced. directory: empty for TMPDIR or /tmp.
std::string ConfigureLog(const std::string& directory = "");

// The last non-empty lines, at most `bytes`, joined by " | "; empty when there is no such file.
std::string LogTail(const std::string& path, int64_t bytes = 600);

}  // namespace meshwright::collective::nccl
