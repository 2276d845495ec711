#include "base/metrics_server.h"

#include <civetweb.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <future>
#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/listen_address.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace meshwright {
namespace {

constexpr const char* kTextType = "text/plain; charset=utf-8";
constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

struct Route {
  std::string content_type;
  MetricsServer::Handler handler;
};

struct Response {
  int code = 200;
  std::string content_type = kTextType;
  std::string body;
};

const char* ReasonOf(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

int HttpCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

void Send(mg_connection* connection, const Response& response, bool with_body) {
  const std::string header = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}"
      "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
      response.code, ReasonOf(response.code), response.content_type, response.body.size(),
      response.code == 405 ? "Allow: GET, HEAD\r\n" : "");
  mg_write(connection, header.data(), header.size());
  if (with_body) mg_write(connection, response.body.data(), response.body.size());
}

// Opens and drops a connection: makes a thread that waits in accept look around.
void Knock(const SocketAddress& address) {
  const UniqueFd knock(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)connect(knock.get(), address.get(), address.bytes);
}

}  // namespace

struct MetricsServer::State {
  MetricsRegistry* registry = nullptr;
  mg_context* context = nullptr;
  SocketAddress address;  // where it listens, with the port chosen
  int port = 0;
  Mutex mutex;
  std::map<std::string, Route, std::less<>> routes MW_GUARDED_BY(mutex);
  std::function<Status()> health MW_GUARDED_BY(mutex);

  Response Answer(std::string_view path) {
    if (path == "/metrics") return {200, kMetricsType, registry->Serialize()};
    if (path == "/healthz") return AnswerHealth();
    Route route;
    {
      const MutexLock lock(mutex);
      const auto found = routes.find(path);
      if (found == routes.end()) return {404, kTextType, fmt::format("no page at {}\n", path)};
      route = found->second;
    }
    const Result<std::string> body = route.handler();
    if (body.has_value()) return {200, route.content_type, *body};
    return {HttpCodeOf(body.error()), kTextType, body.error().ToString() + "\n"};
  }

  Response AnswerHealth() {
    std::function<Status()> check;
    {
      const MutexLock lock(mutex);
      check = health;
    }
    const Status status = check ? check() : OkStatus();
    return {status.ok() ? 200 : 503, kTextType, status.ToString() + "\n"};
  }

  // civetweb's request callback. Non-zero: answered.
  static int OnRequest(mg_connection* connection) {
    const mg_request_info* request = mg_get_request_info(connection);
    auto* state = static_cast<State*>(request->user_data);
    const std::string_view method(request->request_method);
    if (method != "GET" && method != "HEAD") {
      Send(connection, {405, kTextType, "only GET is served here\n"}, true);
      return 1;
    }
    Send(connection, state->Answer(request->local_uri), method == "GET");
    return 1;
  }

  // civetweb prints its own complaints to stderr unless this claims them.
  static int OnMessage(const mg_connection*, const char*) { return 1; }
};

MetricsServer::MetricsServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(const MetricsServerOptions& options,
                                                            MetricsRegistry& registry) {
  if (options.port < 0 || options.port > 65535 || options.threads < 1 || options.request_ms < 1) {
    return Fail(InvalidArgument(
        fmt::format("metrics server: port={} threads={} request_ms={}; ports are 0..65535",
                    options.port, options.threads, options.request_ms)));
  }
  MW_ASSIGN_OR_RETURN(const SocketAddress wanted, ResolveNumeric(options.host, options.port));
  if (wanted.storage.ss_family == AF_INET6 && mg_check_feature(MG_FEATURES_IPV6) == 0) {
    return Fail(InvalidArgument(
        fmt::format("metrics server: this build serves metrics on IPv4 addresses only, not on {}; "
                    "turn the metrics off (port -1) or give an IPv4 address such as 127.0.0.1",
                    options.host)));
  }
  auto state = std::make_unique<State>();
  state->registry = &registry;
  const std::string address = FormatHostPort(NumericHost(options.host), options.port);
  const std::string threads = std::to_string(options.threads);
  const std::string request_ms = std::to_string(options.request_ms);
  std::array<const char*, 9> settings = {
      "listening_ports",  address.c_str(),     "num_threads", threads.c_str(), "request_timeout_ms",
      request_ms.c_str(), "enable_keep_alive", "no",          nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = State::OnRequest;
  callbacks.log_message = State::OnMessage;
  std::array<char, 256> text{};
  unsigned code = 0;
  mg_init_data init{&callbacks, state.get(), settings.data()};
  mg_error_data error{&code, text.data(), text.size()};
  state->context = mg_start2(&init, &error);
  if (state->context == nullptr) {
    MW_TRY(ProbeListen(options.host, options.port).WithContext("metrics server"));
    return Fail(Internal(fmt::format("metrics server on {}: {}", address, text.data())));
  }
  mg_server_port port{};
  MW_CHECK(mg_get_server_ports(state->context, 1, &port) == 1);
  state->port = port.port;
  state->address = *ResolveNumeric(options.host, port.port);  // cannot fail: it worked above
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(state)));
}

MetricsServer::~MetricsServer() {
  // civetweb's accepting thread looks at its stop flag when a connection comes or every 2 s: knock
  // until it has seen it.
  std::future<void> stopped =
      std::async(std::launch::async, [context = state_->context] { mg_stop(context); });
  do {
    Knock(state_->address);
  } while (stopped.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready);
}

int MetricsServer::port() const { return state_->port; }

void MetricsServer::AddRoute(const std::string& path, const std::string& content_type,
                             Handler handler) {
  MW_CHECK(!path.empty() && path[0] == '/') << "route " << path;
  const MutexLock lock(state_->mutex);
  state_->routes[path] = Route{content_type, std::move(handler)};
}

void MetricsServer::SetHealth(std::function<Status()> health) {
  const MutexLock lock(state_->mutex);
  state_->health = std::move(health);
}

}  // namespace meshwright
