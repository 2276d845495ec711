#include "security/metrics_port.h"

#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/constant_time.h"
#include "security/places.h"

namespace meshwright::security {
namespace {

Status CheckScraper(const std::string& token, const std::string& authorization) {
  if (token.empty()) {
    return Unauthenticated(
        "metrics are for who has a token where others reach them, and there is none; start this "
        "process with --scrape-token-file");
  }
  if (ConstantTimeEqual(authorization, "Bearer " + token)) return OkStatus();
  return Unauthenticated(
      "metrics want the token of --scrape-token-file, as 'Authorization: Bearer TOKEN'");
}

}  // namespace

Result<std::unique_ptr<MetricsPort>> MetricsPort::Start(const MetricsPortOptions& options,
                                                        MetricsRegistry& registry) {
  auto port = std::make_unique<MetricsPort>();
  const bool tls = !options.certificate.empty();
  HttpServerOptions http = options.http;
  if (tls) {
    http.host = "127.0.0.1";
    http.port = 0;
  }
  MW_ASSIGN_OR_RETURN(port->server_, MetricsServer::Start(http, registry));
  // Before the front, by which others come.
  if (!options.scrape_token.empty() || (tls && !IsLoopback(options.http.host))) {
    port->server_->SetGuard([token = options.scrape_token](const HttpRequest& request) {
      return CheckScraper(token.Now(), request.Header("authorization"));
    });
  }
  if (!tls) return port;
  MW_ASSIGN_OR_RETURN(port->https_, TlsFront::Start({.host = options.http.host,
                                                     .port = options.http.port,
                                                     .behind = port->server_->port(),
                                                     .certificate = options.certificate}));
  MW_CHECK(port->port() > 0) << "a front without a port";
  return port;
}

std::string MetricsPort::CallerOf(const HttpRequest& request) const {
  if (!https_) return request.from;
  int inner_port = 0;
  const std::string& from = request.from;
  const size_t colon = from.rfind(':');
  if (colon == std::string::npos) return "";
  (void)std::from_chars(from.data() + colon + 1, from.data() + from.size(), inner_port);
  return https_->CallerAt(inner_port);
}

ServerCertificate OwnCertificate(const std::string& bind, const std::string& tls_dir) {
  if (tls_dir.empty() || IsLoopback(bind)) return {};
  return {tls_dir + "/cert.pem", tls_dir + "/key.pem"};
}

}  // namespace meshwright::security
