#include "security/places.h"

#include "base/file.h"
#include "base/listen_address.h"

namespace meshwright::security {

std::string TlsHome(const Environment& environment) {
  if (const auto home = environment("MESHWRIGHT_TLS_HOME"); home && !home->empty()) return *home;
  if (const auto folder = environment("XDG_CONFIG_HOME"); folder && !folder->empty()) {
    return *folder + "/meshwright/tls";
  }
  const auto home = environment("HOME");
  return home && !home->empty() ? *home + "/.config/meshwright/tls" : "";
}

std::string IdentityPlace(const std::string& home, Role role, const std::string& name) {
  std::string place = home + "/" + std::string(RoleName(role));
  if (!name.empty()) place += "-" + name;
  return place;
}

bool HasOnlyAuthority(const std::string& folder) {
  return FileExists(folder + "/ca.pem") && !FileExists(folder + "/cert.pem");
}

bool IsLoopback(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  const size_t colon = address.rfind(':');
  const bool many = colon != std::string::npos && address.find(':') != colon;  // IPv6
  const bool bracketed = !address.empty() && address.front() == '[';
  std::string host = address;
  if (bracketed) {
    host = address.substr(0, address.find(']') + 1);
  } else if (colon != std::string::npos && !many) {
    host = address.substr(0, colon);
  }
  host = NumericHost(host);
  // A name may begin so, too: "127.example.org" is another machine.
  return host == "::1" || (host.rfind("127.", 0) == 0 && ResolveNumeric(host, 0).has_value());
}

}  // namespace meshwright::security
