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

class TlsSession;

// One end of a connection, which blocks; plain or TLS, as the listener of the door is. One
// thread's, but that any may shut its descriptor down.
class Connection {
 public:
  Connection();
  explicit Connection(UniqueFd fd);
  // `greeting` is sent when the other end is believed, before anything else is.
  Connection(UniqueFd fd, std::unique_ptr<TlsSession> session, std::string greeting);
  ~Connection();
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&& other) noexcept;

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  void Reset() { fd_.Reset(); }

  // All of the bytes, or an error: kUnavailable: the peer has gone, or does not go on in time;
  // kUnauthenticated: it is not believed; kDataLoss: the bytes were changed on their way.
  Status Read(void* into, size_t bytes);
  Status Write(const void* from, size_t bytes);
  // Goes on with another session. Errors: kDataLoss: something is on the way.
  Status Restart(std::unique_ptr<TlsSession> session);

 private:
  Status Begin();
  Status Fill();
  Status Flush();

  UniqueFd fd_;
  std::unique_ptr<TlsSession> session_;  // null: plain
  std::string greeting_;
  bool begun_ = false;  // the other end is believed
};

// Open for as long as it lives.
class Door {
 public:
  virtual ~Door() = default;
};
// enter: called on the listener's thread, and must not block; with TLS the other end is believed
// and welcomed by the first call on the connection. listener: of MakeListener(). Errors:
// kInvalidArgument for another; kAlreadyExists for a second door of the same name.
Result<std::unique_ptr<Door>> OpenDoor(std::shared_ptr<Listener> listener, DoorName name,
                                       std::function<void(Connection)> enter);

// A connection to a door, whose reads and writes end after timeout_ms, too. address: "host:port".
// tls: as that of the door's listener. Errors: kUnavailable, kDeadlineExceeded; kUnauthenticated:
// one end does not believe the other; what the port refuses it with.
Result<Connection> EnterDoor(const std::string& address, const DoorName& name, int64_t timeout_ms,
                             const std::shared_ptr<Tls>& tls);

}  // namespace meshwright::collective
