// Everything a fabric has to do with other processes: connections to those it shares pipes with,
// agreement on the pipes, spreading the first cause of an abort, and an orderly end.
//
// Thread rule: thread-safe; AddPipe and Connect by one thread at a time. Ownership: owned by the
// fabric; its pipes' ends are not used any more when it is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/cpu/board.h"
#include "collective/cpu/fabric_context.h"
#include "collective/cpu/rendezvous.h"

namespace meshwright::collective {

// The board of a group of which members in several processes of this host are to share one.
struct BoardPlan {
  std::string name = {};
  std::vector<int> peer_ranks = {};  // members in other processes
  int members = 0;
  std::function<void(std::byte*)> attach = {};  // called at most once, by Connect()
};

class TcpTransport {
 public:
  // Announces the fabric at the listener. Errors: kAlreadyExists; kInvalidArgument for a foreign
  // Listener.
  static Result<std::unique_ptr<TcpTransport>> Make(FabricContext& context,
                                                    std::shared_ptr<Listener> listener);
  // Sends what was committed, says goodbye, and closes; at most a few seconds (kCloseMs in the
  // source).
  ~TcpTransport();

  // A pipe with one end here, to be attached by the next Connect(). kAlreadyExists when its key is
  // taken.
  Status AddPipe(int peer_rank, const PipeSpec& pipe);
  // A board that the next Connect() attaches unless shared memory is refused. Its group has pipes,
  // too.
  void AddBoard(BoardPlan plan);
  // See Fabric::Connect. The caller aborts the fabric when it fails.
  Status Connect(int64_t timeout_ms);
  // Hands the recorded cause to the sockets of all connected peers; returns when that was tried.
  void Broadcast(const Status& cause);
  const char* transport(int rank) const;

 private:
  class Impl;
  explicit TcpTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshwright::collective
