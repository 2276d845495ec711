#include "cli/otlp_post.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/os_error.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/utf8.h"
#include "cli/connect.h"

namespace meshwright::cli {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";
constexpr const char* kTraces = "/v1/traces";
constexpr size_t kMostReplyBytes = size_t{64} << 10;
constexpr size_t kMostSaidBytes = 300;  // of what a collector says, for people

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> AddressesOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) return Fail(Unavailable(fmt::format("{}: {}", host, ::gai_strerror(error))));
  return AddressList(found, &::freeaddrinfo);
}

// A connection to a collector, and until when all has to be done.
class Line {
 public:
  Line(const OtlpEndpoint& to, int64_t timeout_ms)
      : to_(to), timeout_ms_(timeout_ms), deadline_(Deadline::After(timeout_ms)) {}

  Status Dial() {
    MW_ASSIGN_OR_RETURN(const AddressList list, AddressesOf(to_.address));
    Status last = Unavailable("it has no address");
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
      last = DialOne(*at);
      if (last.ok() || deadline_.expired()) return last;
    }
    return Unavailable(
        fmt::format("nothing takes connections at {} ({}): start the collector there, with its "
                    "receiver otlp and the protocol http, or name another one",
                    to_.address, last.message()));
  }

  Status Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
        continue;
      }
      if (errno == EINTR) continue;
      // Who refuses a request may say so before it has read all of it.
      if (errno == EPIPE || errno == ECONNRESET) return OkStatus();
      if (errno != EAGAIN) return Unavailable(OsError(errno, to_.address).message());
      MW_TRY(Await(POLLOUT));
    }
    return OkStatus();
  }

  // All of the answer, without the body's end where it is very long.
  Result<std::string> Read() {
    std::string reply;
    std::array<char, 4096> block{};
    while (reply.size() < kMostReplyBytes && !IsWhole(reply)) {
      const ssize_t got = ::recv(fd_.get(), block.data(), block.size(), 0);
      if (got > 0) {
        reply.append(block.data(), static_cast<size_t>(got));
        continue;
      }
      if (got == 0) break;
      if (errno == EINTR) continue;
      if (errno != EAGAIN && !reply.empty()) break;
      if (errno != EAGAIN) return Fail(Unavailable(OsError(errno, to_.address).message()));
      MW_TRY(Await(POLLIN));
    }
    return reply;
  }

 private:
  Status DialOne(const addrinfo& at) {
    fd_ = UniqueFd(::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd_.valid()) return OsError(errno, "socket");
    if (::connect(fd_.get(), at.ai_addr, at.ai_addrlen) == 0) return OkStatus();
    if (errno != EINPROGRESS) return OsError(errno, "connect");
    MW_TRY(Await(POLLOUT));
    int error = 0;
    socklen_t size = sizeof(error);
    (void)::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? OkStatus() : OsError(error, "connect");
  }

  Status Await(int16_t events) {
    pollfd wanted{fd_.get(), events, 0};
    int ready = -1;
    do {
      const int64_t ms = std::min<int64_t>(deadline_.remaining_ms(), 60'000);
      ready = ::poll(&wanted, 1, static_cast<int>(ms));
    } while (ready <= 0 && !deadline_.expired());
    if (ready > 0) return OkStatus();
    return DeadlineExceeded(
        fmt::format("{} has not taken the spans within {}; look at the collector's own log",
                    to_.address, FormatDuration(static_cast<double>(timeout_ms_) / 1000)));
  }

  // By its Content-Length; without one it ends with the connection.
  static bool IsWhole(const std::string& reply) {
    const size_t body = reply.find("\r\n\r\n");
    if (body == std::string::npos) return false;
    std::string head = reply.substr(0, body);
    std::transform(head.begin(), head.end(), head.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    constexpr std::string_view kLength = "\r\ncontent-length:";
    const size_t at = head.find(kLength);
    if (at == std::string::npos) return false;
    const size_t begin = at + kLength.size();
    const auto bytes = ParseInt(Trim(head.substr(begin, head.find('\r', begin) - begin)));
    return bytes && *bytes >= 0 && reply.size() - body - 4 >= static_cast<size_t>(*bytes);
  }

  const OtlpEndpoint& to_;
  const int64_t timeout_ms_;
  const Deadline deadline_;
  UniqueFd fd_;
};

// "HTTP/1.1 200 OK" -> 200; none: it is no HTTP.
std::optional<int64_t> CodeOf(const std::string& reply) {
  if (!reply.starts_with("HTTP/1.") || reply.size() < 12) return std::nullopt;
  return ParseInt(reply.substr(9, 3));
}

// What the collector says about it, in a line.
std::string SaidIn(const std::string& reply) {
  const size_t body = reply.find("\r\n\r\n");
  if (body == std::string::npos) return "";
  std::string text(Trim(reply.substr(body + 4, kMostSaidBytes)));
  return text.empty() ? "" : ": " + Printable(AsUtf8(text, kMostSaidBytes));
}

// A collector that takes a part of the spans says so in a good answer.
Status CheckTaken(const OtlpEndpoint& to, const std::string& reply) {
  const size_t begin = reply.find('{', reply.find("\r\n\r\n"));
  const size_t end = reply.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return OkStatus();
  const auto answer = nlohmann::json::parse(reply.begin() + static_cast<int64_t>(begin),
                                            reply.begin() + static_cast<int64_t>(end) + 1, nullptr,
                                            /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("partialSuccess")) return OkStatus();
  const auto& part = answer["partialSuccess"];
  if (!part.is_object() || !part.contains("rejectedSpans")) return OkStatus();
  // Whole numbers of 64 bits are text in the JSON of protocol buffers.
  const auto& count = part["rejectedSpans"];
  const std::string rejected = count.is_string() ? count.get<std::string>() : count.dump();
  if (rejected == "0" || rejected.empty()) return OkStatus();
  const auto why = part.find("errorMessage");
  return FailedPrecondition(
      fmt::format("{} has refused {} of the spans{}", to.address, Printable(rejected),
                  why != part.end() && why->is_string()
                      ? ": " + Printable(why->get<std::string>().substr(0, kMostSaidBytes))
                      : ""));
}

Status Judge(const OtlpEndpoint& to, const std::string& reply) {
  if (reply.empty()) {
    return Unavailable(
        fmt::format("{} has closed the connection without an answer; the gRPC port of a collector "
                    "(4317) does so: name its HTTP port (4318)",
                    to.address));
  }
  const std::optional<int64_t> code = CodeOf(reply);
  if (!code) {
    return FailedPrecondition(fmt::format(
        "{} does not answer in HTTP: name the HTTP port of a collector (4318)", to.address));
  }
  if (*code >= 200 && *code < 300) return CheckTaken(to, reply);
  if (*code == 404 || *code == 405) {
    return FailedPrecondition(
        fmt::format("{} answers {}: it takes no spans there; a collector does at {}", to.Url(),
                    *code, kTraces));
  }
  // By the protocol the client may try these again.
  const bool later = *code == 429 || *code == 502 || *code == 503 || *code == 504;
  const std::string text = fmt::format("{} answers {}{}", to.Url(), *code, SaidIn(reply));
  return later ? Unavailable(text + "; send them again later") : FailedPrecondition(text);
}

}  // namespace

