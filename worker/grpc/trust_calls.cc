#include "worker/trust_calls.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "proto/grpc_status.h"
#include "proto/trust.grpc.pb.h"
#include "security/grpc/credentials.h"

namespace meshwright::worker {
namespace {

constexpr int64_t kCallMs = 10'000;

template <typename Request>
Result<NewCertificate> CallTrust(const std::string& address,
                                 const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                 const Request& request,
                                 grpc::Status (v1::TrustService::Stub::*method)(
                                     grpc::ClientContext*, const Request&, v1::CertificateReply*)) {
  grpc::ChannelArguments args;
  security::WantController(args);
  const auto stub =
      v1::TrustService::NewStub(grpc::CreateCustomChannel(address, credentials, args));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(kCallMs));
  v1::CertificateReply reply;
  const grpc::Status done = ((*stub).*method)(&context, request, &reply);
  if (!done.ok()) return Fail(proto::FromGrpc(done));
  return NewCertificate{reply.cert_pem(), reply.ca_pem()};
}

}  // namespace

Result<NewCertificate> CallJoin(const std::string& address, const std::string& ca_pem,
                                const JoinCall& call) {
  v1::JoinRequest request;
  request.set_token(call.token);
  request.set_name(call.name);
  request.set_request_pem(call.request_pem);
  return CallTrust(address, security::ChannelCredentialsBy(ca_pem), request,
                   &v1::TrustService::Stub::Join);
}

Result<NewCertificate> CallRenew(const std::string& address, const std::string& folder,
                                 const std::string& request_pem) {
  MW_ASSIGN_OR_RETURN(const auto credentials, security::ChannelCredentialsOf(folder));
  v1::RenewRequest request;
  request.set_request_pem(request_pem);
  return CallTrust(address, credentials, request, &v1::TrustService::Stub::Renew);
}

}  // namespace meshwright::worker
