#include "controller/grpc/checkpoint_service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/os_error.h"
#include "controller/await.h"
#include "controller/grpc/call_guard.h"
#include "controller/grpc/timed_stream.h"
#include "proto/convert.h"

namespace meshwright::controller {

namespace {

// Of a file that is being written: a worker whose bytes wait for the disk does not take it for
// gone.
constexpr size_t kMostDirtyBytes = size_t{128} << 20;

}  // namespace

template <typename Work>
grpc::Status CheckpointServiceImpl::Serve(grpc::ServerContext& context, const char* path,
                                          const char* method, Work work) {
  const CallTimer timer(parts_.metrics, "checkpoint", method);
  const auto caller = CheckCall(context, *parts_.access, path);
  if (!caller.has_value()) return timer.Done(caller.error());
  const Status status = work();
  parts_.access->Answered(path, *caller, "", status);
  return timer.Done(status);
}

Result<MeshFiles> CheckpointServiceImpl::FilesOf(const v1::MeshKey& mesh) {
  return Await<MeshFiles>([&](auto done) {
    const auto see = [gen = MeshGeneration(mesh.mesh_gen()), key = mesh.key()](const Core& core) {
      return core.FilesOf(gen, key);
    };
    LookAt<MeshFiles>(*parts_.loop, see, std::move(done));
  });
}

Result<std::string> CheckpointServiceImpl::FolderOf(int64_t job) {
  MW_ASSIGN_OR_RETURN(const proto::JobInfo info, Await<proto::JobInfo>([&](auto done) {
                        parts_.loop->Get(job, std::move(done));
                      }));
  if (info.checkpoint_folder.at_controller()) return info.checkpoint_folder.path;
  return Fail(NotFound(fmt::format("job {} keeps no checkpoints with the controller", job)));
}

// ---- Writing ------------------------------------------------------------------------------------

grpc::Status CheckpointServiceImpl::Put(grpc::ServerContext* context,
                                        grpc::ServerReader<v1::PutShardChunk>* reader,
                                        v1::PutShardReply*) {
  return Serve(*context, "/meshwright.v1.CheckpointService/Put", "put",
               [&] { return PutShard(*context, *reader); });
}

Status CheckpointServiceImpl::PutShard(grpc::ServerContext& context,
                                       grpc::ServerReader<v1::PutShardChunk>& reader) {
  TimedStream stream(reader, parts_, context, parts_.limits.upload_idle_ms);
  v1::PutShardChunk chunk;
  if (!stream.Read(&chunk)) return InvalidArgument("a shard without a first chunk");
  MW_ASSIGN_OR_RETURN(const MeshFiles files, FilesOf(chunk.mesh()));
  // Another generation's save, or another job's folder, is none of its business.
  const bool own =
      files.folder.at_controller() && files.folder.path == chunk.folder() &&
      chunk.temporary().find(fmt::format(".tmp-{}-", files.gen.value())) != std::string::npos;
  if (!own) {
    return PermissionDenied(fmt::format("mesh generation {} does not write to {}/{}",
                                        files.gen.value(), chunk.folder(), chunk.temporary()));
  }
  const std::string folder = chunk.folder();
  const std::string temporary = chunk.temporary();
  const auto write = [&]() -> Status {
    MW_ASSIGN_OR_RETURN(checkpoint::ShardWriter writer,
                        store_->Create(folder, temporary, chunk.name(), chunk.size_bytes()));
    size_t dirty_bytes = 0;
    do {
      MW_TRY(writer.Append(chunk.data()));
      dirty_bytes += chunk.data().size();
      if (dirty_bytes < kMostDirtyBytes) continue;
      MW_TRY(writer.Sync());
      dirty_bytes = 0;
    } while (stream.Read(&chunk));
    MW_TRY(stream.End());
    return writer.Finish();
  };
  const Status written = write();
  if (!written.ok()) store_->Discard(folder, temporary);
  return written;
}

// ---- Reading ------------------------------------------------------------------------------------

namespace {

constexpr const char* kGet = "/meshwright.v1.CheckpointService/Get";
// Who may look sees which tensors there are, and none of them.
constexpr const char* kGetManifest = "/meshwright.v1.CheckpointService/Get manifest";

}  // namespace

grpc::Status CheckpointServiceImpl::StreamedGet(grpc::ServerContext* context, GetStream* stream) {
  const CallTimer timer(parts_.metrics, "checkpoint", "get");
  const Limits& limits = parts_.limits;
  Admission admission = AdmitCall(*context, *parts_.access, kGet);
  if (!admission.known) return timer.Done(admission.refusal);
  const bool may = admission.refusal.ok();
  TimedStream timed(*stream, parts_, *context, may ? limits.upload_idle_ms : limits.request_ms);
  v1::GetFileRequest request;
  const bool read = timed.Read(&request);
  const bool looks = !may && read && request.name() == checkpoint::kManifestName;
  const char* const path = looks ? kGetManifest : kGet;
  if (looks) admission = AdmitCall(*context, *parts_.access, path);
  if (!admission.known) return timer.Done(admission.refusal);  // its token is another one by now
  if (!admission.refusal.ok()) {
    parts_.access->Refused(path, admission, read ? AuditDetail(request) : "");
    return timer.Done(admission.refusal);
  }
  if (!read) return timer.Done(Cancelled("the request did not come whole"));
  const Status status = GetFile(request, timed);
  parts_.access->Answered(path, admission.caller, "", status);
  return timer.Done(status);
}

Result<std::string> CheckpointServiceImpl::CheckpointOf(const v1::GetFileRequest& request) {
  if (request.who_case() == v1::GetFileRequest::kJobId) {
    MW_ASSIGN_OR_RETURN(const std::string folder, FolderOf(request.job_id()));
    return folder + "/" + checkpoint::StepName(request.step());
  }
  MW_ASSIGN_OR_RETURN(const MeshFiles files, FilesOf(request.mesh()));
  const std::string& wanted = request.checkpoint();
  const bool start = files.start.at_controller() && files.start.path == wanted;
  const std::string below = files.folder.path + "/";
  const bool own = files.folder.at_controller() && wanted.starts_with(below) &&
                   checkpoint::StepOfName(wanted.substr(below.size())).has_value();
  if (start || own) return wanted;
  return Fail(PermissionDenied(
      fmt::format("mesh generation {} does not read {}", files.gen.value(), wanted)));
}

template <typename Stream>
Status CheckpointServiceImpl::GetFile(const v1::GetFileRequest& request, Stream& stream) {
  MW_ASSIGN_OR_RETURN(const std::string folder, CheckpointOf(request));
  MW_ASSIGN_OR_RETURN(const CheckpointStore::OpenFile file,
                      store_->OpenToRead(folder, request.name()));
  int64_t offset = request.offset();
  const int64_t rest = file.bytes - offset;
  const int64_t count = request.count() < 0 ? rest : request.count();
  if (offset < 0 || rest < 0 || count > rest) {
    return DataLoss(fmt::format("{} has {} bytes, and {} from {} on are asked for", file.path,
                                file.bytes, count, offset));
  }
  const int64_t end = offset + count;
  v1::FileChunk chunk;
  while (offset < end) {
    const auto want = static_cast<size_t>(std::min(proto::kChunkBytes, end - offset));
    chunk.mutable_data()->resize(want);
    const ssize_t got = ::pread(file.fd.get(), chunk.mutable_data()->data(), want, offset);
    if (got < 0) return OsError(errno, file.path);
    if (static_cast<size_t>(got) != want) {
      return DataLoss(fmt::format("{} became shorter", file.path));
    }
    if (!stream.Write(chunk)) return Cancelled("the reader went away");
    offset += got;
  }
  return OkStatus();
}

// ---- What clients do besides --------------------------------------------------------------------

grpc::Status CheckpointServiceImpl::StreamedList(grpc::ServerContext* context, ListStream* stream) {
  return Serve(*context, "/meshwright.v1.CheckpointService/List", "list",
               [&] { return ListSteps(*context, *stream); });
}

Status CheckpointServiceImpl::ListSteps(grpc::ServerContext& context, ListStream& raw) {
  v1::ListCheckpointsRequest request;
  TimedStream stream(raw, parts_, context, parts_.limits.request_ms);
  if (!stream.Read(&request)) return Cancelled("the request did not come whole");
  v1::ListCheckpointsReply reply;
  reply.set_root(store_->root());
  if (request.job_id() != 0) {
    MW_ASSIGN_OR_RETURN(const std::string folder, FolderOf(request.job_id()));
    MW_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, store_->Steps(folder));
    for (const int64_t step : steps) reply.add_steps(step);
  }
  stream.Write(reply);
  return OkStatus();
}

