// Addresses to listen on, and why one cannot.
//
// Thread rule: pure functions but for the sockets that they try.
#pragma once

#include <sys/socket.h>

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "127.0.0.1:80", "[::1]:80". `host` may have its brackets already.
std::string FormatHostPort(const std::string& host, int port);

// The address of a host that a user may write: "localhost" is 127.0.0.1, "[::1]" is ::1; others as
// they are.
std::string NumericHost(const std::string& host);

// Errors: kInvalidArgument when the host is not a numeric address.
Result<SocketAddress> ResolveNumeric(const std::string& host, int port);

// A socket that listens there; port 0: the system picks one. Errors: as ProbeListen.
Result<UniqueFd> ListenTcp(const std::string& host, int port, int backlog);
// The port of a socket.
Result<int> PortOf(const UniqueFd& socket);

// The socket of the file system on which the owner of this folder listens beside its port, for
// processes of the same user and host: gRPC's address of it is "unix:<path>". Empty where the path
// is longer than the 107 bytes that such sockets can have.
std::string LocalSocketIn(const std::string& folder);

// A socket that listens there, for its owner only. Replaces one that is left there: whoever owns
// the folder makes sure that nobody listens. Errors: kAlreadyExists when something else is there;
// those of bind.
Result<UniqueFd> ListenUnix(const std::string& path, int backlog);

// The reason why this address cannot be listened on, with the fix; OK when it can (now).
// Errors: kAlreadyExists when somebody listens there, kInvalidArgument when it is no address of
// this machine, kPermissionDenied.
Status ProbeListen(const std::string& host, int port);

}  // namespace meshwright
