// BlobService: files by hash, and the tiles of weights. Synchronous: these calls move bytes to and
// from disk.
#pragma once

#include <string>

#include "controller/grpc/job_service.h"
#include "controller/weights_sink.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::controller {

class BlobServiceImpl final : public v1::BlobService::Service {
 public:
  BlobServiceImpl(CallParts parts, WeightsSink* weights)
      : parts_(std::move(parts)), weights_(weights) {}
  grpc::Status Has(grpc::ServerContext* context, const v1::HasBlobRequest* request,
                   v1::HasBlobReply* reply) override;
  grpc::Status Put(grpc::ServerContext* context, grpc::ServerReader<v1::PutBlobChunk>* reader,
                   v1::PutBlobReply* reply) override;
  grpc::Status Get(grpc::ServerContext* context, const v1::GetBlobRequest* request,
                   grpc::ServerWriter<v1::BlobChunk>* writer) override;
  grpc::Status PutTiles(grpc::ServerContext* context, grpc::ServerReader<v1::TileChunk>* reader,
                        v1::PutTilesReply* reply) override;

 private:
  Status PutBlob(grpc::ServerReader<v1::PutBlobChunk>& reader);
  Status GetBlob(const v1::GetBlobRequest& request, grpc::ServerWriter<v1::BlobChunk>& writer);
  Result<int64_t> PutAllTiles(grpc::ServerReader<v1::TileChunk>& reader);

  CallParts parts_;
  WeightsSink* weights_;
};

}  // namespace meshwright::controller
