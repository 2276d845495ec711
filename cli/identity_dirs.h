// Which identity a command shows, and whether it must have one.
//
// What is named by --tls-dir counts. Else there is none on this machine (loopback, sockets of the
// file system); over a network it is that of $MESHWRIGHT_TLS_DIR, or the one in the place of its
// role (security/places.h), and without one a command goes no further, unless --insecure is said.
// A controller that others reach, too, wants certificates of its neighbours on this machine as
// well: who has one in its place asks it for a moment whether it does.
//
// Thread rule: reads files, and dials.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/security_args.h"
#include "config/environment.h"

namespace meshwright::cli {

// The folder; "": in the clear. Errors: kInvalidArgument: there is none and there must be, with
// the command that makes one; those of security::CheckIdentity.
Result<std::string> ClientIdentity(const TlsArgs& args, const std::string& address,
                                   const config::Environment& environment);

// The name in the certificate of that folder; "" where there is none.
std::string NameInIdentity(const std::string& folder);

// What `meshwright cert init` makes, with names or addresses of the controller. Errors:
// kAlreadyExists; those of writing.
Status MakeCertificates(const std::string& home, const std::vector<std::string>& hosts);

struct ControllerIdentity {
  std::string tls_dir;        // "": in the clear
  std::string authority_dir;  // "": it signs nothing
};
// Without certificates it is the controller that refuses (controller/auth.h).
ControllerIdentity FindControllerIdentity(const TlsArgs& args, const std::string& authority_dir,
                                          const std::string& bind,
                                          const config::Environment& environment);

// Whether a controller answers there by TLS and believes this identity.
bool WantsCertificate(const std::string& address, const std::string& folder);

struct WorkerIdentityAsk {
  std::string address;  // of the controller
  std::string name;     // empty: that of the certificate, or of the host
  std::string join;     // the token, or @FILE; empty: none
};
struct WorkerIdentity {
  std::string tls_dir;  // "": in the clear
  std::string name;     // as asked for, or that of the certificate
};
// Joins when there is a token and no identity that holds. Errors: those above; those of
// worker::Join.
Result<WorkerIdentity> FindWorkerIdentity(const TlsArgs& args, const WorkerIdentityAsk& ask,
                                          const config::Environment& environment);

}  // namespace meshwright::cli
