// Converters of proto/resolve.proto, as those of proto/convert.h.
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "proto/job_file.h"
#include "proto/resolve.pb.h"

namespace meshwright::proto {

// Errors: kInvalidArgument naming a file whose path is not absolute.
Result<JobFile> Decode(const v1::ResolveRequest& wire);
v1::ResolveReply Encode(const ResolvedFile& resolved);

}  // namespace meshwright::proto
