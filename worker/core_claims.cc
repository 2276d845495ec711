#include "worker/core_claims.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <utility>

namespace meshwright::worker {

UniqueFd ClaimName(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) return UniqueFd();
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a zero first: no file
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool claimed =
      fd.valid() && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
  return claimed ? std::move(fd) : UniqueFd();
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

CoreClaims CoreClaims::Take(int count, const std::string& realm) {
  CoreClaims claims;
  for (const int cpu : AllowedCpus()) {
    if (claims.cores_.size() == static_cast<size_t>(count)) break;
    UniqueFd socket = ClaimName(fmt::format("meshwright-{}-{}", realm, cpu));
    if (!socket.valid()) continue;
    claims.cores_.push_back(cpu);
    claims.sockets_.push_back(std::move(socket));
  }
  return claims.cores_.size() == static_cast<size_t>(count) ? std::move(claims) : CoreClaims();
}

}  // namespace meshwright::worker