bool IsUrl(std::string_view to) { return to.starts_with(kHttp) || to.starts_with(kHttps); }

Result<OtlpEndpoint> ParseOtlpEndpoint(const std::string& url) {
  if (url.starts_with(kHttps)) {
    return Fail(InvalidArgument(fmt::format(
        "'{}': spans are sent in the clear only; send them to a collector on this host, which "
        "hands them on over TLS, for example http://127.0.0.1:4318",
        url)));
  }
  const std::string rest = url.substr(std::min(url.size(), kHttp.size()));
  const size_t slash = rest.find('/');
  OtlpEndpoint to{rest.substr(0, slash), slash == std::string::npos ? "" : rest.substr(slash)};
  const bool plain = std::all_of(to.path.begin(), to.path.end(),
                                 [](char c) { return c > ' ' && c < '\x7f' && c != '#'; });
  const bool user = to.address.find('@') != std::string::npos;
  if (!url.starts_with(kHttp) || user || !plain || !CheckAddress(to.address).ok()) {
    return Fail(InvalidArgument(fmt::format(
        "'{}' is no place for spans: write http://HOST:PORT or http://HOST:PORT/PATH, for example "
        "http://127.0.0.1:4318{}{}",
        Printable(url), kTraces,
        user ? "; no user and no password: they would be readable on the way" : "")));
  }
  if (to.path.empty() || to.path == "/") to.path = kTraces;
  return to;
}

Status PostOtlp(const OtlpEndpoint& to, std::string_view request, int64_t timeout_ms) {
  Line line(to, timeout_ms);
  MW_TRY(line.Dial());
  MW_TRY(
      line.Send(fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
                            "Content-Length: {}\r\nConnection: close\r\n\r\n",
                            to.path, to.address, request.size())));
  MW_TRY(line.Send(request));
  MW_ASSIGN_OR_RETURN(const std::string reply, line.Read());
  return Judge(to, reply);
}

}  // namespace meshwright::cli
