#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/file.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/cache_dir.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/daemon.h"
#include "cli/identity_dirs.h"
#include "cli/life_signs.h"
#include "cli/listen_check.h"
#include "cli/own_address.h"
#include "cli/resolve_job.h"
#include "cli/server_log.h"
#include "cli/token_in.h"
#include "controller/server.h"
#include "security/metrics_port.h"
#include "security/places.h"
#include "web/mount.h"
#include "web/run_stories.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kForeverMs = int64_t{1} << 30;

// A controller that picks its ports takes the same ones when it is started again, so that workers
// and clients find it: <state-dir>/ports has "PORT METRICS".
std::string PortsFile(const std::string& state_dir) { return state_dir + "/ports"; }

// `wanted`, or where that is 0 the port number `index` of the last time if it is still free.
int PortAgain(const ControllerArgs& args, int wanted, size_t index) {
  if (wanted != 0) return wanted;
  const std::string text = ReadFile(PortsFile(args.state_dir)).value_or("");
  const std::vector<std::string> words = Split(Trim(text), ' ');
  if (index >= words.size()) return 0;
  int port = 0;
  const std::string& word = words[index];
  (void)std::from_chars(word.data(), word.data() + word.size(), port);
  return port > 0 && port <= 65535 && CheckListen(args.bind, port, "").ok() ? port : 0;
}

Result<web::PageOptions> PageOf(const ControllerArgs& args) {
  web::PageOptions page;
  page.wanted = !args.page.off;
  page.behind_tls = args.page.behind_tls;
  MW_ASSIGN_OR_RETURN(page.viewer_token, TokenIn("--page-token-file", args.page.token_file));
  MW_ASSIGN_OR_RETURN(page.operator_token,
                      TokenIn("--operator-token-file", args.page.operator_token_file));
  page.settings = {{"bind", args.bind},
                   {"state_dir", args.state_dir},
                   {"checkpoint_root", args.checkpoint_root},
                   {"worker_lost_ms", std::to_string(args.worker_lost_ms)},
                   {"max_connections", std::to_string(args.max_connections)},
                   {"blob_keep_hours", std::to_string(args.blob_keep_hours)},
                   {"blob_quota_gib", std::to_string(args.blob_quota_gib)},
                   {"quarantine_failures", std::to_string(args.quarantine_failures)},
                   {"return_after_s", std::to_string(args.return_after_s)},
                   {"learn_profiles", args.learn_profiles ? "on" : "off"},
                   {"plan_cache", args.plan_cache}};
  return page;
}

// Where the page is, and the metrics.
std::string HttpText(const std::string& bind, int port, bool tls, const web::MountedPage& page) {
  if (port < 0) return "no metrics";
  const std::string address = FormatHostPort(bind, port);
  const char* const scheme = tls ? "https" : "http";
  if (page.there)
    return fmt::format("page on {0}://{1}/, metrics on {0}://{1}/metrics", scheme, address);
  const std::string metrics = fmt::format("metrics on {}://{}/metrics", scheme, address);
  return page.why_not.empty() ? metrics : fmt::format("{}, the page {}", metrics, page.why_not);
}

// Of a controller that listens on all addresses, which are none to dial; "": it does not, or no
// other machine reaches this one.
std::string OthersText(const std::string& bind, const controller::Server& server, bool tls,
                       const web::MountedPage& page) {
  const std::string own = DialableAddress(bind, OwnAddresses());
  if (own.empty() || own == bind) return "";
  std::string text = "other machines reach it at " + FormatHostPort(own, server.port());
  if (!page.there) return text;
  return text + fmt::format(", the page at {}://{}/", tls ? "https" : "http",
                            FormatHostPort(own, server.metrics_port()));
}

