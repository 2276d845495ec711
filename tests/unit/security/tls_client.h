// Who speaks HTTP to a port by TLS, or in the clear: for tests of what listens there.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/listen_address.h"
#include "base/unique_fd.h"
#include "security/openssl_parts.h"

namespace meshwright::security {

inline constexpr int64_t kLongMs = 60'000;

inline UniqueFd Connect(int port) {
  const auto address = ResolveNumeric("127.0.0.1", port).value();
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), address.get(), address.bytes), 0);
  timeval patience{};
  patience.tv_sec = kLongMs / 1000;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return fd;
}

inline void Say(const UniqueFd& fd, const std::string& text) {
  EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// Until the other side ends.
inline std::string HearAll(const UniqueFd& fd) {
  std::string all;
  char bytes[4096];
  while (true) {
    const ssize_t got = ::recv(fd.get(), bytes, sizeof(bytes), 0);
    if (got <= 0) return all;
    all.append(bytes, static_cast<size_t>(got));
  }
}

// An OpenSSL client that believes one authority.
class TlsClient {
 public:
  TlsClient(int port, const std::string& ca_pem, const std::string& name) : fd_(Connect(port)) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    const Part<X509> trusted = ReadX509(ca_pem);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), trusted.get());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set1_host(ssl_.get(), name.c_str());
    SSL_set_fd(ssl_.get(), fd_.get());
    ERR_clear_error();
    trusts_ = SSL_connect(ssl_.get()) == 1;
    ERR_clear_error();
  }

  bool trusts() const { return trusts_; }
  int port() const { return PortOf(fd_).value(); }  // that it comes from
  bool Write(const std::string& text) {
    return SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) > 0;
  }
  std::string ReadSome() {
    char bytes[4096];
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), bytes, sizeof(bytes));
    whole_ = got <= 0 && SSL_get_error(ssl_.get(), got) == SSL_ERROR_ZERO_RETURN;
    ERR_clear_error();
    return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
  }
  std::string ReadAll() {
    std::string all;
    while (true) {
      const std::string more = ReadSome();
      if (more.empty()) return all;
      all += more;
    }
  }
  // The far end said that there is no more, and nobody cut the connection.
  bool whole() const { return whole_; }
  std::string Get(const std::string& path) {
    return Write("GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n") ? ReadAll() : "";
  }
  std::string PeerSha256() {
    const Part<X509> peer(SSL_get1_peer_certificate(ssl_.get()));
    return peer == nullptr ? "" : FingerprintOf(peer.get());
  }

 private:
  UniqueFd fd_;
  Part<SSL_CTX> context_;
  Part<SSL> ssl_;
  bool trusts_ = false;
  bool whole_ = false;
};

}  // namespace meshwright::security
