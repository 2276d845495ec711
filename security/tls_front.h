// TlsFront: a port that speaks TLS, in front of a server of this process that speaks HTTP in the
// clear on loopback.
//
// The server behind it parses requests and bounds them; what a stranger can take before that is
// bounded here: connections in all and of one address, the time for a handshake, the time until
// the first byte of a request, and that for which a reader that does not read is waited for. No
// connection reaches the server behind before its handshake is done and bytes have come. Who
// speaks HTTP in the clear to the port is told so by HTTP.
//
// The files are looked at when a connection comes, every two seconds at most: a new certificate
// counts for connections from then on, and those that are there stay. Files that do not fit each
// other, or that others can read, change nothing.
//
// Thread rule: Start and the destructor from one thread; it has one thread of its own. Ownership:
// owns its sockets. The server behind has to be there as long as this is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace meshwright::security {

// Files in PEM: the certificate with those between it and the authority, and its key, which only
// its owner may read (base/secret_file.h).
struct ServerCertificate {
  std::string cert_path;
  std::string key_path;
  bool empty() const { return cert_path.empty(); }
};

struct TlsFrontOptions {
  std::string host = "127.0.0.1";  // numeric address to listen on
  int port = 0;                    // 0: the system picks one
  int behind = 0;                  // the port on 127.0.0.1 of the server behind it
  ServerCertificate certificate;
  int64_t connections = 512;
  int64_t connections_of_address = 64;
  int64_t handshake_ms = 5000;
  int64_t request_ms = 10'000;  // in which the first byte of a request has to come
  int64_t answer_ms = 60'000;   // in which the server behind has to begin its answer
  int64_t stall_ms = 10'000;    // in which a reader has to take something
  int64_t look_ms = 2000;       // between two looks at the files
};

class TlsFront {
 public:
  // Listens when this returns. Errors: those of ListenTcp; of the files: those of ReadFile and
  // ReadSecretFile, kInvalidArgument naming the file that is no PEM or does not fit.
  static Result<std::unique_ptr<TlsFront>> Start(const TlsFrontOptions& options,
                                                 const Clock& clock = SystemClock());
  // Closes the port and all connections.
  ~TlsFront();
  TlsFront(const TlsFront&) = delete;
  TlsFront& operator=(const TlsFront&) = delete;

  int port() const;
  // Who is behind a connection to the server behind, by the port that it comes from, as gRPC writes
  // it: "ipv4:10.0.0.2:40312". "": it is none of this front. From any thread.
  std::string CallerAt(int inner_port) const;

 private:
  struct State;
  explicit TlsFront(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace meshwright::security
