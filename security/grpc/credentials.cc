#include "security/grpc/credentials.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "base/file.h"
#include "base/tls_identity.h"
#include "security/places.h"

namespace meshwright::security {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

constexpr unsigned int kLookS = 2;

std::shared_ptr<FileWatcherCertificateProvider> Watch(const std::string& folder) {
  return std::make_shared<FileWatcherCertificateProvider>(folder + "/key.pem", folder + "/cert.pem",
                                                          folder + "/ca.pem", kLookS);
}

}  // namespace

Result<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(const std::string& folder) {
  if (folder.empty()) return grpc::InsecureChannelCredentials();
  if (HasOnlyAuthority(folder)) {
    MW_ASSIGN_OR_RETURN(const std::string ca_pem, ReadFile(folder + "/ca.pem"));
    return ChannelCredentialsBy(ca_pem);
  }
  MW_TRY(LoadTlsIdentity(folder));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(folder));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsBy(const std::string& ca_pem) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ca_pem;
  return grpc::SslCredentials(options);
}

void WantController(grpc::ChannelArguments& arguments) {
  arguments.SetSslTargetNameOverride(kControllerName);
}

Result<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(const std::string& folder) {
  MW_TRY(LoadTlsIdentity(folder));
  grpc::experimental::TlsServerCredentialsOptions options(Watch(folder));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

Peer PeerOf(const grpc::ServerContextBase& context) {
  Peer peer;
  peer.address = context.peer();
  const auto seen = context.auth_context();
  if (seen == nullptr) return peer;
  for (const grpc::string_ref& kind : seen->FindPropertyValues("transport_security_type")) {
    peer.over_tls = kind == "ssl" || kind == "tls";
  }
  if (!peer.over_tls || !seen->IsPeerAuthenticated()) return peer;
  for (const grpc::string_ref& uri : seen->FindPropertyValues("peer_uri")) {
    if (!peer.subject) peer.subject = ParseUri({uri.data(), uri.size()});
  }
  return peer;
}

}  // namespace meshwright::security
