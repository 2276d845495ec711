// FindWorkerIdentity of cli/identity_dirs.h: the part that dials.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "base/clock.h"
#include "base/file.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "base/tls_identity.h"
#include "cli/identity_dirs.h"
#include "security/certificate.h"
#include "security/places.h"
#include "worker/identity.h"

namespace meshwright::cli {
namespace {

using security::Role;

// What a certificate may call this host.
std::string HostNameForCertificate() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string name(host.data());
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-';
      },
      '-');
  return name.empty() ? "worker" : name.substr(0, 64);
}

Result<std::string> TokenText(const std::string& join) {
  if (join.empty() || join.front() != '@') return join;
  MW_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(join.substr(1)));
  return std::string(Trim(text));
}

// Whose identity it is. Errors: none is there, or it does not hold.
Result<std::string> HeldName(const std::string& folder) {
  MW_ASSIGN_OR_RETURN(const TlsIdentity identity, LoadTlsIdentity(folder));
  const auto subject =
      security::CheckIdentity(identity, {Role::kWorker}, SystemClock().UnixMs() / 1000);
  if (!subject.has_value()) return Fail(subject.error().WithContext(folder));
  return subject->name;
}

Status RefuseOther(const std::string& asked, const std::string& held, const std::string& folder) {
  if (asked.empty() || asked == held) return OkStatus();
  return InvalidArgument(
      fmt::format("--name {} and the certificate in {}, which is that of worker '{}', do not fit; "
                  "leave --name out, or choose another --tls-dir and join with it",
                  asked, folder, held));
}

std::string PlaceOf(const std::string& home, const std::string& name) {
  const std::string own = security::IdentityPlace(home, Role::kWorker, name);
  const std::string any = security::IdentityPlace(home, Role::kWorker);
  return !FileExists(own + "/cert.pem") && FileExists(any + "/cert.pem") ? any : own;
}

Result<WorkerIdentity> JoinOrKeep(const WorkerIdentityAsk& ask, const std::string& folder) {
  if (const auto held = HeldName(folder); held.has_value()) {
    MW_TRY(RefuseOther(ask.name, *held, folder));
    return WorkerIdentity{folder, *held};
  }
  if (ask.address.rfind("unix:", 0) == 0) {
    return Fail(
        InvalidArgument("--join is for controllers on a network: pass --address HOST:PORT"));
  }
  MW_ASSIGN_OR_RETURN(const std::string token, TokenText(ask.join));
  const std::string name = ask.name.empty() ? HostNameForCertificate() : ask.name;
  MW_TRY(worker::Join({ask.address, token, name, folder}));
  fmt::print("joined as worker '{}'; its certificate is in {}\n", name, folder);
  std::fflush(stdout);
  return WorkerIdentity{folder, name};
}

}  // namespace

Result<WorkerIdentity> FindWorkerIdentity(const TlsArgs& args, const WorkerIdentityAsk& ask,
                                          const config::Environment& environment) {
  const bool network = !security::IsLoopback(ask.address);
  std::string folder = args.dir;
  if (folder.empty() && network && !args.insecure) {
    folder = environment("MESHWRIGHT_TLS_DIR").value_or("");
  }
  const bool named = !folder.empty();
  const std::string home = security::TlsHome(environment);
  if (!named && !home.empty()) {
    folder = ask.join.empty() ? PlaceOf(home, ask.name)
                              : security::IdentityPlace(home, Role::kWorker, ask.name);
  }
  if (!ask.join.empty()) {
    if (folder.empty())
      return Fail(InvalidArgument("--join needs --tls-dir where there is no home"));
    return JoinOrKeep(ask, folder);
  }
  if (ask.address.rfind("unix:", 0) == 0) return WorkerIdentity{"", ask.name};
  const bool there = FileExists(folder + "/cert.pem");
  const bool wanted =
      named || (!args.insecure && (network || (there && WantsCertificate(ask.address, folder))));
  if (!wanted) return WorkerIdentity{"", ask.name};
  if (named || there) {
    MW_ASSIGN_OR_RETURN(const std::string held, HeldName(folder));
    MW_TRY(RefuseOther(ask.name, held, folder));
    return WorkerIdentity{folder, held};
  }
  return Fail(InvalidArgument(fmt::format(
      "{} is on another machine, and this one has no certificate to show to it; `meshwright cert "
      "join-token` on the controller's host prints a token, with which this command works: --join "
      "TOKEN; --insecure does without, in the clear",
      ask.address)));
}

}  // namespace meshwright::cli
