// The page of a controller and its /api/v1: which path is answered by what.
//
//   GET  /                           the page, or the form for a token
//   GET  /api/v1/...                 docs/page.md, web/pages/openapi.json
//   POST /api/v1/jobs/ID/ORDER       stop, pause, resume, checkpoint
//   GET  /api/v1/stream?job=ID       what happens, as it happens (web/feed.h)
// The page runs no script, and shows no picture, that did not come from here: its content policy
// says so. web/access.h says who may look and act.
//
// Thread rule: Answer from any thread. Ownership: owns all it needs but the controller.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "controller/audit_log.h"
#include "controller/site.h"
#include "web/access.h"
#include "web/cluster.h"
#include "web/feed.h"

namespace meshwright::web {

struct SiteOptions {
  AccessOptions access;
  FeedLimits feed;
  // How the controller was started, for people; without secrets.
  std::vector<std::pair<std::string, std::string>> settings;
  // A stream that has nothing to say says that it lives, and so learns that its reader is gone.
  int64_t keepalive_ms = 5000;
  controller::AuditLog* audit = nullptr;  // of what is done here; null: none. Outlives the site
};

// Looks at the cluster from now on.
std::unique_ptr<controller::Site> MakeSite(std::unique_ptr<Cluster> cluster, SiteOptions options,
                                           const Clock& clock);

}  // namespace meshwright::web
