// A client of HTTP/2 that sends all but the last byte of its requests: what no gRPC library does.
// Frames as in RFC 9113, headers as literals of RFC 7541.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::testing {

class HalfSender {
 public:
  static Result<HalfSender> Connect(int port);

  // Begins `calls` calls of `path`, each with a message of `message_bytes`; token "": none.
  Status Begin(const std::string& path, const std::string& token, int calls, int64_t message_bytes);
  // Sends as far as the server's windows allow and answers what it has to, until the deadline, or
  // until no call is open any more.
  void Run(const Deadline& deadline);

  int64_t sent_bytes() const { return sent_bytes_; }  // of messages
  int open_calls() const { return static_cast<int>(streams_.size()); }
  int ended_calls() const { return ended_; }
  // Trailers of the last call that ended: literals, so that texts in them can be read.
  const std::string& last_answer() const { return last_answer_; }

 private:
  struct Stream {
    int64_t window = 0;
    int64_t left = 0;  // bytes to send, but for the last one
    bool headed = false;
  };

  explicit HalfSender(UniqueFd fd) : fd_(std::move(fd)) {}
  bool Write(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);
  bool SendSome();
  bool Receive();
  void OnFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);
  void OnSettings(const std::string& payload);

  UniqueFd fd_;
  std::string received_;
  std::map<uint32_t, Stream> streams_;
  uint32_t next_stream_ = 1;
  int64_t window_ = 65535;          // of the connection
  int64_t initial_window_ = 65535;  // of a stream
  int64_t sent_bytes_ = 0;
  int ended_ = 0;
  std::string last_answer_;
  bool closed_ = false;
};

}  // namespace meshwright::testing
