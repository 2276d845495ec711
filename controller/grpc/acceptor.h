// A listening socket of the controller, of a port or of the file system: takes connections and
// hands them on.
//
// gRPC 1.51 gives up its own listener for good when accept() finds no descriptor left. This one
// never stops: the last descriptors of the process are kept for its own files, a connection that
// would take one of them is reset at once, and so is one that comes when there is none at all, by
// means of a descriptor kept in reserve for that.
//
// Descriptors are numbered from the lowest free one, so the number of a new connection says how
// many are open: no count of connections is kept.
//
// Thread rule: thread-safe; `take` is called on the acceptor's own thread. Ownership: owns the
// socket and the thread; what is taken belongs to `take`.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::controller {

class Acceptor {
 public:
  using Take = std::function<void(UniqueFd connection)>;

  // Listens and queues connections; none is taken before Start. Errors: as ListenTcp.
  static Result<std::unique_ptr<Acceptor>> Listen(const std::string& bind, int port,
                                                  int64_t max_connections,
                                                  const Clock& clock = SystemClock());
  // The same at a path, for the owner of this process only; port() is 0. Errors: as ListenUnix.
  static Result<std::unique_ptr<Acceptor>> ListenLocal(const std::string& path,
                                                       int64_t max_connections,
                                                       const Clock& clock = SystemClock());
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Once. Taken sockets do not block and are closed when what was sent stays unacknowledged for 5
  // s.
  void Start(Take take);
  // No connection is taken any more; the port is free, the socket's file is gone. Idempotent.
  void Stop();

  int port() const { return listener_.port; }
  // Connections that were reset for want of descriptors, since the start.
  int64_t refused() const { return refused_.load(); }
  // Errors: kUnavailable while connections are refused, with the numbers and what would help.
  Status Health() const;

 private:
  struct Listener {
    UniqueFd fd;
    int port = 0;
    std::string path;  // else of a port
  };
  static Result<std::unique_ptr<Acceptor>> Make(Listener listener, int64_t max_connections,
                                                const Clock& clock);
  Acceptor(Listener listener, UniqueFd wake, int64_t max_connections, const Clock& clock);
  void Run();
  // False: nothing waits, or nothing can be taken for now.
  bool AcceptOne();
  bool OnAcceptError(int error);
  void Admit(UniqueFd connection);  // or refuses it, beyond the most
  void Refuse(UniqueFd connection);
  int64_t MostDescriptors() const;

  Listener listener_;
  UniqueFd wake_;     // readable: stop
  UniqueFd reserve_;  // closed for a moment to take what has to be refused
  const int64_t max_connections_;
  const int64_t base_descriptors_;  // open before the first connection
  const Clock& clock_;
  Take take_;
  std::atomic<int64_t> refused_{0};
  std::atomic<int64_t> refused_at_ms_{-1};
  Executor thread_{"mw-accept"};
};

}  // namespace meshwright::controller
