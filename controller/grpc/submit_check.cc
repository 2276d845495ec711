#include "controller/grpc/submit_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "search/sharding_pins.h"

namespace meshwright::controller {
namespace {

// A file is a blob or below a root, else nobody could read it.
Status CheckFilesAreSomewhere(const ir::JobRequest& job) {
  for (const ir::DataStream& stream : job.data.streams) {
    for (const ir::FileRef& file : stream.files) {
      if (!file.empty()) continue;
      return InvalidArgument(
          fmt::format("the file '{}' of stream '{}' is neither uploaded nor below a data root",
                      file.blob.name, stream.name));
    }
  }
  return OkStatus();
}

// It stands in tables and labels, and is kept with every job.
Status CheckTool(const std::string& tool) {
  constexpr size_t kMostBytes = 32;
  const bool plain = std::all_of(tool.begin(), tool.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (plain && tool.size() <= kMostBytes) return OkStatus();
  return InvalidArgument(
      fmt::format("tool must have at most {} characters, which are small letters, digits and '-', "
                  "as in \"generate\"",
                  kMostBytes));
}

}  // namespace

Status CheckSubmission(const Submission& submission, BlobStore& blobs) {
  const ir::JobRequest& job = submission.job;
  if (submission.op_id.empty() || submission.op_id.size() > 128) {
    return InvalidArgument("op_id must have 1 to 128 characters");
  }
  MW_TRY(CheckTool(submission.tool));
  MW_TRY(search::CheckJob(job));
  for (const ir::BlobRef& blob : ir::BlobsOf(job)) {
    const std::optional<int64_t> size = blobs.Find(blob.sha256);
    if (!size) {
      return FailedPrecondition(
          fmt::format("'{}' (sha256 {}) is not on the controller; upload it before submitting",
                      blob.name, blob.sha256));
    }
    if (*size != blob.size_bytes && !blobs.Verify(blob.sha256)) {
      return FailedPrecondition(
          fmt::format("'{}' (sha256 {}) was damaged on the controller; upload it again", blob.name,
                      blob.sha256));
    }
    if (*size != blob.size_bytes) {
      return InvalidArgument(
          fmt::format("'{}' (sha256 {}) has {} bytes, the request says {}; submit the size of the "
                      "file that was uploaded",
                      blob.name, blob.sha256, *size, blob.size_bytes));
    }
  }
  if (job.data.streams.empty() && job.data.blob.sha256.empty() && ir::ReadsData(job)) {
    return InvalidArgument(
        "job.data.blob is empty: the job has no data, but its programs read some");
  }
  return CheckFilesAreSomewhere(job);
}

}  // namespace meshwright::controller
