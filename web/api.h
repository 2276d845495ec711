// Api: what GET /api/v1/... answers. docs/page.md and web/pages/openapi.json list it.
//
//   jobs  jobs/ID  jobs/ID/steps|events|log|hang|plan|plan.svg|plan.txt|config
//   workers  workers/NAME  workers/NAME/log  overview  events  history  config
// Errors are {"error":"..."} with an HTTP code that says whose they are.
//
// Thread rule: thread-safe. Ownership: all that it is made of outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/http_server.h"
#include "web/access.h"
#include "web/cluster.h"
#include "web/curves.h"
#include "web/watcher.h"

namespace meshwright::web {

using Settings = std::vector<std::pair<std::string, std::string>>;

struct ApiParts {
  Cluster& cluster;
  Curves& curves;
  const Watcher& watcher;
  const Settings& settings;
  bool tokens = false;  // that the page wants
  const Clock& clock;
};

class Api {
 public:
  explicit Api(const ApiParts& parts) : parts_(parts) {}

  // path: the parts behind /api/v1/, at least one.
  HttpReply Read(const std::vector<std::string>& path, const HttpRequest& request, Role role);

 private:
  HttpReply ReadJob(const std::vector<std::string>& path, const HttpRequest& request);
  Result<std::string> Overview(Role role);
  Result<std::string> Jobs();
  Result<std::string> Workers();
  Result<std::string> Worker(const std::string& name);
  Result<std::string> WorkerLog(const std::string& name, const HttpRequest& request);
  Result<std::string> Job(const proto::JobInfo& info);
  Result<std::string> Steps(int64_t job, const HttpRequest& request);
  Result<std::string> Events(int64_t job, const HttpRequest& request);
  Result<std::string> Log(int64_t job);
  std::string Past(const HttpRequest& request) const;

  const ApiParts parts_;
};

HttpReply JsonReply(std::string text);
HttpReply ErrorReply(const Status& status);
Status NoSuchPage(const std::string& path);
// A whole number within the bounds, the nearest one where it is outside; `other`: it is no number.
int64_t NumberIn(const std::string& text, int64_t least, int64_t most, int64_t other);

}  // namespace meshwright::web
