// gRPC's credentials from identities, and who the other side of a call is.
//
// Both sides show a certificate of one authority. A client wants one of a controller
// (kControllerName), wherever it reaches it; a server asks for one and checks it when it comes, so
// that a call without one can still show a token. Files are looked at every few seconds: a new
// certificate counts for connections from then on, and those that are there stay.
//
// Thread rule: thread-safe.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "security/subject.h"

namespace meshwright::security {

// Of an identity's folder, which may have ca.pem alone where a token says who one is; "": in the
// clear. Errors: those of LoadTlsIdentity.
Result<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(const std::string& folder);
// Of who has no certificate yet.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsBy(const std::string& ca_pem);
// Has channels with such credentials want a controller. REQUIRES: they are not in the clear.
void WantController(grpc::ChannelArguments& arguments);

// Errors: those of LoadTlsIdentity.
Result<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(const std::string& folder);

struct Peer {
  bool over_tls = false;
  std::optional<Subject> subject;  // of its certificate, which the authority signed
  std::string address;             // "ipv4:10.0.0.2:40312"
};
Peer PeerOf(const grpc::ServerContextBase& context);

}  // namespace meshwright::security
