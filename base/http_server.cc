#include "base/http_server.h"

#include <civetweb.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/listen_address.h"
#include "base/unique_fd.h"

namespace meshwright {
namespace {

constexpr size_t kWriteBytes = 8 << 10;

const char* ReasonOf(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

// In pieces, each of which has the time of a request: a reader that takes none of one is gone.
bool WriteAll(mg_connection* connection, std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = std::min(text.size(), kWriteBytes);
    if (mg_write(connection, text.data(), bytes) != static_cast<int>(bytes)) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

class Stream final : public HttpStream {
 public:
  explicit Stream(mg_connection* connection) : connection_(connection) {}
  bool Write(std::string_view text) override {
    live_ = live_ && WriteAll(connection_, text);
    return live_;
  }

 private:
  mg_connection* connection_;
  bool live_ = true;
};

std::string HeaderOf(const HttpReply& reply) {
  std::string header = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", reply.code,
                                   ReasonOf(reply.code), reply.content_type);
  if (!reply.stream) header += fmt::format("Content-Length: {}\r\n", reply.body.size());
  bool caches = false;
  for (const auto& [name, value] : reply.headers) {
    header += fmt::format("{}: {}\r\n", name, value);
    caches = caches || name == "Cache-Control";
  }
  if (!caches) header += "Cache-Control: no-store\r\n";
  return header + "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
}

void Send(mg_connection* connection, const HttpReply& reply, bool with_body) {
  if (!WriteAll(connection, HeaderOf(reply)) || !with_body) return;
  if (!reply.stream) {
    WriteAll(connection, reply.body);
    return;
  }
  Stream stream(connection);
  reply.stream(stream);
}

// Opens and drops a connection: makes a thread that waits in accept look around.
void Knock(const SocketAddress& address) {
  const UniqueFd knock(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)connect(knock.get(), address.get(), address.bytes);
}

std::string CallerOf(const mg_request_info& info) {
  const std::string address = info.remote_addr;
  const bool v6 = address.find(':') != std::string::npos;
  return fmt::format("{}:{}", v6 ? "ipv6" : "ipv4", FormatHostPort(address, info.remote_port));
}

HttpReply Refusal(int code, const std::string& text) {
  HttpReply reply;
  reply.code = code;
  reply.body = text + "\n";
  return reply;
}

}  // namespace

struct HttpServer::State {
  Handler handler;
  HttpServerOptions options;
  std::atomic<int> bodies = 0;  // that are being read
  mg_context* context = nullptr;
  SocketAddress address;  // where it listens, with the port chosen
  int port = 0;

  // What cannot be answered by the handler; none: the request is whole.
  std::optional<HttpReply> Read(mg_connection* connection, HttpRequest& request) {
    const mg_request_info* info = mg_get_request_info(connection);
    request.method = info->request_method;
    request.path = info->local_uri == nullptr ? "/" : info->local_uri;
    request.from = CallerOf(*info);
    request.query = info->query_string == nullptr ? "" : info->query_string;
    for (int i = 0; i < info->num_headers; ++i) {
      request.headers[LowerCase(info->http_headers[i].name)] = info->http_headers[i].value;
    }
    if (request.method != "POST" && request.method != "PUT") return std::nullopt;
    if (!request.Header("transfer-encoding").empty()) {
      return Refusal(411, "send the body with its Content-Length");
    }
    const std::string length = request.Header("content-length");
    int64_t bytes = 0;
    const char* const end = length.data() + length.size();
    const auto parsed = std::from_chars(length.data(), end, bytes);
    if (!length.empty() && (parsed.ec != std::errc() || parsed.ptr != end || bytes < 0)) {
      return Refusal(400, "Content-Length is no number");
    }
    if (bytes > options.body_bytes) {
      return Refusal(413, fmt::format("a body may have {} bytes", options.body_bytes));
    }
    request.body.resize(static_cast<size_t>(bytes));
    if (bytes == 0) return std::nullopt;
    const int most = std::max(1, options.threads / 4);
    std::optional<HttpReply> refusal;
    if (bodies.fetch_add(1) < most) {
      refusal = ReadBody(connection, request.body);
    } else {
      refusal = Refusal(503, "too many requests are coming in already; try again");
    }
    bodies.fetch_sub(1);
    return refusal;
  }

