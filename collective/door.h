// Doors: connections to a process's data port that are of no fabric. Whoever opens a door is handed
// each connection, and says what it carries.
//
// A door has a name beside those of fabrics (cluster, generation, process) and a secret, which the
// port checks as it does for fabrics; what strangers can cost is bounded by it, too.
//
// Thread rule: thread-safe. Ownership: a connection is its receiver's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "collective/communicator.h"

namespace meshwright::collective {

struct DoorName {
  std::string cluster_id;
  uint64_t generation = 0;
  uint64_t process_id = 0;
  std::string secret;
};

// Open for as long as it lives.
class Door {
 public:
  virtual ~Door() = default;
};
// enter: called on the listener's thread, and must not block; the connection is a blocking socket
// that has been welcomed. listener: of MakeListener(). Errors: kInvalidArgument for another;
// kAlreadyExists for a second door of the same name.
Result<std::unique_ptr<Door>> OpenDoor(std::shared_ptr<Listener> listener, DoorName name,
                                       std::function<void(UniqueFd)> enter);

// A connection to a door, as a blocking socket whose reads and writes end after timeout_ms, too.
// address: "host:port". Errors: kUnavailable, kDeadlineExceeded; what the port refuses it with.
Result<UniqueFd> EnterDoor(const std::string& address, const DoorName& name, int64_t timeout_ms);

// All of the bytes, or an error: kUnavailable: the peer has gone, or does not go on in time.
Status ReadFully(int fd, void* into, size_t bytes);
Status WriteFully(int fd, const void* from, size_t bytes);

}  // namespace meshwright::collective
