// Everything a fabric has to do with other processes: connections to those it shares pipes with,
// agreement on the pipes, spreading the first cause of an abort, and an orderly end.
//
// Thread rule: thread-safe; AddPipe and Connect by one thread at a time. Ownership: owned by the
// fabric; its pipes' ends are not used any more when it is destroyed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/cpu/fabric_context.h"
#include "collective/cpu/rendezvous.h"

namespace meshwright::collective {

class TcpTransport {
 public:
  // Announces the fabric at the listener. Errors: kAlreadyExists; kInvalidArgument for a foreign
  // Listener.
  static Result<std::unique_ptr<TcpTransport>> Make(const FabricContext& context,
                                                    std::shared_ptr<Listener> listener);
  // Sends what was committed, says goodbye, and closes; at most a few seconds (kCloseMs in the
  // source).
  ~TcpTransport();

  // A pipe with one end here, to be attached by the next Connect(). kAlreadyExists when its key is
  // taken.
  Status AddPipe(int peer_rank, const PipeSpec& pipe);
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
