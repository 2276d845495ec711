#include "controller/access.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>

#include "base/check.h"
#include "base/constant_time.h"
#include "controller/auth.h"

namespace meshwright::controller {
namespace {

using security::Role;

enum class Act : uint8_t { kLook, kAct, kWork, kCarry, kSee, kJoin, kRenew };

const std::map<std::string_view, Act>& Methods() {
  static const std::map<std::string_view, Act> methods = {
      {"/meshwright.v1.WorkerService/Session", Act::kWork},
      {"/meshwright.v1.BlobService/Has", Act::kCarry},
      {"/meshwright.v1.BlobService/Put", Act::kAct},
      {"/meshwright.v1.BlobService/Get", Act::kCarry},
      {"/meshwright.v1.BlobService/PutTiles", Act::kWork},
      {"/meshwright.v1.CheckpointService/Put", Act::kWork},
      {"/meshwright.v1.CheckpointService/Get", Act::kCarry},
      // The same call for what says what there is, and is no data.
      {"/meshwright.v1.CheckpointService/Get manifest", Act::kSee},
      {"/meshwright.v1.CheckpointService/List", Act::kLook},
      {"/meshwright.v1.CheckpointService/Remove", Act::kAct},
      {"/meshwright.v1.JobService/Submit", Act::kAct},
      {"/meshwright.v1.JobService/Get", Act::kLook},
      {"/meshwright.v1.JobService/Describe", Act::kLook},
      {"/meshwright.v1.JobService/List", Act::kLook},
      {"/meshwright.v1.JobService/Cancel", Act::kAct},
      {"/meshwright.v1.JobService/Pause", Act::kAct},
      {"/meshwright.v1.JobService/Resume", Act::kAct},
      {"/meshwright.v1.JobService/Record", Act::kAct},
      {"/meshwright.v1.JobService/Story", Act::kLook},
      {"/meshwright.v1.JobService/Hang", Act::kLook},
      {"/meshwright.v1.JobService/Watch", Act::kLook},
      {"/meshwright.v1.JobService/Interact", Act::kAct},
      {"/meshwright.v1.JobFileService/Resolve", Act::kAct},
      {"/meshwright.v1.LogService/Tail", Act::kLook},
      {"/meshwright.v1.AdminService/OrderWorker", Act::kAct},
      {"/meshwright.v1.AdminService/Workers", Act::kLook},
      {"/meshwright.v1.AdminService/State", Act::kLook},
      {"/meshwright.v1.AdminService/WorkerLog", Act::kLook},
      {"/meshwright.v1.AdminService/Metrics", Act::kLook},
      {"/meshwright.v1.TrustService/Join", Act::kJoin},
      {"/meshwright.v1.TrustService/Renew", Act::kRenew},
  };
  return methods;
}

Act ActOf(std::string_view method) {
  const auto it = Methods().find(method);
  MW_CHECK(it != Methods().end()) << "method " << std::string(method) << " is in no table";
  return it->second;
}

bool May(Role role, Act act) {
  switch (act) {
    case Act::kLook:
      return role == Role::kViewer || role == Role::kOperator;
    case Act::kAct:
      return role == Role::kOperator;
    case Act::kWork:
    case Act::kRenew:
      return role == Role::kWorker;
    case Act::kCarry:
      return role == Role::kOperator || role == Role::kWorker;
    case Act::kSee:
      return role == Role::kViewer || role == Role::kOperator || role == Role::kWorker;
    case Act::kJoin:
      return true;
  }
  return false;
}

std::string_view WhoMay(Act act) {
  switch (act) {
    case Act::kLook:
      return "a viewer or an operator";
    case Act::kAct:
      return "an operator";
    case Act::kCarry:
      return "an operator or a worker";
    case Act::kSee:
      return "a viewer, an operator or a worker";
    default:
      return "a worker with a certificate";
  }
}

bool IsToken(const std::string& token, std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  return !token.empty() && authorization.starts_with(kScheme) &&
         ConstantTimeEqual(authorization.substr(kScheme.size()), token);
}

std::string WhoIs(const Caller& caller) {
  if (!caller.role) return "this caller";
  if (!caller.name.empty()) return security::Describe({*caller.role, caller.name});
  return fmt::format("the token of a {}", security::RoleName(*caller.role));
}

}  // namespace

Result<Caller> Access::Identify(const Shown& shown) const {
  if (shown.certificate)
    return Caller{shown.certificate->role, shown.certificate->name, shown.from};
  if (IsToken(options_.viewer_token.Now(), shown.authorization)) {
    return Caller{Role::kViewer, "", shown.from};
  }
  if (IsToken(options_.operator_token.Now(), shown.authorization)) {
    return Caller{Role::kOperator, "", shown.from};
  }
  if (!shown.over_tls) {
    MW_TRY(CheckAuthorization(options_.token, shown.authorization));
    return Caller{std::nullopt, "", shown.from};
  }
  if (IsToken(options_.token, shown.authorization)) return Caller{Role::kOperator, "", shown.from};
  if (!shown.authorization.empty()) {
    return Fail(Unauthenticated(
        "the token is not this controller's; take the one in the file that it was started with "
        "(--token-file, --operator-token-file or --page-token-file), or a certificate "
        "(--tls-dir)"));
  }
  return Fail(Unauthenticated(
      "this controller wants a certificate of its cluster or a token: `meshwright cert issue "
      "operator NAME` on its host makes one (--tls-dir); a worker joins with --join"));
}

namespace {

// People ask for a command, and know nothing of its calls.
std::string_view WhatFor(std::string_view method) {
  for (const std::string_view first : {"BlobService/Has", "JobFileService/Resolve"}) {
    if (method.ends_with(first)) return ", with which submitting a job begins";
  }
  return "";
}

}  // namespace

Admission Access::Admit(std::string_view method, const Shown& shown) const {
  const Act act = ActOf(method);
  if (act == Act::kJoin) return {Caller{std::nullopt, "", shown.from}, true, OkStatus()};
  auto caller = Identify(shown);
  if (!caller.has_value()) {
    return {Caller{std::nullopt, "", shown.from}, false, internal::ToStatus(caller)};
  }
  // Where everyone may do everything, nobody has a certificate to renew.
  const bool may = caller->role ? May(*caller->role, act) : act != Act::kRenew;
  if (may) return {*std::move(caller), true, OkStatus()};
  const Status refusal = PermissionDenied(
      fmt::format("{} may not call {}{}: that is for {}", WhoIs(*caller),
                  method.substr(method.rfind('.') + 1), WhatFor(method), WhoMay(act)));
  return {*std::move(caller), true, refusal};
}

void Access::Refused(std::string_view method, const Admission& admission,
                     const std::string& detail) const {
  MW_CHECK(!admission.refusal.ok()) << "a refusal of what may be";
  MW_CHECK(admission.known || detail.empty()) << "a stranger's request was read";
  if (audit_ == nullptr) return;
  const Caller& who = admission.caller;
  audit_->WriteRefused({who.name, who.role ? std::string(security::RoleName(*who.role)) : "",
                        who.from, std::string(method), detail, admission.refusal});
}

Result<Caller> Access::Check(std::string_view method, const Shown& shown) const {
  Admission admission = Admit(method, shown);
  if (admission.refusal.ok()) return std::move(admission.caller);
  Refused(method, admission, "");
  return Fail(admission.refusal);
}

void Access::Answered(std::string_view method, const Caller& caller, const std::string& detail,
                      const Status& answer) const {
  if (audit_ == nullptr) return;
  const Act act = ActOf(method);
  const bool session = method == "/meshwright.v1.WorkerService/Session";
  if (act != Act::kAct && act != Act::kJoin && act != Act::kRenew && !session) return;
  const AuditEntry entry{
      caller.name, caller.role ? std::string(security::RoleName(*caller.role)) : "",
      caller.from, std::string(method),
      detail,      answer};
  // A stranger may try to join, and a worker to register, as often as they like.
  if (!answer.ok() && act != Act::kAct) return audit_->WriteRefused(entry);
  audit_->Write(entry);
}

Status Access::CheckWorkerName(const Caller& caller, const std::string& name) const {
  if (!caller.role || caller.name == name) return OkStatus();
  return PermissionDenied(
      fmt::format("the certificate is that of {}, which may not register as '{}'; start it with "
                  "--name {}, or have it join under the other name",
                  WhoIs(caller), name, caller.name));
}

}  // namespace meshwright::controller
