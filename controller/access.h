// Who may call what: the one table of methods and roles, and who a caller is.
//
// A caller shows a certificate of the cluster's authority, which names a role (security/subject.h),
// or a token, which stands for one. Where neither is asked for, on this machine, everyone may do
// everything.
//
//   looks     viewers and operators
//   acts      operators; written to the audit log
//   works     workers, under the name in their certificate
//   carries   operators and workers: what moves programs and data
//   sees      all three: what says which data there is
//
// Thread rule: thread-safe. Ownership: the audit log outlives it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/live_token.h"
#include "base/result.h"
#include "controller/audit_log.h"
#include "security/subject.h"

namespace meshwright::controller {

struct AccessOptions {
  std::string token;         // the cluster's; over TLS an operator's
  LiveToken viewer_token;    // empty: none
  LiveToken operator_token;  // empty: none
};

// What a call comes with.
struct Shown {
  std::string authorization;  // of the metadata
  bool over_tls = false;      // then a certificate or a token is asked for
  std::optional<security::Subject> certificate;
  std::string from;
};

struct Caller {
  std::optional<security::Role> role;  // none: may do everything
  std::string name;                    // in its certificate; empty: it has none
  std::string from;
};

struct Admission {
  Caller caller;
  // It has shown who it is. What such a caller asks for may be read, and written down, though it
  // may not have it; of strangers nothing is read.
  bool known = false;
  // kUnauthenticated saying what to show; kPermissionDenied naming the role that may.
  Status refusal;
};

class Access {
 public:
  // audit: null for none.
  Access(AccessOptions options, AuditLog* audit) : options_(std::move(options)), audit_(audit) {}

  // Whether who calls "/meshwright.v1.JobService/Submit" may. Writes nothing down.
  // REQUIRES: the method is in the table.
  Admission Admit(std::string_view method, const Shown& shown) const;
  // Writes a refusal down. `detail`: upon what the call would have acted, as far as was read.
  void Refused(std::string_view method, const Admission& admission,
               const std::string& detail) const;

  // Both at once, for calls of which nothing is read before. Errors: those of Admission::refusal.
  Result<Caller> Check(std::string_view method, const Shown& shown) const;

  // Writes a call down that acts. `detail`: upon what ("job 12"). Joins, renewals and registrations
  // that fail are refusals, of which the log takes so many in a second.
  void Answered(std::string_view method, const Caller& caller, const std::string& detail,
                const Status& answer) const;

  // OK when this caller may register as that worker. Errors: kPermissionDenied naming both.
  Status CheckWorkerName(const Caller& caller, const std::string& name) const;

 private:
  Result<Caller> Identify(const Shown& shown) const;

  const AccessOptions options_;
  AuditLog* const audit_;
};

}  // namespace meshwright::controller