Status SetIdentity(const ControllerArgs& args, const GlobalArgs& global,
                   controller::ServerOptions& options) {
  if (args.cert_init) {
    const std::string home = security::TlsHome(config::ProcessEnvironment);
    if (home.empty()) return InvalidArgument("--cert-init needs $MESHWRIGHT_TLS_HOME or a home");
    if (!FileExists(home + "/ca/ca.pem")) MW_TRY(MakeCertificates(home, {}));
  }
  const ControllerIdentity identity =
      FindControllerIdentity(global.tls, args.authority_dir, args.bind, config::ProcessEnvironment);
  options.tls_dir = identity.tls_dir;
  options.authority_dir = identity.authority_dir;
  options.insecure = global.tls.insecure;
  return OkStatus();
}

// Of the HTTP port: what was named, else off loopback the controller's own. A proxy that does TLS
// is told to speak to it in the clear.
security::ServerCertificate HttpCertificateOf(const ControllerArgs& args,
                                              const controller::ServerOptions& options) {
  if (!args.page.http_cert.empty()) return {args.page.http_cert, args.page.http_key};
  if (args.page.behind_tls || options.insecure) return {};
  return security::OwnCertificate(args.bind, options.tls_dir);
}

Status Serve(const ControllerArgs& args, const GlobalArgs& global) {
  MW_TRY(AwaitStart(args.start_fd));
  MW_TRY(StartLog(global));
  RaiseDescriptorLimit();
  MW_ASSIGN_OR_RETURN(ShutdownSignal shutdown, ShutdownSignal::Install());
  MW_ASSIGN_OR_RETURN(Notifier notifier, Notifier::Open(config::ProcessEnvironment));
  controller::ServerOptions options;
  options.bind = args.bind;
  options.port = PortAgain(args, args.port, 0);
  options.metrics_port = PortAgain(args, args.metrics_port, 1);
  options.state_dir = args.state_dir;
  options.checkpoint_root = args.checkpoint_root;
  options.keeps_log = true;
  options.worker_lost_ms = args.worker_lost_ms;
  options.quarantine_failures = args.quarantine_failures;
  options.return_after_s = args.return_after_s;
  options.limits.max_connections = args.max_connections;
  options.limits.blobs.keep_ms = args.blob_keep_hours * 3'600'000;
  options.limits.blobs.quota_bytes = args.blob_quota_gib << 30;
  options.plan_cache = OpenPlanCache(args.plan_cache);
  web::StoryOptions story;
  if (args.learn_profiles) story.factors_path = args.state_dir + "/measured-profiles.txt";
  options.story = web::MakeRunStories(std::move(story), SystemClock());
  options.resolve = ResolveJob;
  MW_ASSIGN_OR_RETURN(options.token, LoadToken(global, config::ProcessEnvironment));
  MW_ASSIGN_OR_RETURN(options.scrape_token,
                      TokenIn("--scrape-token-file", args.page.scrape_token_file));
  MW_ASSIGN_OR_RETURN(const web::PageOptions page, PageOf(args));
  options.viewer_token = page.viewer_token;
  options.operator_token = page.operator_token;
  MW_TRY(SetIdentity(args, global, options));
  options.http_certificate = HttpCertificateOf(args, options);
  const bool https = !options.http_certificate.empty();
  MW_ASSIGN_OR_RETURN(const web::MountedPage mounted, web::MountPage(page, options));
  MW_TRY(CheckListen(args.bind, args.port, "--port"));
  MW_TRY(CheckListen(args.bind, args.metrics_port, "--metrics-port"));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<controller::Server> server,
                      controller::Server::Start(std::move(options)));
  fmt::print("controller listens on {}, {}\n", FormatHostPort(args.bind, server->port()),
             HttpText(args.bind, server->metrics_port(), https, mounted));
  if (const std::string others = OthersText(args.bind, *server, https, mounted); !others.empty()) {
    fmt::print("{}\n", others);
  }
  std::fflush(stdout);
  const std::string ports = fmt::format("{} {}", server->port(), server->metrics_port());
  MW_TRY(WriteFileAtomic(PortsFile(args.state_dir), ports + "\n"));
  AnnounceReady(args.ready_fd, ports);
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
