#include "controller/grpc/rpc_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "base/unique_fd.h"
#include "controller/grpc/blob_service.h"
#include "controller/grpc/job_service.h"
#include "controller/grpc/worker_service.h"

namespace meshwright::controller {
namespace {

Status PortInUse(const std::string& bind, int port) {
  return Unavailable(
      fmt::format("port {} of {} is in use or may not be opened; stop the other controller, or "
                  "choose another --port (0 picks one)",
                  port, bind));
}

// Asks before gRPC does, which would print its own view of the failure first.
Status CheckPortFree(const std::string& bind, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (port == 0 || ::inet_pton(AF_INET, bind.c_str(), &address.sin_addr) != 1) return OkStatus();
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  (void)::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int rc = ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  return rc == 0 ? OkStatus() : PortInUse(bind, port);
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
    MW_TRY(CheckPortFree(bind, port));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(fmt::format("{}:{}", bind, port), grpc::InsecureServerCredentials(),
                             &port_);
    // Two controllers on one port would share its connections.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
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
      return PortInUse(bind, port);
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
