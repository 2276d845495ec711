// What a controller's HTTP server serves beside metrics and health: a site that somebody else makes
// of the parts of the controller (web/mount.h does).
//
// Thread rule: Answer is called on the HTTP server's threads, several at once. Ownership: the parts
// outlive the site.
#pragma once

#include <functional>
#include <memory>

#include "base/http_server.h"

namespace meshwright::controller {

class AuditLog;
class ControlLoop;
class StateDir;
class Store;
class WorkerLogs;

struct SiteParts {
  ControlLoop* loop = nullptr;
  Store* store = nullptr;
  const StateDir* dir = nullptr;
  WorkerLogs* logs = nullptr;
  AuditLog* audit = nullptr;  // null: nothing is written down
};

class Site {
 public:
  virtual ~Site() = default;
  virtual HttpReply Answer(const HttpRequest& request) = 0;
  // Its streams end, and none begins any more. Idempotent.
  virtual void Stop() = 0;
};

using SiteMaker = std::function<std::unique_ptr<Site>(const SiteParts&)>;

}  // namespace meshwright::controller
