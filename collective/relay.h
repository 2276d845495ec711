// Connections of a fabric that lives in another process than the listener: one process has the
// port, children of it have the fabrics.
//
// The process with the port authenticates (who, which generation, which secret) and bounds what
// strangers can cost, as for fabrics of its own; what passes is handed to the child over a socket
// between the two (SCM_RIGHTS), and no byte of the connection is read by anybody but the child.
// With TLS the child and who dials believe each other anew, by a session whose keys nobody else
// has. A connection that comes before the child's fabric waits at the port.
//
// Thread rule: thread-safe. Ownership: closing the socket ends the relay at the other end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "collective/communicator.h"

namespace meshwright::collective {

// The two ends of a relay's socket: for the process with the port and for the child.
// Errors: kResourceExhausted.
Result<std::pair<UniqueFd, UniqueFd>> MakeRelaySocket();

// The fabric of the child, as the port must know it.
struct RelayedFabric {
  std::string cluster_id;
  uint64_t generation = 0;
  uint64_t process_id = 0;               // by which the others dial it
  std::vector<uint64_t> processes = {};  // of the mesh; its own does not matter
  std::string secret;
};

// At the process with the port: hands connections over for as long as it lives.
class Relay {
 public:
  virtual ~Relay() = default;
};
// listener: of MakeListener(). Errors: kInvalidArgument for another; kAlreadyExists for a second
// fabric of the same identity.
Result<std::unique_ptr<Relay>> MakeRelay(std::shared_ptr<Listener> listener, RelayedFabric fabric,
                                         UniqueFd socket);

// In the child: a listener without a port, for one fabric. `awaits` is called when that fabric is
// there: from then on connections may come. A refusal at the port is told to the fabric, too. tls:
// as the port's, of the same identity.
std::shared_ptr<Listener> MakeRelayedListener(UniqueFd socket, std::function<void()> awaits,
                                              std::shared_ptr<Tls> tls = nullptr);

}  // namespace meshwright::collective
