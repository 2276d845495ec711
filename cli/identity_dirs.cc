#include "cli/identity_dirs.h"

#include <fmt/format.h>

#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/tls_identity.h"
#include "security/certificate.h"
#include "security/places.h"
#include "security/tls_probe.h"

namespace meshwright::cli {
namespace {

using security::Role;

// Over a network the environment's counts, too.
std::string NamedDir(const TlsArgs& args, const std::string& address,
                     const config::Environment& environment) {
  if (!args.dir.empty() || args.insecure || security::IsLoopback(address)) return args.dir;
  return environment("MESHWRIGHT_TLS_DIR").value_or("");
}

bool HasIdentity(const std::string& folder) { return FileExists(folder + "/cert.pem"); }

Status CheckFolder(const std::string& folder, const std::vector<Role>& roles) {
  MW_ASSIGN_OR_RETURN(const TlsIdentity identity, LoadTlsIdentity(folder));
  const auto subject = security::CheckIdentity(identity, roles, SystemClock().UnixMs() / 1000);
  return subject.has_value() ? OkStatus() : subject.error().WithContext(folder);
}

}  // namespace

bool WantsCertificate(const std::string& address, const std::string& folder) {
  constexpr int64_t kAskMs = 1000;
  return security::ExplainRefusal(address, folder, Deadline::After(kAskMs)).ok();
}

Result<std::string> ClientIdentity(const TlsArgs& args, const std::string& address,
                                   const config::Environment& environment) {
  const std::vector<Role> roles = {Role::kOperator, Role::kViewer};
  if (address.rfind("unix:", 0) == 0) return std::string();
  if (const std::string named = NamedDir(args, address, environment); !named.empty()) {
    // A token says who it is, then.
    if (security::HasOnlyAuthority(named)) return named;
    MW_TRY(CheckFolder(named, roles));
    return named;
  }
  if (args.insecure) return std::string();
  const std::string home = security::TlsHome(environment);
  const bool network = !security::IsLoopback(address);
  for (const Role role : roles) {
    const std::string place = security::IdentityPlace(home, role);
    if (home.empty() || !HasIdentity(place)) continue;
    if (!network && !WantsCertificate(address, place)) continue;
    MW_TRY(CheckFolder(place, roles));
    return place;
  }
  if (!network) return std::string();
  return Fail(InvalidArgument(fmt::format(
      "{} is on another machine, and there is no certificate to show to it; on the controller's "
      "host `meshwright cert issue operator NAME` makes a folder, which belongs to {} here (or "
      "name "
      "it by --tls-dir); --insecure does without, in the clear",
      address,
      home.empty() ? "~/.config/meshwright/tls/operator"
                   : security::IdentityPlace(home, Role::kOperator))));
}

std::string NameInIdentity(const std::string& folder) {
  if (folder.empty()) return "";
  const Result<TlsIdentity> identity = LoadTlsIdentity(folder);
  if (!identity.has_value() || identity->cert_pem.empty()) return "";
  const auto facts = security::ReadCertificate(identity->cert_pem);
  return facts.has_value() && facts->subject ? facts->subject->name : "";
}

ControllerIdentity FindControllerIdentity(const TlsArgs& args, const std::string& authority_dir,
                                          const std::string& bind,
                                          const config::Environment& environment) {
  ControllerIdentity found;
  const std::string home = security::TlsHome(environment);
  found.tls_dir = NamedDir(args, bind, environment);
  if (found.tls_dir.empty()) {
    const std::string place = security::IdentityPlace(home, Role::kController);
    const bool wanted = !args.insecure && !security::IsLoopback(bind);
    if (wanted && !home.empty() && HasIdentity(place)) found.tls_dir = place;
  }
  if (found.tls_dir.empty()) return found;
  found.authority_dir = authority_dir;
  if (!authority_dir.empty()) return found;
  // Beside its identity, as `cert init` puts them.
  for (const std::string& place : {found.tls_dir + "/../ca", home + "/ca"}) {
    if (FileExists(place + "/key.pem")) {
      found.authority_dir = place;
      break;
    }
  }
  return found;
}

}  // namespace meshwright::cli
