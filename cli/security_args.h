// `meshwright cert`, and the options of others that say who they are: arguments and options.
//
// Thread rule: main thread. What is filled in outlives the parser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace meshwright::cli {

enum class CertAction : uint8_t { kInit, kIssue, kJoinToken, kShow };

struct CertArgs {
  CertAction action = CertAction::kInit;
  std::string dir;                 // all of the cluster's; empty: security::TlsHome
  std::string role;                // kIssue
  std::string name;                // kIssue; kJoinToken: of the worker, empty: any
  std::vector<std::string> hosts;  // further names in the certificate
  std::string out;                 // kIssue; empty: the role's place in `dir`
  std::string folder;              // kShow; empty: all in `dir`
  int64_t days = 0;                // 0: as the role has
  int64_t hours = 1;               // kJoinToken
  bool once = false;
  bool replace = false;
};

// Who a process is towards others.
struct TlsArgs {
  std::string dir;        // of the identity; empty: as cli/identity_dirs.h says
  bool insecure = false;  // in the clear, also over a network
};

// cert init, issue, join-token, show.
void AddCert(CLI::App& app, CertArgs& args);
// --tls-dir, --insecure.
void AddTls(CLI::App& app, TlsArgs& args);

}  // namespace meshwright::cli
