// MetricsServer: what a daemon's HTTP server answers: /metrics, /healthz, read-only routes, and a
// site where the daemon has one.
//
//   GET /metrics  the registry in Prometheus text format
//   GET /healthz  200 "ok", or 503 with the reason
//   GET <route>   what its handler returns
// Anything else is the site's; without one it is 404, and other methods are 405. No files are
// served.
//
// Thread rule: thread-safe; handlers run on the server's threads, several at once.
// Ownership: the registry and all that handlers use must outlive the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/http_server.h"
#include "base/metrics.h"
#include "base/result.h"

namespace meshwright {

using MetricsServerOptions = HttpServerOptions;

// Who may see a route: everybody, or whom the guard lets in.
enum class RouteAccess : uint8_t { kOpen, kGuarded };

class MetricsServer {
 public:
  // Returns the body. An error becomes 500 (503 for kUnavailable, 404 for kNotFound) with its text.
  using Handler = std::function<Result<std::string>()>;

  // Listens when this returns. Errors: kAlreadyExists port taken; kPermissionDenied port below
  // 1024; kInvalidArgument host or port. The message names both and says what to change.
  static Result<std::unique_ptr<MetricsServer>> Start(const MetricsServerOptions& options,
                                                      MetricsRegistry& registry);
  // Closes the port and waits for running handlers.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The port it listens on.
  int port() const;

  // Answers GET `path` (exact match, without query) with the handler's text, replacing an earlier
  // handler. REQUIRES: path starts with '/'.
  void AddRoute(const std::string& path, const std::string& content_type, Handler handler,
                RouteAccess access = RouteAccess::kGuarded);

  // What /healthz says; without it always ok.
  void SetHealth(std::function<Status()> health);

  // Who may see /metrics and the guarded routes; without it everybody. A refusal becomes 401.
  void SetGuard(std::function<Status(const HttpRequest&)> guard);

  // What is answered to requests of any method for paths that are none of the above. The site has
  // to end its streams before this server ends.
  void SetSite(HttpServer::Handler site);

 private:
  struct State;
  explicit MetricsServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace meshwright
