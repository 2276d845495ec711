// Where certificates lie when nobody says where.
//
//   $MESHWRIGHT_TLS_HOME, else $XDG_CONFIG_HOME/meshwright/tls, else ~/.config/meshwright/tls
//     ca/          the authority, with its key: on one machine, which signs
//     controller/  identities: ca.pem, cert.pem, key.pem (base/tls_identity.h)
//     operator/  viewer/  worker/  worker-NAME/
//
// Thread rule: pure.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "security/subject.h"

namespace meshwright::security {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// "" where there is no home.
std::string TlsHome(const Environment& environment);

// The folder of an identity there. `name`: of one of several workers of a host.
std::string IdentityPlace(const std::string& home, Role role, const std::string& name = "");

// Whether the folder says whom to believe and not who one is: what a client with a token needs.
bool HasOnlyAuthority(const std::string& folder);

// Whether the host of "host:port", or a host alone, is this machine for certain; so are sockets of
// the file system.
bool IsLoopback(const std::string& address);

}  // namespace meshwright::security
