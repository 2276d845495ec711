#include "controller/grpc/rpc_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "base/listen_address.h"
#include "controller/grpc/blob_service.h"
#include "controller/grpc/job_service.h"
#include "controller/grpc/worker_service.h"

namespace meshwright::controller {
namespace {

// Asks before gRPC does, which knows no other failure than "in use".
Status CheckAddress(const std::string& bind, int port) {
  const Status status = ProbeListen(bind, port);
  if (status.code() != StatusCode::kAlreadyExists) return status;
  return Unavailable(
      fmt::format("port {} of {} is in use; stop the other controller, or choose another --port (0 "
                  "picks one)",
                  port, bind));
}

class GrpcServer final : public RpcServer {
 public:
  explicit GrpcServer(const RpcParts& parts)
      : worker_(parts.loop, parts.token),
        job_(Calls(parts)),
        log_(Calls(parts)),
        admin_(Calls(parts)),
        blob_(Calls(parts), parts.weights) {}
  ~GrpcServer() override { Shutdown(); }

  Status Listen(const std::string& bind, int port) {
    MW_TRY(CheckAddress(bind, port));
    grpc::ServerBuilder builder;
    const std::string address = FormatHostPort(bind, port);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    // Two controllers on one port would share its connections.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    // No pings without calls: a client that is busy elsewhere would not answer them and lose its
    // connection.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
    builder.SetMaxReceiveMessageSize(static_cast<int>(proto::kMaxMessageBytes));
    builder.RegisterService(&worker_);
    builder.RegisterService(&job_);
    builder.RegisterService(&log_);
    builder.RegisterService(&admin_);
    builder.RegisterService(&blob_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      server_.reset();
      return Unavailable(fmt::format(
          "cannot listen on {}; choose another --bind or --port (0 picks one)", address));
    }
    return OkStatus();
  }

  int port() const override { return port_; }

  void Shutdown() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
    server_.reset();
  }

 private:
  static CallParts Calls(const RpcParts& parts) {
    return CallParts{parts.loop, parts.blobs, parts.metrics, parts.token};
  }

  WorkerServiceImpl worker_;
  JobServiceImpl job_;
  LogServiceImpl log_;
  AdminServiceImpl admin_;
  BlobServiceImpl blob_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace

Result<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& bind, int port,
                                                    RpcParts parts) {
  auto server = std::make_unique<GrpcServer>(parts);
  MW_TRY(server->Listen(bind, port));
  return std::unique_ptr<RpcServer>(std::move(server));
}

}  // namespace meshwright::controller
