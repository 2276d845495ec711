// Whether the connections of the data plane are mutual TLS, and by which identity.
//
// One object is the choice: a listener, a fabric or a door that has a Tls speaks TLS 1.3 on every
// connection and believes who shows a certificate that the cluster's authority gave to a worker
// (the URI meshwright://worker/NAME among its names); without one, bytes go as they are. Shared
// memory between processes of a host is untouched. A connection that was made stays when files
// change; the next one is made by the new certificate, so that rotation loses no step.
//
// Thread rule: thread-safe. Ownership: shared by all that speak by it.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace meshwright::collective {

class Tls {
 public:
  virtual ~Tls() = default;
};

// folder: of an identity (base/tls_identity.h), which is read anew when its certificate changes.
// Errors: those of LoadTlsIdentity; kInvalidArgument naming what OpenSSL does not take.
Result<std::shared_ptr<Tls>> MakeTls(const std::string& folder);

}  // namespace meshwright::collective
