// BlobService: files by hash, and the tiles of weights. Synchronous: these calls move bytes to and
// from disk, each on a thread of its own. Requests are read by the handlers, so that a stranger's
// is not read at all, and none is waited for longer than the limits say.
#pragma once

#include <string>

#include "controller/grpc/late_service.h"
#include "controller/weights_sink.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::controller {

class BlobServiceImpl final : public v1::BlobService::StreamedService {
 public:
  using HasStream = grpc::ServerUnaryStreamer<v1::HasBlobRequest, v1::HasBlobReply>;
  using GetStream = grpc::ServerSplitStreamer<v1::GetBlobRequest, v1::BlobChunk>;

  BlobServiceImpl(CallParts parts, WeightsSink* weights)
      : parts_(std::move(parts)), weights_(weights) {}
  grpc::Status StreamedHas(grpc::ServerContext* context, HasStream* stream) override;
  grpc::Status Put(grpc::ServerContext* context, grpc::ServerReader<v1::PutBlobChunk>* reader,
                   v1::PutBlobReply* reply) override;
  grpc::Status StreamedGet(grpc::ServerContext* context, GetStream* stream) override;
  grpc::Status PutTiles(grpc::ServerContext* context, grpc::ServerReader<v1::TileChunk>* reader,
                        v1::PutTilesReply* reply) override;

 private:
  Status Admit(const grpc::ServerContext& context, const char* path) const;
  Status HasBlob(grpc::ServerContext& context, HasStream& stream);
  Status PutBlob(grpc::ServerContext& context, grpc::ServerReader<v1::PutBlobChunk>& reader);
  Status GetBlob(grpc::ServerContext& context, GetStream& stream);
  Result<int64_t> PutAllTiles(grpc::ServerContext& context,
                              grpc::ServerReader<v1::TileChunk>& reader);

  CallParts parts_;
  WeightsSink* weights_;
};

}  // namespace meshwright::controller
