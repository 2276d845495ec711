#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/signals.h"
#include "cli/cache_dir.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/daemon.h"
#include "cli/life_signs.h"
#include "cli/listen_check.h"
#include "controller/server.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kForeverMs = int64_t{1} << 30;

Status Serve(const ControllerArgs& args, const GlobalArgs& global) {
  MW_TRY(AwaitStart(args.start_fd));
  LogOptions log;
  MW_ASSIGN_OR_RETURN(log.level, ParseLogLevel(global.log_level));
  MW_TRY(InitLog(log));
  RaiseDescriptorLimit();
  MW_ASSIGN_OR_RETURN(ShutdownSignal shutdown, ShutdownSignal::Install());
  MW_ASSIGN_OR_RETURN(Notifier notifier, Notifier::Open(config::ProcessEnvironment));
  controller::ServerOptions options;
  options.bind = args.bind;
  options.port = args.port;
  options.metrics_port = args.metrics_port;
  options.state_dir = args.state_dir;
  options.worker_lost_ms = args.worker_lost_ms;
  options.limits.max_connections = args.max_connections;
  options.limits.blobs.keep_ms = args.blob_keep_hours * 3'600'000;
  options.limits.blobs.quota_bytes = args.blob_quota_gib << 30;
  options.plan_cache = OpenPlanCache(args.plan_cache);
  MW_ASSIGN_OR_RETURN(options.token, LoadToken(global, config::ProcessEnvironment));
  MW_TRY(CheckListen(args.bind, args.port, "--port"));
  MW_TRY(CheckListen(args.bind, args.metrics_port, "--metrics-port"));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<controller::Server> server,
                      controller::Server::Start(std::move(options)));
  fmt::print("controller listens on {}, {}\n", FormatHostPort(args.bind, server->port()),
             server->metrics_port() < 0
                 ? "no metrics"
                 : fmt::format("metrics on http://{}/metrics",
                               FormatHostPort(args.bind, server->metrics_port())));
  std::fflush(stdout);
  AnnounceReady(args.ready_fd, fmt::format("{} {}", server->port(), server->metrics_port()));
  LifeSigns signs(std::move(notifier), SystemClock());
  const std::string state = fmt::format("listens on {}", FormatHostPort(args.bind, server->port()));
  do {
    signs.Look(true, state, [&server] { return server->Answers(); });
  } while (!shutdown.Wait(signs.look_ms(kForeverMs)));
  signs.Stop("was told to stop");
  server->Stop();
  return OkStatus();
}

}  // namespace

int RunController(const ControllerArgs& args, const GlobalArgs& global) {
  const Status status = Serve(args, global);
  if (status.ok()) return kExitOk;
  const int code = ReportError(status);
  // It needs no other controller: what is not available is a port or the store.
  return code == kExitUnreachable ? kExitJobFailed : code;
}

}  // namespace meshwright::cli
