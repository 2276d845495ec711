#include "controller/checkpoint_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "checkpoint/folder.h"
#include "controller/driver.h"
#include "proto/job_codec.h"

namespace meshwright::controller {
namespace {

// Letters of a job's name that are one part of a path, whatever the file system.
std::string FolderName(std::string name) {
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    if (!plain) c = '_';
  }
  return name;
}

}  // namespace

ir::FolderRef CheckpointFolderOf(const ir::JobRequest& request, int64_t job_id) {
  if (!request.checkpoint.enable) return {};
  ir::FolderRef folder = request.checkpoint.folder;
  if (folder.path.empty()) folder.path = fmt::format("{}/{}", FolderName(request.name), job_id);
  return folder;
}

CheckpointOrder MakeCheckpointOrder(const ir::JobRequest& request, int64_t job_id,
                                    const ir::FolderRef& folder, const std::string& layout,
                                    const ir::StartPoint& start) {
  CheckpointOrder order;
  order.start = start;
  if (!request.checkpoint.enable) return order;
  order.folder = folder;
  // A checkpoint is in its folder before it is on record: the one before it is not deleted yet.
  const int64_t keep = request.checkpoint.keep_latest_k;
  order.keep = keep == 0 ? 0 : std::max<int64_t>(2, keep);
  order.head.seed = request.train.seed;
  order.head.job_id = job_id;
  order.head.job_name = request.name;
  order.head.layout = layout;
  order.job = proto::EncodeJob(request);
  if (request.checkpoint.last_save_in_hf) {
    order.export_dtype = ir::DTypeName(request.checkpoint.export_dtype);
  }
  return order;
}

SaveRequest MakeSaveRequest(const CheckpointOrder& order, uint64_t mesh_gen, LaunchSeq seq,
                            int64_t step, const std::string& cause, int64_t unix_ms) {
  SaveRequest request;
  request.save = seq;
  request.step = step;
  request.folder = order.folder;
  // No other save writes there, of whatever generation.
  request.temporary = fmt::format("{}-{}", checkpoint::TemporaryName(step, mesh_gen), seq.value());
  request.head = order.head;
  request.head.step = step;
  request.head.saved_unix_ms = unix_ms;
  request.head.cause = cause;
  request.job = order.job;
  request.keep = order.keep;
  const bool ends =
      cause == SaveCauseName(SaveCause::kEnd) || cause == SaveCauseName(SaveCause::kBestEnd);
  if (ends) request.export_dtype = order.export_dtype;
  return request;
}

}  // namespace meshwright::controller
