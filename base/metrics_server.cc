#include "base/metrics_server.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"

namespace meshwright {
namespace {

constexpr const char* kTextType = "text/plain; charset=utf-8";
constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

struct Route {
  std::string content_type;
  MetricsServer::Handler handler;
  RouteAccess access = RouteAccess::kGuarded;
};

HttpReply Page(std::string content_type, std::string body) {
  HttpReply reply;
  reply.content_type = std::move(content_type);
  reply.body = std::move(body);
  return reply;
}

HttpReply NoPage(const HttpRequest& request) {
  return ReplyOf(NotFound(fmt::format("no page at {}", request.path)));
}

HttpReply WrongMethod() {
  HttpReply reply = Page(kTextType, "only GET is served here\n");
  reply.code = 405;
  reply.headers = {{"Allow", "GET, HEAD"}};
  return reply;
}

}  // namespace

struct MetricsServer::State {
  MetricsRegistry* registry = nullptr;
  mutable Mutex mutex;
  std::map<std::string, Route, std::less<>> routes MW_GUARDED_BY(mutex);
  std::function<Status()> health MW_GUARDED_BY(mutex);
  std::function<Status(const HttpRequest&)> guard MW_GUARDED_BY(mutex);
  HttpServer::Handler site MW_GUARDED_BY(mutex);
  std::unique_ptr<HttpServer> server;  // last: it calls into the others

  HttpReply Answer(const HttpRequest& request) {
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (request.path == "/healthz" && reads) return AnswerHealth();
    Route route;
    HttpServer::Handler other;
    std::function<Status(const HttpRequest&)> check;
    {
      const MutexLock lock(mutex);
      other = site;
      check = guard;
      if (const auto found = routes.find(request.path); found != routes.end()) {
        route = found->second;
      }
    }
    const bool metrics = request.path == "/metrics";
    const bool ours = metrics || request.path == "/healthz" || route.handler;
    if (!ours && other) return other(request);
    if (!reads) return WrongMethod();
    if (!ours) return NoPage(request);
    if (check && (metrics || route.access == RouteAccess::kGuarded)) {
      if (const Status status = check(request); !status.ok()) {
        HttpReply refused = ReplyOf(status);
        refused.headers = {{"WWW-Authenticate", "Bearer"}};
        return refused;
      }
    }
    if (metrics) return Page(kMetricsType, registry->Serialize());
    Result<std::string> body = route.handler();
    return body ? Page(route.content_type, *std::move(body)) : ReplyOf(body.error());
  }

  HttpReply AnswerHealth() {
    std::function<Status()> check;
    {
      const MutexLock lock(mutex);
      check = health;
    }
    const Status status = check ? check() : OkStatus();
    HttpReply reply = Page(kTextType, status.ToString() + "\n");
    reply.code = status.ok() ? 200 : 503;
    return reply;
  }
};

MetricsServer::MetricsServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(const MetricsServerOptions& options,
                                                            MetricsRegistry& registry) {
  auto state = std::make_unique<State>();
  state->registry = &registry;
  MW_ASSIGN_OR_RETURN(state->server,
                      HttpServer::Start(options, [owner = state.get()](const HttpRequest& request) {
                        return owner->Answer(request);
                      }));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(state)));
}

MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return state_->server->port(); }

void MetricsServer::AddRoute(const std::string& path, const std::string& content_type,
                             Handler handler, RouteAccess access) {
  MW_CHECK(!path.empty() && path[0] == '/') << "route " << path;
  const MutexLock lock(state_->mutex);
  state_->routes[path] = Route{content_type, std::move(handler), access};
}

void MetricsServer::SetHealth(std::function<Status()> health) {
  const MutexLock lock(state_->mutex);
  state_->health = std::move(health);
}

void MetricsServer::SetGuard(std::function<Status(const HttpRequest&)> guard) {
  const MutexLock lock(state_->mutex);
  state_->guard = std::move(guard);
}

void MetricsServer::SetSite(HttpServer::Handler site) {
  const MutexLock lock(state_->mutex);
  state_->site = std::move(site);
}

}  // namespace meshwright
