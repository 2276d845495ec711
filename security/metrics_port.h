// MetricsPort: the HTTP port of a daemon, as others see it.
//
//   no certificate   the server has the port itself, in the clear
//   a certificate    a front that speaks TLS has it (security/tls_front.h)
//   a scrape token   /metrics and the guarded routes are for who shows it; by TLS off loopback
//                    they are for nobody until there is one
//
// Thread rule: Start, the move and the destructor from one thread. Ownership: owns server and
// front; the registry outlives it.
#pragma once

#include <memory>
#include <string>

#include "base/live_token.h"
#include "base/metrics_server.h"
#include "base/result.h"
#include "security/tls_front.h"

namespace meshwright::security {

struct MetricsPortOptions {
  HttpServerOptions http;         // address and port are those that others see
  ServerCertificate certificate;  // empty: in the clear
  LiveToken scrape_token;         // empty: none
};

class MetricsPort {
 public:
  // Listens when this returns. Errors: those of MetricsServer::Start and TlsFront::Start.
  static Result<std::unique_ptr<MetricsPort>> Start(const MetricsPortOptions& options,
                                                    MetricsRegistry& registry);

  MetricsServer& server() { return *server_; }
  // Who sent a request to the server: also where it came by the front.
  std::string CallerOf(const HttpRequest& request) const;
  int port() const { return https_ ? https_->port() : server_->port(); }

 private:
  std::unique_ptr<MetricsServer> server_;
  std::unique_ptr<TlsFront> https_;  // after the server, to which it passes bytes
};

// Of a daemon that listens there with this identity ("": none): its own, off loopback. On loopback
// nobody else reaches the port, and an agent that scrapes there needs neither authority nor token.
ServerCertificate OwnCertificate(const std::string& bind, const std::string& tls_dir);

}  // namespace meshwright::security
