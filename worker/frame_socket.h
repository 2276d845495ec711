// FrameSocket: frames of actors (actor/frame.h) between two processes of a host: a MessageSocket
// whose messages are frames.
//
// Thread rule and ownership: as MessageSocket.
#pragma once

#include <functional>

#include "actor/frame.h"
#include "worker/message_socket.h"

namespace meshwright::worker {

struct FrameHandlers {
  std::function<void(actor::Frame)> frame;   // on the reader thread
  std::function<void(const Status&)> ended;  // the same, once, the last
};

class FrameSocket {
 public:
  FrameSocket(UniqueFd fd, FrameHandlers handlers);

  // As MessageSocket's.
  bool Send(const actor::Frame& frame) { return socket_.Send(actor::EncodeFrame(frame)); }
  void Shutdown() { socket_.Shutdown(); }
  void Close() { socket_.Close(); }

 private:
  const FrameHandlers handlers_;
  MessageSocket socket_;
};

}  // namespace meshwright::worker
