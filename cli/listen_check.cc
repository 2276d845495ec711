#include "cli/listen_check.h"

#include <fmt/format.h>

#include "base/listen_address.h"

namespace meshwright::cli {

Status CheckListen(const std::string& host, int port, const std::string& port_option) {
  if (port < 0) return OkStatus();
  const std::string numeric = NumericHost(host);
  if (const auto known = ResolveNumeric(numeric, port); !known) {
    return known.error().WithContext("--bind");
  }
  const Status probed = ProbeListen(numeric, port);
  switch (probed.code()) {
    case StatusCode::kOk:
      return OkStatus();
    case StatusCode::kAlreadyExists:
      return FailedPrecondition(
          fmt::format("{} is in use; stop the process that listens there, or choose another {} (0 "
                      "picks one)",
                      FormatHostPort(host, port), port_option));
    case StatusCode::kInvalidArgument:
      return FailedPrecondition(
          fmt::format("--bind {} is not an address of this host; choose one that `ip address` "
                      "shows, or 0.0.0.0 for all of them",
                      host));
    case StatusCode::kPermissionDenied:
      return FailedPrecondition(
          fmt::format("{} is not allowed; choose a {} above 1023 (0 picks one)",
                      FormatHostPort(host, port), port_option));
    default:
      return FailedPrecondition(fmt::format("{} {}: {}", port_option, port, probed.message()));
  }
}

}  // namespace meshwright::cli