  // mg_read begins its time anew with every byte that comes, until it has all that it was asked
  // for: one byte at a time, it waits for request_ms at most, and the deadline is kept.
  std::optional<HttpReply> ReadBody(mg_connection* connection, std::string& body) const {
    const Deadline deadline = Deadline::After(options.request_ms, *options.clock);
    for (char& byte : body) {
      if (deadline.expired()) {
        return Refusal(408, fmt::format("the body did not come within {} ms", options.request_ms));
      }
      if (mg_read(connection, &byte, 1) != 1) return Refusal(400, "the body did not come whole");
    }
    return std::nullopt;
  }

  // civetweb's request callback. Non-zero: answered.
  static int OnRequest(mg_connection* connection) {
    auto* state = static_cast<State*>(mg_get_request_info(connection)->user_data);
    HttpRequest request;
    std::optional<HttpReply> reply = state->Read(connection, request);
    if (!reply) reply = state->handler(request);
    Send(connection, *reply, request.method != "HEAD");
    // Else civetweb would read what is left of a body for as long as it comes.
    mg_close_connection(connection);
    return 1;
  }

  // civetweb prints its own complaints to stderr unless this claims them.
  static int OnMessage(const mg_connection*, const char*) { return 1; }
};

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                      Handler handler) {
  if (options.port < 0 || options.port > 65535 || options.threads < 1 || options.request_ms < 1) {
    return Fail(InvalidArgument(
        fmt::format("http server: port={} threads={} request_ms={}; ports are 0..65535",
                    options.port, options.threads, options.request_ms)));
  }
  MW_ASSIGN_OR_RETURN(const SocketAddress wanted, ResolveNumeric(options.host, options.port));
  if (wanted.storage.ss_family == AF_INET6 && mg_check_feature(MG_FEATURES_IPV6) == 0) {
    return Fail(InvalidArgument(
        fmt::format("http server: this build serves metrics on IPv4 addresses only, not on {}; "
                    "turn the metrics off (port -1) or give an IPv4 address such as 127.0.0.1",
                    options.host)));
  }
  auto state = std::make_unique<State>();
  state->handler = std::move(handler);
  state->options = options;
  const std::string address = FormatHostPort(NumericHost(options.host), options.port);
  const std::string threads = std::to_string(options.threads);
  const std::string request_ms = std::to_string(options.request_ms);
  const std::string header_bytes = std::to_string(options.header_bytes);
  std::array<const char*, 11> settings = {"listening_ports",
                                          address.c_str(),
                                          "num_threads",
                                          threads.c_str(),
                                          "request_timeout_ms",
                                          request_ms.c_str(),
                                          "max_request_size",
                                          header_bytes.c_str(),
                                          "enable_keep_alive",
                                          "no",
                                          nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = State::OnRequest;
  callbacks.log_message = State::OnMessage;
  std::array<char, 256> text{};
  unsigned code = 0;
  mg_init_data init{&callbacks, state.get(), settings.data()};
  mg_error_data error{&code, text.data(), text.size()};
  state->context = mg_start2(&init, &error);
  if (state->context == nullptr) {
    MW_TRY(ProbeListen(options.host, options.port).WithContext("http server"));
    return Fail(Internal(fmt::format("http server on {}: {}", address, text.data())));
  }
  mg_server_port port{};
  MW_CHECK(mg_get_server_ports(state->context, 1, &port) == 1);
  state->port = port.port;
  state->address = *ResolveNumeric(options.host, port.port);  // cannot fail: it worked above
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() {
  // civetweb's accepting thread looks at its stop flag when a connection comes or every 2 s: knock
  // until it has seen it.
  std::future<void> stopped =
      std::async(std::launch::async, [context = state_->context] { mg_stop(context); });
  do {
    Knock(state_->address);
  } while (stopped.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready);
}

int HttpServer::port() const { return state_->port; }

}  // namespace meshwright
