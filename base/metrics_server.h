// MetricsServer: the small HTTP server of a daemon: /metrics, /healthz and read-only routes.
//
//   GET /metrics  the registry in Prometheus text format
//   GET /healthz  200 "ok", or 503 with the reason
//   GET <route>   what its handler returns
// Anything else is 404; other methods are 405. No files are served.
//
// Thread rule: thread-safe; handlers run on the server's threads, several at once.
// Ownership: the registry and all that handlers use must outlive the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/metrics.h"
#include "base/result.h"

namespace meshwright {

struct MetricsServerOptions {
  std::string host = "127.0.0.1";  // address to listen on; "0.0.0.0" for all
  int port = 0;                    // 0: the system picks one
  // Each holds one caller until it has sent its request, for request_ms at most.
  int threads = 16;
  int request_ms = 1000;
};

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
  void AddRoute(const std::string& path, const std::string& content_type, Handler handler);

  // What /healthz says; without it always ok.
  void SetHealth(std::function<Status()> health);

 private:
  struct State;
  explicit MetricsServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace meshwright
