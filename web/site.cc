#include "web/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "web/api.h"
#include "web/assets.h"
#include "web/curves.h"
#include "web/watcher.h"

namespace meshwright::web {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const char* TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "application/json";
}

// "/api/v1/jobs/7/steps" -> {"jobs", "7", "steps"}; none: it is no path of the API.
std::optional<std::vector<std::string>> ApiPath(const std::string& path) {
  constexpr std::string_view kRoot = "/api/v1/";
  if (!path.starts_with(kRoot)) return std::nullopt;
  return Split(path.substr(kRoot.size()), '/');
}

std::optional<JobOrder> OrderOf(const std::string& word) {
  static const std::map<std::string, JobOrder> orders = {{"stop", JobOrder::kStop},
                                                         {"pause", JobOrder::kPause},
                                                         {"resume", JobOrder::kResume},
                                                         {"checkpoint", JobOrder::kCheckpoint}};
  const auto found = orders.find(word);
  return found == orders.end() ? std::nullopt : std::optional(found->second);
}

class PageSite final : public controller::Site {
 public:
  PageSite(std::unique_ptr<Cluster> cluster, SiteOptions options, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        cluster_(std::move(cluster)),
        access_(options_.access, clock),
        feed_(options_.feed),
        curves_(*cluster_),
        watcher_(*cluster_, curves_, feed_, clock),
        api_({*cluster_, curves_, watcher_, options_.settings, access_.wants_tokens(), clock}) {
    for (const Asset& asset : Assets()) etags_[asset.name] = Sha256Hex(asset.bytes).substr(0, 16);
    watcher_.Start();
  }
  ~PageSite() override { Stop(); }

  void Stop() override {
    feed_.Close();
    watcher_.Stop();
  }

  HttpReply Answer(const HttpRequest& request) override {
    HttpReply reply = Route(request);
    const bool has_policy =
        std::any_of(reply.headers.begin(), reply.headers.end(),
                    [](const auto& header) { return header.first == "Content-Security-Policy"; });
    if (!has_policy) reply.headers.emplace_back("Content-Security-Policy", kPolicy);
    reply.headers.emplace_back("Referrer-Policy", "no-referrer");
    reply.headers.emplace_back("X-Frame-Options", "DENY");
    return reply;
  }

 private:
  HttpReply Route(const HttpRequest& request) {
    const auto api = ApiPath(request.path);
    if (request.method == "POST") {
      if (request.path == "/login") return access_.Login(request);
      if (request.path == "/logout") return access_.Logout();
      return api ? Act(*api, request) : ErrorReply(NoSuchPage(request.path));
    }
    if (request.method != "GET" && request.method != "HEAD") {
      HttpReply reply = ErrorReply(InvalidArgument("only GET, HEAD and POST are served here"));
      reply.code = 405;
      reply.headers = {{"Allow", "GET, HEAD, POST"}};
      return reply;
    }
    if (!api) return File(request);
    if (const Status status = access_.CheckLook(request); !status.ok()) return ErrorReply(status);
    if (*api == std::vector<std::string>{"stream"}) return Stream(request);
    return api_.Read(*api, request, access_.RoleOf(request));
  }

  HttpReply Act(const std::vector<std::string>& path, const HttpRequest& request) {
    if (const Status status = access_.CheckAct(request); !status.ok()) return ErrorReply(status);
    const auto order = path.size() == 3 && path[0] == "jobs" ? OrderOf(path[2]) : std::nullopt;
    if (!order) return ErrorReply(NoSuchPage(request.path));
    const int64_t job = NumberIn(path[1], 0, INT64_MAX, 0);
    const Status status = cluster_->Order(job, *order);
    LogInfo(fmt::format("page: {} job {} by {}: {}", path[2], job,
                        RoleName(access_.RoleOf(request)), status.ToString()));
    if (options_.audit != nullptr) {
      options_.audit->Write({"", std::string(RoleName(access_.RoleOf(request))), "page",
                             "page/" + path[2], fmt::format("job {}", job), status});
    }
    return status.ok() ? JsonReply("{\"ok\":true}") : ErrorReply(status);
  }

  // The page itself, and what it is made of. They say nothing of the cluster: whoever is to log in
  // gets them, too.
  HttpReply File(const HttpRequest& request) {
    if (!access_.wants_tokens()) {
      if (const Status status = access_.CheckLook(request); !status.ok()) return ReplyOf(status);
    }
    std::string name = request.path.substr(1);
    if (name.empty()) {
      name = access_.RoleOf(request) == Role::kNobody ? "login.html" : "index.html";
    }
    for (const Asset& asset : Assets()) {
      if (asset.name != name) continue;
      HttpReply reply;
      reply.content_type = TypeOf(name);
      const std::string tag = "\"" + etags_.at(asset.name) + "\"";
      reply.headers = {{"ETag", tag}, {"Cache-Control", "no-cache"}};
      if (request.Header("if-none-match") == tag) {
        reply.code = 304;
      } else {
        reply.body = asset.bytes;
      }
      return reply;
    }
    return ReplyOf(NoSuchPage(request.path));
  }

  HttpReply Stream(const HttpRequest& request) {
    const auto viewer = feed_.Join(NumberIn(request.Query("job"), 0, INT64_MAX, 0));
    if (viewer == nullptr) {
      const bool full = feed_.viewers() >= options_.feed.viewers;
      HttpReply reply = ErrorReply(Unavailable(
          full
              ? fmt::format("{} viewers look already, the most at once; this page asks for what is "
                            "new every 5 s",
                            options_.feed.viewers)
              : "the controller is stopping"));
      reply.headers = {{"Retry-After", "5"}};
      return reply;
    }
    HttpReply reply;
    reply.content_type = "text/event-stream";
    reply.headers = {{"X-Accel-Buffering", "no"}};
    // The viewer leaves when the last copy of this goes, also where no stream is ever begun.
    const std::shared_ptr<Viewer> guard(viewer.get(),
                                        [this, viewer](Viewer*) { feed_.Leave(viewer); });
    reply.stream = [this, guard](HttpStream& stream) { Tell(*guard, stream); };
    return reply;
  }

  void Tell(Viewer& viewer, HttpStream& stream) const {
    if (!stream.Write("retry: 2000\n" + FormatEvent("hello", "{}"))) return;
    while (true) {
      const auto text = viewer.Take(Deadline::After(options_.keepalive_ms));
      if (!text) return;
      if (!stream.Write(text->empty() ? ":\n\n" : *text)) return;
    }
  }

  const SiteOptions options_;
  const Clock& clock_;
  std::map<std::string_view, std::string> etags_;
  std::unique_ptr<Cluster> cluster_;
  Access access_;
  Feed feed_;
  Curves curves_;
  Watcher watcher_;
  Api api_;
};

}  // namespace

std::unique_ptr<controller::Site> MakeSite(std::unique_ptr<Cluster> cluster, SiteOptions options,
                                           const Clock& clock) {
  return std::make_unique<PageSite>(std::move(cluster), std::move(options), clock);
}

}  // namespace meshwright::web
