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

constexpr size_t kMostPathBytes = 100;  // that the audit log has

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const char* TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
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
    // Of a form that says no referrer browsers say that it comes from "null", which is nobody's
    // page: then the page's own form could not log in.
    reply.headers.emplace_back("Referrer-Policy", "same-origin");
    reply.headers.emplace_back("X-Frame-Options", "DENY");
    return reply;
  }

 private:
  HttpReply Route(const HttpRequest& request) {
    const auto api = ApiPath(request.path);
    if (request.method == "POST") {
      if (request.path == "/login") return Login(request);
      if (request.path == "/logout") return access_.Logout(request);
      return api ? Act(*api, request) : ErrorReply(NoSuchPage(request.path));
    }
    if (request.method != "GET" && request.method != "HEAD") {
      HttpReply reply = ErrorReply(InvalidArgument("only GET, HEAD and POST are served here"));
      reply.code = 405;
      reply.headers = {{"Allow", "GET, HEAD, POST"}};
      return reply;
    }
    if (!api) return File(request);
    if (const Status status = access_.CheckLook(request); !status.ok()) {
      WriteDown(request, "page/look", request.path.substr(0, kMostPathBytes), status, true);
      return ErrorReply(status);
    }
    if (*api == std::vector<std::string>{"stream"}) return Stream(request);
    return api_.Read(*api, request, access_.RoleOf(request));
  }

  HttpReply Act(const std::vector<std::string>& path, const HttpRequest& request) {
    const auto order = path.size() == 3 && path[0] == "jobs" ? OrderOf(path[2]) : std::nullopt;
    const int64_t asked_job = order ? NumberIn(path[1], 0, INT64_MAX, 0) : 0;
    if (const Status status = access_.CheckAct(request); !status.ok()) {
      WriteDown(request, order ? "page/" + path[2] : "page/act", JobText(asked_job), status, true);
      return ErrorReply(status);
    }
    if (!order) return ErrorReply(NoSuchPage(request.path));
    const Status status = cluster_->Order(asked_job, *order);
    LogInfo(fmt::format("page: {} job {} by {} at {}: {}", path[2], asked_job,
                        RoleName(access_.RoleOf(request)), request.from, status.ToString()));
    WriteDown(request, "page/" + path[2], JobText(asked_job), status, false);
    return status.ok() ? JsonReply("{\"ok\":true}") : ErrorReply(status);
  }

  HttpReply Login(const HttpRequest& request) {
    const Access::LoginAnswer answer = access_.Login(request);
    if (options_.audit != nullptr) {
      const controller::AuditEntry entry = {
          WhoIs(answer.role), RoleText(answer.role), request.from, "page/login", "", answer.status};
      Put(entry, !answer.status.ok());
    }
    return answer.reply;
  }

  // Of who is not known nothing is written down that they chose.
  void WriteDown(const HttpRequest& request, const std::string& what, const std::string& on,
                 const Status& answer, bool refused) {
    if (options_.audit == nullptr) return;
    const Role role = access_.wants_tokens() ? access_.RoleOf(request) : Role::kNobody;
    const bool known = role != Role::kNobody || !access_.wants_tokens();
    const controller::AuditEntry entry = {WhoIs(role), RoleText(role),  request.from,
                                          what,        known ? on : "", answer};
    Put(entry, refused);
  }
  void Put(const controller::AuditEntry& entry, bool refused) {
    if (refused) return options_.audit->WriteRefused(entry);
    options_.audit->Write(entry);
  }
  // As gRPC has it: nobody has a role where everyone may do everything.
  static std::string RoleText(Role role) { return role == Role::kNobody ? "" : RoleName(role); }
  static std::string WhoIs(Role role) {
    return role == Role::kNobody ? "" : fmt::format("the {}'s token", RoleName(role));
  }
  static std::string JobText(int64_t job) { return job == 0 ? "" : fmt::format("job {}", job); }

  // The page itself, and what it is made of. They say nothing of the cluster: whoever is to log in
  // gets them, too.
  HttpReply File(const HttpRequest& request) {
    if (!access_.wants_tokens()) {
      if (const Status status = access_.CheckLook(request); !status.ok()) return ReplyOf(status);
    }
    std::string name = request.path.substr(1);
    if (name == "favicon.ico") name = "icon.svg";  // what browsers ask for beside plain text
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
    reply.stream = [this, guard, request](HttpStream& stream) { Tell(*guard, request, stream); };
    return reply;
  }

  // As long as who asked may look: a token may go, and a cookie ends.
  void Tell(Viewer& viewer, const HttpRequest& request, HttpStream& stream) const {
    if (!stream.Write("retry: 2000\n" + FormatEvent("hello", "{}"))) return;
    while (true) {
      const auto text = viewer.Take(Deadline::After(options_.keepalive_ms));
      if (!text || !access_.CheckLook(request).ok()) return;
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
