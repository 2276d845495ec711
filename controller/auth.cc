#include "controller/auth.h"

#include <fmt/format.h>

#include "base/constant_time.h"

namespace meshwright::controller {

Status CheckAuthorization(std::string_view token, std::string_view authorization) {
  if (token.empty()) return OkStatus();
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.empty()) {
    return Unauthenticated(
        "this controller wants a token; pass --token-file FILE or set MESHWRIGHT_TOKEN");
  }
  if (authorization.substr(0, kScheme.size()) != kScheme ||
      !ConstantTimeEqual(authorization.substr(kScheme.size()), token)) {
    return Unauthenticated(
        "the token is wrong; use the token that the controller was started with (--token-file)");
  }
  return OkStatus();
}

bool IsLoopbackBind(const std::string& bind) {
  return bind == "localhost" || bind == "::1" || bind == "[::1]" || bind.rfind("127.", 0) == 0;
}

Status CheckBind(const std::string& bind, const BindGuard& guard) {
  if (IsLoopbackBind(bind) || guard.certificates) return OkStatus();
  if (!guard.insecure) {
    return InvalidArgument(fmt::format(
        "binding to {} lets other machines in, and there are no certificates; `meshwright cert "
        "init` makes them, and then the same command works; or bind to 127.0.0.1, or say "
        "--insecure "
        "to have tokens, programs and data pass the network in the clear",
        bind));
  }
  if (guard.token) return OkStatus();
  return InvalidArgument(
      fmt::format("binding to {} with --insecure lets other machines in, and there is no token; "
                  "pass --token-file FILE, or bind to 127.0.0.1",
                  bind));
}

}  // namespace meshwright::controller
