// A JobRequest as bytes, for the store and for hashing: the wire form, without its headers.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::proto {

std::string EncodeJob(const ir::JobRequest& job);
// Errors: kDataLoss when the bytes are not a job; those of the graph parser.
Result<ir::JobRequest> DecodeJob(std::string_view bytes);

// True for 64 lower-case hex digits.
bool IsSha256Hex(std::string_view text);

}  // namespace meshwright::proto
