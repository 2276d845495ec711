#include "client/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>

#include "client/grpc/channel.h"
#include "proto/grpc_status.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::client {
namespace {

// A slow disk reads a part of a mebibyte in that time.
constexpr int64_t kReadMs = 60'000;

class GrpcCheckpoints final : public Checkpoints {
 public:
  explicit GrpcCheckpoints(const Client::Options& options)
      : token_(TokenOf(options)),
        timeout_ms_(options.timeout_ms),
        stub_(v1::CheckpointService::NewStub(MakeChannel(options))) {}

  Result<std::string> Root() override {
    MW_ASSIGN_OR_RETURN(const v1::ListCheckpointsReply reply, List(0));
    return reply.root();
  }

  Result<std::vector<int64_t>> Steps(int64_t job_id) override {
    MW_ASSIGN_OR_RETURN(const v1::ListCheckpointsReply reply, List(job_id));
    return std::vector<int64_t>(reply.steps().begin(), reply.steps().end());
  }

  Status Read(int64_t job_id, int64_t step, const std::string& file, int64_t offset,
              std::span<std::byte> into) override {
    v1::GetFileRequest request = RequestOf(job_id, step, file);
    request.set_offset(offset);
    request.set_count(static_cast<int64_t>(into.size()));
    size_t at = 0;
    MW_TRY(Get(request, [&](std::string_view bytes) {
      const size_t count = std::min(bytes.size(), into.size() - at);
      std::transform(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count),
                     into.begin() + static_cast<ptrdiff_t>(at),
                     [](char c) { return static_cast<std::byte>(c); });
      at += count;
    }));
    if (at == into.size()) return OkStatus();
    return DataLoss(fmt::format("{}: {} of {} bytes came", file, at, into.size()));
  }

  Result<std::string> ReadAll(int64_t job_id, int64_t step, const std::string& file) override {
    v1::GetFileRequest request = RequestOf(job_id, step, file);
    request.set_count(-1);
    std::string all;
    MW_TRY(Get(request, [&](std::string_view bytes) { all += bytes; }));
    return all;
  }

  Status Remove(int64_t job_id, int64_t step) override {
    grpc::ClientContext context;
    Prepare(context, kReadMs);  // of many files
    v1::RemoveCheckpointRequest request;
    request.set_job_id(job_id);
    request.set_step(step);
    v1::RemoveCheckpointReply reply;
    return proto::FromGrpc(stub_->Remove(&context, request, &reply));
  }

 private:
  static v1::GetFileRequest RequestOf(int64_t job_id, int64_t step, const std::string& file) {
    v1::GetFileRequest request;
    request.set_job_id(job_id);
    request.set_step(step);
    request.set_name(file);
    return request;
  }

  void Prepare(grpc::ClientContext& context, int64_t timeout_ms) const {
    AddToken(context, token_);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
  }

  Result<v1::ListCheckpointsReply> List(int64_t job_id) {
    grpc::ClientContext context;
    Prepare(context, timeout_ms_);
    v1::ListCheckpointsRequest request;
    request.set_job_id(job_id);
    v1::ListCheckpointsReply reply;
    MW_TRY(proto::FromGrpc(stub_->List(&context, request, &reply)));
    return reply;
  }

  Status Get(const v1::GetFileRequest& request, const std::function<void(std::string_view)>& take) {
    grpc::ClientContext context;
    Prepare(context, kReadMs);
    const auto stream = stub_->Get(&context, request);
    v1::FileChunk chunk;
    while (stream->Read(&chunk)) take(chunk.data());
    return proto::FromGrpc(stream->Finish());
  }

  const std::string token_;
  const int64_t timeout_ms_;
  const std::unique_ptr<v1::CheckpointService::Stub> stub_;
};

}  // namespace

std::unique_ptr<Checkpoints> Checkpoints::Connect(const Client::Options& options) {
  return std::make_unique<GrpcCheckpoints>(options);
}

}  // namespace meshwright::client
