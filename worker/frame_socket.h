// FrameSocket: frames of actors (actor/frame.h) between two processes of a host, over a stream
// socket that both ends hold. On the wire each frame has its length in front, 4 bytes
// little-endian.
//
// A frame goes out on the sender's thread where the socket takes it at once, which saves the
// wake-up of another thread; what it does not take waits for the writer thread, in order.
//
// Thread rule: Send and Close from any thread but the handlers' own for Close. Ownership: what the
// handlers use outlives it; no handler runs after Close.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "actor/frame.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::worker {

struct FrameHandlers {
  std::function<void(actor::Frame)> frame;   // on the reader thread
  std::function<void(const Status&)> ended;  // the same, once, the last
};

class FrameSocket {
 public:
  FrameSocket(UniqueFd fd, FrameHandlers handlers);
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  // Never blocks. False once the connection has ended, which a peer that does not read brings
  // about.
  bool Send(const actor::Frame& frame);
  // Ends the connection without waiting; `ended` follows.
  void Shutdown();
  // Ends the connection and both threads.
  void Close();

 private:
  void ReadLoop();
  void WriteLoop();
  // Takes whole frames off the front of `bytes`. Errors: what came is no frame.
  Status TakeFrames(std::string& bytes);

  const UniqueFd fd_;
  const FrameHandlers handlers_;
  Mutex mutex_;
  CondVar wake_;
  std::string pending_ MW_GUARDED_BY(mutex_);
  bool writing_ MW_GUARDED_BY(mutex_) = false;  // the writer thread has bytes under way
  bool ended_ MW_GUARDED_BY(mutex_) = false;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace meshwright::worker
