#include "web/access.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "base/constant_time.h"
#include "base/sha256.h"
#include "base/text.h"

namespace meshwright::web {
namespace {

constexpr const char* kCookie = "meshwright_page";

// Nobody who does not know the key can make it, or add to what it says.
std::string Signature(const std::string& key, const std::string& text) {
  return Sha256Hex(key + "|" + Sha256Hex(key + "|page|" + text));
}

// "127.0.0.1:7780" -> "127.0.0.1"; "[::1]:7780" -> "[::1]".
std::string_view WithoutPort(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || bracket < colon);
  return has_port ? host.substr(0, colon) : host;
}

bool IsThisMachine(std::string_view host) {
  if (host == "localhost" || host == "[::1]") return true;
  const bool numeric = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return numeric && host.starts_with("127.");
}

// "https://host:1" -> "host:1".
std::string_view HostOfOrigin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

// Who was refused comes again from another port.
std::string WithoutCallersPort(const std::string& from) { return from.substr(0, from.rfind(':')); }

constexpr const char* kWrongToken =
    "wrong token: it is neither a viewer's nor an operator's of this controller";
constexpr const char* kOtherPage = "this came from another page";

// Programs say no Origin, browsers always do. "null" is no page of anybody.
bool IsOfThisPage(const HttpRequest& request) {
  const std::string origin = request.Header("origin");
  return origin.empty() || HostOfOrigin(origin) == request.Header("host");
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kNobody:
      return "nobody";
    case Role::kViewer:
      return "viewer";
    case Role::kOperator:
      return "operator";
  }
  return "nobody";
}

Role Access::RoleOfToken(const std::string& token) const {
  for (const Role role : {Role::kViewer, Role::kOperator}) {
    const std::string wanted = TokenOf(role).Now();
    if (!wanted.empty() && ConstantTimeEqual(token, wanted)) return role;
  }
  return Role::kNobody;
}

std::string Access::CookieOf(Role role, int64_t until_ms) const {
  const std::string text = fmt::format("{}.{}", RoleName(role), until_ms);
  return text + "." + Signature(TokenOf(role).Now(), text);
}

Role Access::RoleOfCookie(const std::string& cookie) const {
  const std::vector<std::string> parts = Split(cookie, '.');
  if (parts.size() != 3) return Role::kNobody;
  int64_t until_ms = 0;
  (void)std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), until_ms);
  if (until_ms <= clock_.UnixMs()) return Role::kNobody;
  for (const Role role : {Role::kViewer, Role::kOperator}) {
    if (TokenOf(role).empty() || parts[0] != RoleName(role)) continue;
    if (ConstantTimeEqual(cookie, CookieOf(role, until_ms))) return role;
  }
  return Role::kNobody;
}

Role Access::RoleOf(const HttpRequest& request) const {
  if (!wants_tokens()) return CheckHost(request).ok() ? Role::kOperator : Role::kNobody;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string authorization = request.Header("authorization");
  if (authorization.starts_with(kScheme)) return RoleOfToken(authorization.substr(kScheme.size()));
  return RoleOfCookie(request.Cookie(kCookie));
}

Status Access::CheckTries(const HttpRequest& request) const {
  const MutexLock lock(mutex_);
  const int64_t minute = clock_.NowMs() / 60'000;
  if (minute != std::exchange(minute_, minute)) wrong_.clear();
  const auto of = wrong_.find(WithoutCallersPort(request.from));
  const bool full = of == wrong_.end() && wrong_.size() >= kMostAddresses;
  if (!full && (of == wrong_.end() || of->second < kMostTries)) return OkStatus();
  return ResourceExhausted("too many wrong tokens; try again in a minute");
}

void Access::NoteWrong(const HttpRequest& request) const {
  const MutexLock lock(mutex_);
  ++wrong_[WithoutCallersPort(request.from)];
}

Status Access::CheckHost(const HttpRequest& request) const {
  const std::string host = request.Header("host");
  if (host.empty() || IsThisMachine(WithoutPort(host))) return OkStatus();
  return PermissionDenied(fmt::format(
      "this page answers under 127.0.0.1 and localhost, not under '{}'; behind a proxy start the "
      "controller with --page-token-file and --page-behind-tls",
      host.substr(0, 100)));
}

Status Access::CheckLook(const HttpRequest& request) const {
  if (!wants_tokens()) return CheckHost(request);
  const bool shows_token = !request.Header("authorization").empty();
  if (shows_token) MW_TRY(CheckTries(request));
  if (RoleOf(request) != Role::kNobody) return OkStatus();
  if (shows_token) {
    NoteWrong(request);
    return Unauthenticated(kWrongToken);
  }
  return Unauthenticated("this page wants a token: log in at /, or send 'Authorization: Bearer'");
}

Status Access::CheckAct(const HttpRequest& request) const {
  if (const Status status = CheckLook(request); !status.ok()) return status;
  const bool by_cookie = wants_tokens() && request.Header("authorization").empty();
  if (!IsOfThisPage(request) || (by_cookie && request.Header("origin").empty())) {
    return PermissionDenied("this came from another page, or says no Origin");
  }
  if (RoleOf(request) == Role::kOperator) return OkStatus();
  return PermissionDenied("a viewer may not do this: log in with the operator's token");
}

HttpReply Access::BackToPage(const std::string& cookie, int64_t age_s) const {
  HttpReply reply;
  reply.code = 303;
  reply.headers = {
      {"Location", "/"},
      {"Set-Cookie", fmt::format("{}={}; Path=/; Max-Age={}; HttpOnly; "
                                 "SameSite=Strict{}",
                                 kCookie, cookie, age_s, options_.secure ? "; Secure" : "")}};
  return reply;
}

Access::LoginAnswer Access::Login(const HttpRequest& request) {
  const auto refused = [](Status status) {
    return LoginAnswer{ReplyOf(status), Role::kNobody, std::move(status)};
  };
  if (!IsOfThisPage(request)) return refused(PermissionDenied(kOtherPage));
  if (Status status = CheckTries(request); !status.ok()) return refused(std::move(status));
  const Role role = RoleOfToken(FormValue(request.body, "token"));
  if (role != Role::kNobody) {
    return {BackToPage(CookieOf(role, clock_.UnixMs() + kCookieMs), kCookieMs / 1000), role,
            OkStatus()};
  }
  NoteWrong(request);
  HttpReply reply;
  reply.code = 303;
  reply.headers = {{"Location", "/?wrong=1"}};
  return {std::move(reply), role, Unauthenticated(kWrongToken)};
}

HttpReply Access::Logout(const HttpRequest& request) const {
  if (!IsOfThisPage(request)) return ReplyOf(PermissionDenied(kOtherPage));
  return BackToPage("", 0);
}

}  // namespace meshwright::web
