// `meshwright cert`: the authority of a cluster, and what it signs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/tls_identity.h"
#include "cli/commands.h"
#include "cli/identity_dirs.h"
#include "config/environment.h"
#include "data/roots.h"
#include "security/authority.h"
#include "security/certificate.h"
#include "security/join_token.h"
#include "security/places.h"

namespace meshwright::cli {
namespace {

using security::Role;

constexpr int64_t kWorkerDays = 30;  // it renews them by itself
constexpr int64_t kOtherDays = 365;

int64_t NowS() { return SystemClock().UnixMs() / 1000; }

Result<std::string> HomeOf(const CertArgs& args) {
  const std::string home =
      args.dir.empty() ? security::TlsHome(config::ProcessEnvironment) : args.dir;
  if (home.empty()) return Fail(InvalidArgument("there is no home folder; pass --dir FOLDER"));
  return data::AbsolutePath(home);
}

std::string UserName() {
  const passwd* user = ::getpwuid(::geteuid());
  const std::string name = user == nullptr ? "" : user->pw_name;
  return security::CheckName(name).ok() ? name : "operator";
}

security::CertificateOrder CertificateOrderOf(const CertArgs& args, security::Subject subject) {
  const int64_t days =
      args.days != 0 ? args.days : (subject.role == Role::kWorker ? kWorkerDays : kOtherDays);
  return {std::move(subject), args.hosts, NowS(), days * security::kDayS};
}

Status Init(const CertArgs& args) {
  MW_ASSIGN_OR_RETURN(const std::string home, HomeOf(args));
  MW_TRY(MakeCertificates(home, args.hosts));
  MW_ASSIGN_OR_RETURN(const security::Authority authority, security::Authority::Load(home + "/ca"));
  fmt::print(
      "authority   {}/ca, sha256 {}\n"
      "            its key signs every certificate: keep it on this machine, and a copy where "
      "nobody looks\n"
      "controller  {}\n"
      "operator    {} ('{}')\n"
      "\nnext: meshwright controller --bind ADDRESS        on this machine\n"
      "      meshwright cert join-token                   then, with it, on every other one:\n"
      "      meshwright worker --address ADDRESS:7700 --bind OWN --join TOKEN\n",
      home, authority.sha256(), security::IdentityPlace(home, Role::kController),
      security::IdentityPlace(home, Role::kOperator), UserName());
  return OkStatus();
}

Status Issue(const CertArgs& args) {
  MW_ASSIGN_OR_RETURN(const std::string home, HomeOf(args));
  MW_ASSIGN_OR_RETURN(const security::Authority authority, security::Authority::Load(home + "/ca"));
  MW_ASSIGN_OR_RETURN(const Role role, security::ParseRole(args.role));
  const std::string out = args.out.empty() ? args.name : args.out;
  const security::CertificateOrder order = CertificateOrderOf(args, {role, args.name});
  MW_TRY(security::IssueTo(out, authority, order));
  fmt::print("{} holds the certificate of {} until {}\n", out, security::Describe(order.subject),
             security::FormatMoment(order.now_s + order.life_s));
  return OkStatus();
}

Status PrintJoinToken(const CertArgs& args) {
  MW_ASSIGN_OR_RETURN(const std::string home, HomeOf(args));
  MW_ASSIGN_OR_RETURN(const security::Authority authority, security::Authority::Load(home + "/ca"));
  const int64_t expires_s = NowS() + args.hours * 3600;
  MW_ASSIGN_OR_RETURN(
      const std::string token,
      security::MintJoinToken(authority.Secret(security::kJoinPurpose),
                              {authority.sha256(), expires_s, args.name, args.once, args.replace}));
  fmt::print("{}\n", token);
  fmt::print(stderr,
             "it holds until {}, for {}{}; who has it can join: meshwright worker --address "
             "HOST:7700 --bind OWN --join TOKEN\n",
             security::FormatMoment(expires_s),
             args.name.empty() ? "any new worker" : "the worker '" + args.name + "'",
             args.once ? ", once" : "");
  return OkStatus();
}

std::string Verdict(const TlsIdentity& identity, const security::CertificateFacts& facts) {
  const std::vector<Role> all = {Role::kController, Role::kWorker, Role::kOperator, Role::kViewer};
  const auto checked = security::CheckIdentity(identity, all, NowS());
  if (!checked.has_value()) return checked.error().message();
  return fmt::format("{}, until {}", security::Describe(*checked),
                     security::FormatMoment(facts.not_after_s));
}

Status ShowOne(const std::string& folder) {
  if (security::HasOnlyAuthority(folder)) {
    MW_ASSIGN_OR_RETURN(const std::string ca_pem, ReadFile(folder + "/ca.pem"));
    MW_ASSIGN_OR_RETURN(const security::CertificateFacts authority,
                        security::ReadCertificate(ca_pem));
    fmt::print(
        "{}: no certificate, only the authority to believe; a token says who it is\n"
        "  authority  {}\n",
        folder, authority.sha256);
    return OkStatus();
  }
  MW_ASSIGN_OR_RETURN(const TlsIdentity identity, LoadTlsIdentity(folder));
  MW_ASSIGN_OR_RETURN(const security::CertificateFacts facts,
                      security::ReadCertificate(identity.cert_pem));
  MW_ASSIGN_OR_RETURN(const security::CertificateFacts authority,
                      security::ReadCertificate(identity.ca_pem));
  fmt::print("{}: {}\n  sha256     {}\n  authority  {}\n", folder, Verdict(identity, facts),
             facts.sha256, authority.sha256);
  if (!facts.names.empty()) fmt::print("  names      {}\n", fmt::join(facts.names, ", "));
  return OkStatus();
}

// What --tls-dir names is what a command would show; else all that there is.
Status Show(const CertArgs& args, const std::string& tls_dir) {
  const std::string& one = args.folder.empty() ? tls_dir : args.folder;
  if (!one.empty()) return ShowOne(one);
  MW_ASSIGN_OR_RETURN(const std::string home, HomeOf(args));
  int shown = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(home, error)) {
    if (!FileExists(entry.path().string() + "/cert.pem")) continue;
    MW_TRY(ShowOne(entry.path().string()));
    ++shown;
  }
  if (shown > 0) return OkStatus();
  return NotFound(fmt::format("{} holds no certificates; `meshwright cert init` makes some", home));
}

}  // namespace

Status MakeCertificates(const std::string& home, const std::vector<std::string>& hosts) {
  MW_ASSIGN_OR_RETURN(const security::Authority authority,
                      security::Authority::Create(home + "/ca", NowS()));
  CertArgs args;
  MW_TRY(security::IssueTo(security::IdentityPlace(home, Role::kOperator), authority,
                           CertificateOrderOf(args, {Role::kOperator, UserName()})));
  args.hosts = hosts;
  return security::IssueTo(security::IdentityPlace(home, Role::kController), authority,
                           CertificateOrderOf(args, {Role::kController, "controller"}));
}

int RunCert(const CertArgs& args, const GlobalArgs& global) {
  const auto run = [&]() -> Status {
    switch (args.action) {
      case CertAction::kInit:
        return Init(args);
      case CertAction::kIssue:
        return Issue(args);
      case CertAction::kJoinToken:
        return PrintJoinToken(args);
      case CertAction::kShow:
        return Show(args, global.tls.dir);
    }
    return OkStatus();
  };
  const Status status = run();
  return status.ok() ? kExitOk : ReportError(status);
}

}  // namespace meshwright::cli
