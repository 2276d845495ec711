// What a submission must have before the core hears of it.
//
// Thread rule: pure functions but for blobs, which are put aside where they are damaged.
#pragma once

#include <string>

#include "base/result.h"
#include "controller/blob_store.h"
#include "ir/job.h"

namespace meshwright::controller {

// Errors: kInvalidArgument naming the field; kFailedPrecondition: a file that is to be uploaded
// first.
Status CheckSubmission(const std::string& op_id, const ir::JobRequest& job, BlobStore& blobs);

}  // namespace meshwright::controller