grpc::Status CheckpointServiceImpl::StreamedRemove(grpc::ServerContext* context,
                                                   RemoveStream* stream) {
  constexpr const char* kPath = "/meshwright.v1.CheckpointService/Remove";
  const CallTimer timer(parts_.metrics, "checkpoint", "remove");
  const Admission admission = AdmitCall(*context, *parts_.access, kPath);
  if (!admission.known) return timer.Done(admission.refusal);
  TimedStream timed(*stream, parts_, *context, parts_.limits.request_ms);
  v1::RemoveCheckpointRequest request;
  const bool read = timed.Read(&request);
  const std::string on = read ? AuditDetail(request) : "";
  if (!admission.refusal.ok()) {
    parts_.access->Refused(kPath, admission, on);
    return timer.Done(admission.refusal);
  }
  const Status status =
      read ? RemoveStep(request, timed) : Cancelled("the request did not come whole");
  parts_.access->Answered(kPath, admission.caller, on, status);
  return timer.Done(status);
}

template <typename Stream>
Status CheckpointServiceImpl::RemoveStep(const v1::RemoveCheckpointRequest& request,
                                         Stream& stream) {
  MW_ASSIGN_OR_RETURN(const std::string folder, FolderOf(request.job_id()));
  MW_TRY(store_->Remove(folder, request.step()));
  stream.Write(v1::RemoveCheckpointReply());
  return OkStatus();
}

}  // namespace meshwright::controller
