// Who a process is towards others: its certificate with its key, and the authority that it trusts.
//
// On disk a folder with three files in PEM: ca.pem (whom to believe), cert.pem (who I am, then the
// certificates up to the authority if there are any between), key.pem (the private key, mode 0600).
// `meshwright cert` makes such folders; they are read anew when the files change.
//
// Thread rule: a value; loading is thread-safe.
#pragma once

#include <string>

#include "base/result.h"

namespace meshwright {

struct TlsIdentity {
  std::string ca_pem;
  std::string cert_pem;
  std::string key_pem;

  bool empty() const { return cert_pem.empty(); }
  friend bool operator==(const TlsIdentity&, const TlsIdentity&) = default;
};

// Reads ca.pem, cert.pem and key.pem of the folder.
// Errors: kPermissionDenied when others can read the key or write to the folder, with the command
// that mends it; kInvalidArgument when a file is not PEM or the key is not that of the certificate;
// kNotFound naming the file.
Result<TlsIdentity> LoadTlsIdentity(const std::string& folder);

}  // namespace meshwright
