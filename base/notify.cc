#include "base/notify.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/os_error.h"

namespace meshwright {
namespace {

constexpr const char* kSocketVariable = "NOTIFY_SOCKET";
constexpr const char* kSilenceVariable = "WATCHDOG_USEC";
constexpr const char* kPidVariable = "WATCHDOG_PID";

Result<int64_t> NumberOf(const char* variable, const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number > 0) return number;
  return Fail(InvalidArgument(fmt::format(
      "${} is '{}', which is no positive number; the service manager sets it", variable, text)));
}

// The name of the socket as the kernel wants it.
Result<std::string> AddressOf(std::string name) {
  const bool abstract = name[0] == '@';
  if ((!abstract && name[0] != '/') || name.size() < 2 ||
      name.size() >= sizeof(sockaddr_un::sun_path)) {
    return Fail(InvalidArgument(
        fmt::format("${} is '{}'; it has to be a path from / on, or @ and a name, of fewer than {} "
                    "bytes",
                    kSocketVariable, name, sizeof(sockaddr_un::sun_path))));
  }
  if (abstract) name[0] = '\0';
  return name;
}

// How often a sign of life is due; 0: never.
Result<int64_t> AliveEveryMs(const Notifier::Environment& environment) {
  const std::optional<std::string> silence = environment(kSilenceVariable);
  if (!silence || silence->empty()) return 0;
  MW_ASSIGN_OR_RETURN(const int64_t silence_us, NumberOf(kSilenceVariable, *silence));
  if (const auto pid = environment(kPidVariable); pid && !pid->empty()) {
    MW_ASSIGN_OR_RETURN(const int64_t watched, NumberOf(kPidVariable, *pid));
    if (watched != ::getpid()) return 0;
  }
  return std::max<int64_t>(silence_us / 2000, 1);
}

}  // namespace

Result<Notifier> Notifier::Open(const Environment& environment) {
  Notifier notifier;
  const std::optional<std::string> name = environment(kSocketVariable);
  if (!name || name->empty()) return notifier;
  MW_ASSIGN_OR_RETURN(notifier.address_, AddressOf(*name));
  MW_ASSIGN_OR_RETURN(notifier.alive_every_ms_, AliveEveryMs(environment));
  notifier.socket_.Reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!notifier.socket_.valid()) {
    return Fail(OsError(errno, "a socket to the service manager"));
  }
  return notifier;
}

Status Notifier::Send(std::string_view assignment, std::string_view state) const {
  if (!socket_.valid()) return OkStatus();
  std::string message(assignment);
  if (!state.empty()) {
    if (!message.empty()) message += '\n';
    message += "STATUS=";
    // A line end would begin another assignment.
    for (const char c : state) message += c == '\n' ? ' ' : c;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  if (::sendto(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), bytes) < 0) {
    return Unavailable(
        fmt::format("the service manager does not take '{}': {}", message, std::strerror(errno)));
  }
  return OkStatus();
}

}  // namespace meshwright
