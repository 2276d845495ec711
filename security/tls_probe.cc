#include "security/tls_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/os_error.h"
#include "base/tls_identity.h"
#include "base/unique_fd.h"
#include "security/certificate.h"
#include "security/openssl_parts.h"
#include "security/subject.h"

namespace meshwright::security {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> ResolveHost(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return Fail(InvalidArgument(address + " is no host:port"));
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) {
    return Fail(Unavailable(fmt::format("{}: {}", address, ::gai_strerror(error))));
  }
  return Addresses(found);
}

// False: the deadline passed.
bool WaitFor(int fd, int16_t events, const Deadline& deadline) {
  pollfd wanted{fd, events, 0};
  const auto ms = static_cast<int>(std::min<int64_t>(deadline.remaining_ms(), 60'000));
  return ::poll(&wanted, 1, ms) == 1;
}

Result<UniqueFd> Dial(const std::string& address, const Deadline& deadline) {
  MW_ASSIGN_OR_RETURN(const Addresses addresses, ResolveHost(address));
  Status last = Unavailable("no address");
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    UniqueFd fd(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    int error = ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t bytes = sizeof(error);
      error = ETIMEDOUT;
      if (WaitFor(fd.get(), POLLOUT, deadline)) {
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      }
    }
    if (error == 0) return fd;
    last = OsError(error, address);
  }
  return Fail(Unavailable(fmt::format("no controller answers at {}: {}", address, last.message())));
}

Status Handshake(SSL* ssl, int fd, const std::string& address, const Deadline& deadline) {
  while (true) {
    ERR_clear_error();
    const int done = SSL_connect(ssl);
    if (done == 1) return OkStatus();
    const int why = SSL_get_error(ssl, done);
    const bool reads = why == SSL_ERROR_WANT_READ;
    if (!reads && why != SSL_ERROR_WANT_WRITE) {
      ERR_clear_error();
      return Unavailable(fmt::format(
          "who answers at {} does not speak TLS as a controller does; was it started with "
          "certificates?",
          address));
    }
    if (!WaitFor(fd, reads ? POLLIN : POLLOUT, deadline)) {
      return Unavailable(address + " does not answer in time");
    }
  }
}

Part<SSL_CTX> ClientContext() {
  Part<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return context;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  return context;
}

Part<SSL> SessionOn(SSL_CTX* context, int fd) {
  Part<SSL> ssl(SSL_new(context));
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof(kHttp2));
  SSL_set_fd(ssl.get(), fd);
  return ssl;
}

// Who it says it is.
std::string NameOf(SSL* ssl) {
  const Part<X509> certificate(SSL_get1_peer_certificate(ssl));
  if (certificate == nullptr) return "nobody";
  const auto facts = ReadCertificate(WriteX509(certificate.get()));
  if (facts.has_value() && facts->subject) return Describe(*facts->subject);
  return "who has a certificate of no role";
}

// The alert by which a server refuses a certificate comes behind the handshake (RFC 8446, 4.4.2.4);
// one that is content sends its settings.
Status AwaitFirstByte(SSL* ssl, int fd, const std::string& address, const Subject& own,
                      const Deadline& deadline) {
  while (true) {
    ERR_clear_error();
    char byte = 0;
    const int count = SSL_read(ssl, &byte, 1);
    if (count > 0) return OkStatus();
    const int why = SSL_get_error(ssl, count);
    ERR_clear_error();
    if (why != SSL_ERROR_WANT_READ) {
      return PermissionDenied(fmt::format(
          "the controller at {} does not believe the certificate of {}: it was signed by another "
          "authority, or has ended; `meshwright cert issue` on the controller's host makes one",
          address, Describe(own)));
    }
    if (!WaitFor(fd, POLLIN, deadline)) return OkStatus();
  }
}

}  // namespace

Result<std::string> FetchAuthority(const std::string& address, const std::string& sha256,
                                   const Deadline& deadline) {
  MW_ASSIGN_OR_RETURN(const UniqueFd fd, Dial(address, deadline));
  const Part<SSL_CTX> context = ClientContext();
  if (context == nullptr) return Fail(OpenSslError("TLS"));
  const Part<SSL> ssl = SessionOn(context.get(), fd.get());
  MW_TRY(Handshake(ssl.get(), fd.get(), address, deadline));
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl.get());
  for (int i = 0; chain != nullptr && i < sk_X509_num(chain); ++i) {
    X509* const each = sk_X509_value(chain, i);
    if (FingerprintOf(each) == sha256) return WriteX509(each);
  }
  return Fail(PermissionDenied(
      fmt::format("who answers at {} is not the controller that the join token is for: its "
                  "authority is another one; take the token from that controller's host, or mend "
                  "--address",
                  address)));
}

bool SpeaksTls(const std::string& address, const Deadline& deadline) {
  const Result<UniqueFd> fd = Dial(address, deadline);
  const Part<SSL_CTX> context = ClientContext();
  if (!fd.has_value() || context == nullptr) return false;
  const Part<SSL> ssl = SessionOn(context.get(), fd->get());
  return Handshake(ssl.get(), fd->get(), address, deadline).ok();
}

Status ExplainRefusal(const std::string& address, const std::string& folder,
                      const Deadline& deadline) {
  MW_ASSIGN_OR_RETURN(const TlsIdentity identity, LoadTlsIdentity(folder));
  MW_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(identity.cert_pem));
  MW_ASSIGN_OR_RETURN(const UniqueFd fd, Dial(address, deadline));
  const Part<SSL_CTX> context = ClientContext();
  if (context == nullptr) return OpenSslError("TLS");
  SSL_CTX_use_certificate_chain_file(context.get(), (folder + "/cert.pem").c_str());
  SSL_CTX_use_PrivateKey_file(context.get(), (folder + "/key.pem").c_str(), SSL_FILETYPE_PEM);
  SSL_CTX_load_verify_locations(context.get(), (folder + "/ca.pem").c_str(), nullptr);
  const Part<SSL> ssl = SessionOn(context.get(), fd.get());
  SSL_set1_host(ssl.get(), kControllerName);
  MW_TRY(Handshake(ssl.get(), fd.get(), address, deadline));
  const long verdict = SSL_get_verify_result(ssl.get());
  if (verdict != X509_V_OK) {
    return PermissionDenied(fmt::format(
        "who answers at {} is {}, and no controller that {}/ca.pem vouches for ({}); is it the "
        "right --address, and are the certificates of this cluster?",
        address, NameOf(ssl.get()), folder, X509_verify_cert_error_string(verdict)));
  }
  return AwaitFirstByte(ssl.get(), fd.get(), address, facts.subject.value_or(Subject{}), deadline);
}

}  // namespace meshwright::security
