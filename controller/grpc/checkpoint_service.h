// CheckpointService: files of checkpoints that lie with the controller, in pieces. Synchronous, as
// BlobService: each call moves bytes to or from disk on a thread of its own, a chunk at a time, so
// that a slow disk slows its worker down and nobody else.
//
// A member of a mesh writes what is being saved of it, and reads its job's checkpoints and the one
// that the job started from; the control loop is asked which these are. Clients name a job.
#pragma once

#include <string>

#include "controller/checkpoint_store.h"
#include "controller/grpc/late_service.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::controller {

class CheckpointServiceImpl final : public v1::CheckpointService::StreamedService {
 public:
  using GetStream = grpc::ServerSplitStreamer<v1::GetFileRequest, v1::FileChunk>;
  using ListStream =
      grpc::ServerUnaryStreamer<v1::ListCheckpointsRequest, v1::ListCheckpointsReply>;
  using RemoveStream =
      grpc::ServerUnaryStreamer<v1::RemoveCheckpointRequest, v1::RemoveCheckpointReply>;

  CheckpointServiceImpl(CallParts parts, CheckpointStore* store)
      : parts_(std::move(parts)), store_(store) {}
  grpc::Status Put(grpc::ServerContext* context, grpc::ServerReader<v1::PutShardChunk>* reader,
                   v1::PutShardReply* reply) override;
  grpc::Status StreamedGet(grpc::ServerContext* context, GetStream* stream) override;
  grpc::Status StreamedList(grpc::ServerContext* context, ListStream* stream) override;
  grpc::Status StreamedRemove(grpc::ServerContext* context, RemoveStream* stream) override;

 private:
  // The work of one call, once it may be done.
  template <typename Work>
  grpc::Status Serve(grpc::ServerContext& context, const char* path, const char* method, Work work);
  Status PutShard(grpc::ServerContext& context, grpc::ServerReader<v1::PutShardChunk>& reader);
  template <typename Stream>
  Status GetFile(const v1::GetFileRequest& request, Stream& stream);
  Status ListSteps(grpc::ServerContext& context, ListStream& stream);
  template <typename Stream>
  Status RemoveStep(const v1::RemoveCheckpointRequest& request, Stream& stream);
  Result<MeshFiles> FilesOf(const v1::MeshKey& mesh);
  // Errors: kNotFound: there is no such job, or its checkpoints are elsewhere.
  Result<std::string> FolderOf(int64_t job);
  // The folder of the checkpoint that is asked for. Errors: those above; kPermissionDenied.
  Result<std::string> CheckpointOf(const v1::GetFileRequest& request);

  CallParts parts_;
  CheckpointStore* store_;
};

}  // namespace meshwright::controller
