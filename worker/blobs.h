// Where the parts of a mesh get files of jobs that come as blobs: the worker's cache
// (worker/blob_cache.h), or in an executor its supervisor's.
//
// Thread rule: thread-safe.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::worker {

class Blobs {
 public:
  virtual ~Blobs() = default;
  // The file that holds the blob. `cancelled` is asked between chunks and while waiting for another
  // fetch of the same blob.
  // Errors: kNotFound, kDataLoss when the bytes are not those named, kCancelled,
  // kResourceExhausted.
  virtual Result<std::string> Path(const ir::BlobRef& blob,
                                   const std::function<bool()>& cancelled) = 0;
  // The bytes themselves, for small blobs.
  Result<std::string> Read(const ir::BlobRef& blob, const std::function<bool()>& cancelled);
};

}  // namespace meshwright::worker
