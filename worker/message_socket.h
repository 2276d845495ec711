// MessageSocket: messages of bytes between two processes of a host, over a stream socket that both
// ends hold. On the wire each has its length in front, 4 bytes little-endian.
//
// A message goes out on the sender's thread where the socket takes it at once, which saves the
// wake-up of another thread; what it does not take waits for the writer thread, in order.
//
// Thread rule: Send, Flush, Shutdown and Close from any thread but the handlers' own for Close.
// Ownership: what the handlers use outlives it; no handler runs after Close.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::worker {

struct MessageHandlers {
  // On the reader thread. An error ends the connection.
  std::function<Status(std::string_view)> message;
  std::function<void(const Status&)> ended;  // the same, once, the last
};

class MessageSocket {
 public:
  // most_bytes: of a message; a longer one ends the connection.
  MessageSocket(UniqueFd fd, size_t most_bytes, MessageHandlers handlers);
  ~MessageSocket();
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  // Never blocks. False once the connection has ended, which a peer that does not read brings
  // about.
  bool Send(std::string_view message);
  // Waits until the socket has taken all that was sent; false: it did not in time, or has ended.
  bool Flush(int64_t timeout_ms);
  // Ends the connection without waiting; `ended` follows.
  void Shutdown();
  // Ends the connection and both threads.
  void Close();

 private:
  void ReadLoop();
  void WriteLoop();
  // Takes whole messages off the front of `bytes`.
  Status TakeMessages(std::string& bytes);

  const UniqueFd fd_;
  const size_t most_bytes_;
  const MessageHandlers handlers_;
  Mutex mutex_;
  CondVar wake_;
  CondVar written_;
  std::string pending_ MW_GUARDED_BY(mutex_);
  bool writing_ MW_GUARDED_BY(mutex_) = false;  // the writer thread has bytes under way
  bool ended_ MW_GUARDED_BY(mutex_) = false;
  std::thread reader_;
  std::thread writer_;
};

// The same message over a socket that no MessageSocket has yet; blocks until it is taken.
// Errors: the system's.
Status SendMessage(int fd, std::string_view message);

}  // namespace meshwright::worker
