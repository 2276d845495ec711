#include "controller/grpc/rpc_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "controller/grpc/acceptor.h"
#include "controller/grpc/blob_service.h"
#include "controller/grpc/checkpoint_service.h"
#include "controller/grpc/job_file_service.h"
#include "controller/grpc/job_service.h"
#include "controller/grpc/trust_service.h"
#include "controller/grpc/worker_service.h"
#include "security/grpc/credentials.h"

namespace meshwright::controller {
namespace {

Result<std::unique_ptr<Acceptor>> ListenOn(const std::string& bind, int port,
                                           int64_t max_connections) {
  auto acceptor = Acceptor::Listen(bind, port, max_connections);
  if (acceptor.has_value() || acceptor.error().code() != StatusCode::kAlreadyExists) {
    return acceptor;
  }
  return Fail(Unavailable(
      fmt::format("port {} of {} is in use; stop the other controller, or choose another --port (0 "
                  "picks one)",
                  port, bind)));
}

class GrpcServer final : public RpcServer {
 public:
  explicit GrpcServer(const RpcParts& parts)
      : limits_(parts.limits),
        local_path_(parts.local_path),
        tls_dir_(parts.tls_dir),
        access_(parts.access, parts.audit),
        worker_(parts.loop, parts.logs, &access_),
        job_(Calls(parts)),
        log_(Calls(parts)),
        admin_(Calls(parts)),
        blob_(Calls(parts), parts.weights),
        checkpoint_(Calls(parts), parts.checkpoints),
        job_file_(Calls(parts), parts.resolve),
        trust_(Calls(parts), parts.trust) {}
  ~GrpcServer() override { Shutdown(); }

  Status Listen(const std::string& bind, int port) {
    MW_ASSIGN_OR_RETURN(auto acceptor, ListenOn(bind, port, limits_.max_connections));
    MW_ASSIGN_OR_RETURN(auto credentials, CredentialsOfPort());
    acceptors_.push_back(std::move(acceptor));
    if (!local_path_.empty()) ListenLocally();
    grpc::ServerBuilder builder;
    const auto take = [&builder](std::shared_ptr<grpc::ServerCredentials> how) {
      return builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, std::move(how));
    };
    from_port_ = take(std::move(credentials));
    // Its owner alone can open the socket of the file system: nothing is to be shown there.
    from_path_ = take(grpc::InsecureServerCredentials());
    SetLimits(builder);
    builder.RegisterService(&worker_);
    builder.RegisterService(&job_);
    builder.RegisterService(&log_);
    builder.RegisterService(&admin_);
    builder.RegisterService(&blob_);
    builder.RegisterService(&checkpoint_);
    builder.RegisterService(&job_file_);
    builder.RegisterService(&trust_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return Internal("gRPC did not start its server; see stderr");
    for (size_t i = 0; i < acceptors_.size(); ++i) {
      const auto& into = i == 0 ? from_port_ : from_path_;
      acceptors_[i]->Start([&into](UniqueFd connection) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
        taken.fd = connection.Release();
        into->HandleNewConnection(&taken);
      });
    }
    return OkStatus();
  }

  int port() const override { return acceptors_.empty() ? 0 : acceptors_[0]->port(); }
  Status Health() const override {
    for (const auto& acceptor : acceptors_) MW_TRY(acceptor->Health());
    return OkStatus();
  }

  void Shutdown() override {
    if (server_ == nullptr) return;
    for (const auto& acceptor : acceptors_) acceptor->Stop();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
    server_.reset();
  }

 private:
  CallParts Calls(const RpcParts& parts) {
    return CallParts{parts.loop,   parts.blobs, parts.metrics, &access_,      &deadlines_,
                     parts.limits, parts.story, parts.logs,    parts.own_log, parts.registry};
  }

  Result<std::shared_ptr<grpc::ServerCredentials>> CredentialsOfPort() const {
    if (tls_dir_.empty()) return grpc::InsecureServerCredentials();
    return security::ServerCredentialsOf(tls_dir_);
  }

  // The port is enough where the file system has no sockets.
  void ListenLocally() {
    auto acceptor = Acceptor::ListenLocal(local_path_, limits_.max_connections);
    if (acceptor.has_value()) return acceptors_.push_back(std::move(*acceptor));
    LogWarn(fmt::format("processes of this host come by the port only: {}",
                        acceptor.error().message()));
  }

  void SetLimits(grpc::ServerBuilder& builder) const {
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    // No pings without calls: a client that is busy elsewhere would not answer them and lose its
    // connection.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
    const auto set = [&builder](const char* name, int64_t value) {
      builder.AddChannelArgument(name, static_cast<int>(value));
    };
    set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, limits_.handshake_ms);
    set(GRPC_ARG_MAX_CONNECTION_IDLE_MS, limits_.idle_connection_ms);
    set(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits_.max_streams);
    builder.SetMaxReceiveMessageSize(static_cast<int>(proto::kMaxMessageBytes));
    grpc::ResourceQuota quota("meshwright");
    quota.Resize(static_cast<size_t>(limits_.rpc_memory_bytes));
    quota.SetMaxThreads(limits_.max_call_threads);
    builder.SetResourceQuota(quota);
  }

  const Limits limits_;
  const std::string local_path_;
  const std::string tls_dir_;
  const Access access_;
  CallDeadlines deadlines_;
  WorkerServiceImpl worker_;
  JobServiceImpl job_;
  LogServiceImpl log_;
  AdminServiceImpl admin_;
  BlobServiceImpl blob_;
  CheckpointServiceImpl checkpoint_;
  JobFileServiceImpl job_file_;
  TrustServiceImpl trust_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  // of the port, then of the path
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> from_port_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> from_path_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& bind, int port,
                                                    RpcParts parts) {
  auto server = std::make_unique<GrpcServer>(parts);
  MW_TRY(server->Listen(bind, port));
  return std::unique_ptr<RpcServer>(std::move(server));
}

}  // namespace meshwright::controller
