#include "cli/security_args.h"

#include <CLI/CLI.hpp>

namespace meshwright::cli {
namespace {

CLI::App* AddAction(CLI::App& cert, CertArgs& args, CertAction action, const char* name,
                    const char* meaning) {
  CLI::App* command = cert.add_subcommand(name, meaning);
  command->fallthrough();
  command->callback([&args, action] { args.action = action; });
  return command;
}

void AddIssue(CLI::App& cert, CertArgs& args) {
  CLI::App* issue = AddAction(cert, args, CertAction::kIssue, "issue",
                              "Sign a certificate, or a new one for a folder that has one");
  issue->add_option("role", args.role, "What its holder may do")
      ->required()
      ->check(CLI::IsMember({"controller", "worker", "operator", "viewer"}));
  issue->add_option("name", args.name, "Who it is: a person, or the name of a worker")->required();
  issue->add_option("--out", args.out, "Folder to write; default: NAME in the current one");
  issue->add_option("--host", args.hosts, "Further names or addresses in it; repeatable");
  issue->add_option("--days", args.days, "How long it holds; default: 30 for workers, 365")
      ->check(CLI::Range(int64_t{1}, int64_t{3650}));
}

void AddJoinToken(CLI::App& cert, CertArgs& args) {
  CLI::App* token = AddAction(cert, args, CertAction::kJoinToken, "join-token",
                              "Print a token with which hosts join as workers");
  token->add_option("--hours", args.hours, "How long it holds")
      ->check(CLI::Range(int64_t{1}, int64_t{24 * 365}))
      ->capture_default_str();
  token->add_option("--name", args.name, "The one worker that it is for; default: any new one");
  token->add_flag("--once", args.once, "It is used up by the first host");
  token->add_flag("--replace", args.replace,
                  "Also for names that have a certificate: of hosts that lose their folder");
}

}  // namespace

void AddCert(CLI::App& app, CertArgs& args) {
  CLI::App* cert = app.add_subcommand("cert", "Certificates: who may do what in a cluster");
  cert->require_subcommand(1);
  cert->fallthrough();
  cert->add_option("--dir", args.dir,
                   "Where the cluster's certificates lie; default: $MESHWRIGHT_TLS_HOME, else "
                   "~/.config/meshwright/tls");
  CLI::App* init = AddAction(*cert, args, CertAction::kInit, "init",
                             "Make the authority, and certificates for the controller and for you");
  init->add_option("--host", args.hosts,
                   "Further names or addresses of the controller; repeatable");
  AddIssue(*cert, args);
  AddJoinToken(*cert, args);
  CLI::App* show =
      AddAction(*cert, args, CertAction::kShow, "show", "Say whose certificates these are");
  show->add_option("folder", args.folder,
                   "Of one identity, as --tls-dir; default: all that are there");
}

void AddTls(CLI::App& app, TlsArgs& args) {
  app.add_option("--tls-dir", args.dir,
                 "Folder of the identity to show (docs/security.md); default, over a network: "
                 "$MESHWRIGHT_TLS_DIR, else what `meshwright cert` and --join put in place");
  app.add_flag("--insecure", args.insecure,
               "Do without certificates where others listen, too: tokens, programs and data pass "
               "in the clear")
      ->envname("MESHWRIGHT_INSECURE");
}

}  // namespace meshwright::cli
