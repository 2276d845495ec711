// How a worker comes by its certificate, and keeps it valid.
//
// It joins once: a token lets it have a certificate signed by the controller, which it checks by
// the fingerprint in the token. From then on it has a new one signed whenever a third of the old
// one's life is left, with the key that it has. Connections read the files anew (security/grpc);
// those that are there stay, so no step is lost.
//
// Thread rule: Join blocks, while no controller answers for 30 s. A keeper is started and destroyed
// on one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "base/result.h"
#include "security/subject.h"

namespace meshwright::worker {

struct NewCertificate {
  std::string cert_pem;
  std::string ca_pem;
};

struct JoinOptions {
  std::string address;  // of the controller, host:port
  std::string token;
  std::string name;    // of the worker
  std::string folder;  // where the identity goes
};
// Errors: those of security::FetchAuthority; of the controller (controller/trust.h), naming what to
// do; of writing.
Status Join(const JoinOptions& options);

// The controller's answer to who shows the identity in the folder. Errors: the controller's;
// kUnavailable.
Result<NewCertificate> AskRenewal(const std::string& address, const std::string& folder,
                                  const std::string& request_pem);

class IdentityKeeper {
 public:
  using Ask = std::function<Result<NewCertificate>(const std::string& request_pem)>;
  // ask: as AskRenewal.
  IdentityKeeper(std::string folder, Ask ask, const Clock& clock = SystemClock())
      : folder_(std::move(folder)), ask_(std::move(ask)), clock_(clock) {}

  // Looks from now on, every ten minutes, until it is destroyed.
  void Start();
  // Renews the certificate if it is time; whether it did. Errors: those of reading, asking,
  // writing: it is tried again at the next look.
  Result<bool> Look();

 private:
  void LookLater();

  const std::string folder_;
  const Ask ask_;
  const Clock& clock_;
  Executor thread_{"mw-identity"};  // last: it looks at the rest
};

}  // namespace meshwright::worker
