#include "client/inspector.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "client/grpc/channel.h"
#include "proto/convert_logs.h"
#include "proto/grpc_status.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::client {
namespace {

class GrpcInspector final : public Inspector {
 public:
  explicit GrpcInspector(const Client::Options& options)
      : address_(AddressOf(options)),
        token_(TokenOf(options)),
        timeout_ms_(options.timeout_ms),
        channel_(MakeChannel(options)),
        jobs_(v1::JobService::NewStub(channel_)),
        admin_(v1::AdminService::NewStub(channel_)) {}

  Result<std::string> Hang(int64_t job_id, bool json) override {
    v1::HangRequest request;
    request.set_job_id(job_id);
    request.set_json(json);
    v1::HangReply reply;
    MW_TRY(
        Call([&](grpc::ClientContext* context) { return jobs_->Hang(context, request, &reply); }));
    return reply.text();
  }

  Result<LogText> Log(const LogAsk& ask) override {
    v1::WorkerLogRequest request;
    request.set_worker(ask.worker);
    *request.mutable_what() = proto::Encode(ask.what);
    request.set_kept(ask.kept);
    v1::WorkerLogReply reply;
    MW_TRY(Call(
        [&](grpc::ClientContext* context) { return admin_->WorkerLog(context, request, &reply); }));
    return LogText{reply.text(), reply.next(), reply.end(), reply.live(), reply.note()};
  }

  Result<ControllerState> State() override {
    v1::StateReply reply;
    MW_TRY(Call([&](grpc::ClientContext* context) { return admin_->State(context, {}, &reply); }));
    return ControllerState{reply.cluster_id(), reply.version(), reply.unix_ms()};
  }

  Result<std::string> Metrics() override {
    v1::MetricsReply reply;
    MW_TRY(
        Call([&](grpc::ClientContext* context) { return admin_->Metrics(context, {}, &reply); }));
    return reply.text();
  }

 private:
  template <typename Rpc>
  Status Call(const Rpc& rpc) const {
    grpc::ClientContext context;
    AddToken(context, token_);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms_));
    const Status status = proto::FromGrpc(rpc(&context));
    if (status.code() == StatusCode::kDeadlineExceeded) {
      return DeadlineExceeded(
          fmt::format("the controller at {} did not answer within {} ms", address_, timeout_ms_));
    }
    if (status.code() == StatusCode::kUnavailable) {
      return Unavailable(
          fmt::format("no controller answers at {} ({}); start one with "
                      "`meshwright up`, or name it with --address",
                      address_, status.message()));
    }
    if (status.code() == StatusCode::kUnimplemented) {
      return Unimplemented(fmt::format("the controller at {} is older than this program: {}",
                                       address_, status.message()));
    }
    return status;
  }

  const std::string address_;
  const std::string token_;
  const int64_t timeout_ms_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::AdminService::Stub> admin_;
};

}  // namespace

Result<std::unique_ptr<Inspector>> Inspector::Make(const Client::Options& options) {
  return std::unique_ptr<Inspector>(std::make_unique<GrpcInspector>(options));
}

}  // namespace meshwright::client
