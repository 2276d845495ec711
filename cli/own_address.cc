#include "cli/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "security/places.h"

namespace meshwright::cli {
namespace {

bool IsV6(const std::string& text) { return text.find(':') != std::string::npos; }

// Known on one wire only, or on this machine.
bool IsLocal(const std::string& text) {
  return security::IsLoopback(text) || text.starts_with("169.254.") || text.starts_with("fe80:");
}

std::string AddressText(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return "";
  }
  const char* const made =
      ::inet_ntop(address->sa_family, bytes, text.data(), static_cast<socklen_t>(text.size()));
  return made == nullptr ? "" : made;
}

}  // namespace

std::vector<OwnAddress> OwnAddresses() {
  std::vector<OwnAddress> all;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return all;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> first(raw, ::freeifaddrs);
  for (const ifaddrs* each = first.get(); each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    std::string text = AddressText(each->ifa_addr);
    if (!text.empty()) all.push_back({std::move(text), (each->ifa_flags & IFF_UP) != 0});
  }
  return all;
}

std::string DialableAddress(const std::string& bind, const std::vector<OwnAddress>& own) {
  if (bind != "0.0.0.0" && bind != "::" && bind != "[::]") return bind;
  std::string found;
  for (const OwnAddress& address : own) {
    if (!address.up || IsLocal(address.text)) continue;
    if (!IsV6(address.text)) return address.text;
    if (found.empty() && bind != "0.0.0.0") found = address.text;
  }
  return found;
}

}  // namespace meshwright::cli
