#include "web/mount.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/clock.h"
#include "controller/auth.h"
#include "web/plan_drawer.h"
#include "web/site.h"

namespace meshwright::web {
namespace {

// Beside the viewers, for whom each answer takes a moment.
constexpr int kThreads = 16;

Status CheckTokens(const PageOptions& options, bool loopback, bool tls) {
  const bool tokens = !options.viewer_token.empty() || !options.operator_token.empty();
  if (options.behind_tls && !tokens) {
    return InvalidArgument(
        "--page-behind-tls lets others in and there is no token; pass --page-token-file and, for "
        "who may stop jobs, --operator-token-file");
  }
  if (tokens && options.viewer_token.Now() == options.operator_token.Now()) {
    return InvalidArgument(
        "--page-token-file and --operator-token-file have the same token; who may look could "
        "stop jobs");
  }
  if (tokens && !loopback && !options.behind_tls && !tls) {
    return InvalidArgument(
        "the page's tokens would pass the network in the clear; `meshwright cert init` makes "
        "certificates and then the same command works, or name some by --http-cert and --http-key; "
        "or put a proxy that does TLS in front and say so with --page-behind-tls; or bind to "
        "127.0.0.1");
  }
  return OkStatus();
}

}  // namespace

Result<MountedPage> MountPage(const PageOptions& options, controller::ServerOptions& server) {
  if (!options.wanted || server.metrics_port < 0) return MountedPage{};
  const bool loopback = controller::IsLoopbackBind(server.bind);
  const bool tls = !server.http_certificate.empty();
  const bool tokens = !options.viewer_token.empty() || !options.operator_token.empty();
  MW_TRY(CheckTokens(options, loopback, tls));
  if (!loopback && !options.behind_tls && !(tls && tokens)) {
    return MountedPage{false,
                       fmt::format("not on {}, where others reach it, without --page-token-file: "
                                   "docs/page.md says how to let them in",
                                   server.bind)};
  }
  SiteOptions site;
  site.access = {options.viewer_token, options.operator_token, options.behind_tls || tls};
  site.settings = options.settings;
  server.http_threads = kThreads + static_cast<int>(site.feed.viewers);
  server.make_site = [site](const controller::SiteParts& parts) mutable {
    site.audit = parts.audit;
    return MakeSite(ClusterOf(parts), site, SystemClock());
  };
  const auto drawer = std::make_shared<PlanDrawer>();
  server.on_plan = [drawer](controller::MadePlan made) { drawer->Draw(std::move(made)); };
  return MountedPage{true, ""};
}

}  // namespace meshwright::web
