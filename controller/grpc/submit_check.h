// What a submission must have before the core hears of it.
//
// Thread rule: pure functions but for blobs, which are put aside where they are damaged.
#pragma once

#include "base/result.h"
#include "controller/blob_store.h"
#include "controller/events.h"

namespace meshwright::controller {

// Errors: kInvalidArgument naming the field; kFailedPrecondition: a file that is to be uploaded
// first.
Status CheckSubmission(const Submission& submission, BlobStore& blobs);

}  // namespace meshwright::controller
