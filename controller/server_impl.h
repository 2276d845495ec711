// Server::Start with the parts that a test replaces.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "controller/control_loop.h"
#include "controller/core.h"
#include "controller/planning.h"
#include "controller/server.h"

namespace meshwright::controller {

struct ServerHooks {
  PlanFunction make_plan;                              // default: planner::MakePlan
  std::function<void(CoreOptions&)> adjust = nullptr;  // shorter deadlines
};

class ServerWithCounters : public Server {
 public:
  // Control messages of a job by kind, both ways.
  virtual std::map<std::string, int64_t> MessageCounts(int64_t job) = 0;
  // For what has no service of its own yet: host actors.
  virtual ControlLoop& loop() = 0;
};

Result<std::unique_ptr<ServerWithCounters>> StartServer(const ServerOptions& options,
                                                        ServerHooks hooks);

}  // namespace meshwright::controller
