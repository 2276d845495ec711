// Connects to a peer's listener and introduces this process; retries until it is welcomed, refused
// for good, or cancelled.
//
// With TLS there are two sessions on the connection: in the first one the process with the port is
// told who comes, and answers that it hands the connection on; in the second one the fabric
// answers. That the other end is not believed, or does not believe this one, is final.
//
// Refusals of kUnauthenticated, kAlreadyExists and kInvalidArgument are final: trying again would
// get the same answer. Everything else (nobody listens yet, the host is unreachable, the fabric was
// not made in time) is tried again.
//
// Thread rule: loop thread only. Ownership: destroyed after its loop stopped.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "collective/cpu/tcp_loop.h"
#include "collective/cpu/tcp_socket.h"
#include "collective/cpu/tcp_stream.h"
#include "collective/cpu/wire.h"

namespace meshwright::collective {

class TcpDialer {
 public:
  static constexpr int64_t kConnectMs = 5'000;  // one attempt; unanswered SYNs
  static constexpr int64_t kFirstPauseMs = 10;
  static constexpr int64_t kLongestPauseMs = 250;

  struct Callbacks {
    std::function<void(TcpStream)> welcomed;
    std::function<void(const Status&)> refused;
    std::function<void(const std::string&)> attempt_failed;  // will be tried again
  };
  // tls: null: plain.
  TcpDialer(TcpLoop& loop, std::string address, const Hello& hello, std::shared_ptr<Tls> tls,
            Callbacks callbacks);

  void Start();
  // No callback comes any more.
  void Cancel();

 private:
  void Attempt();
  void Resolve(const HostPort& target);
  void ConnectTo(const asio::ip::tcp::endpoint& endpoint);
  void OnConnected();
  void Shake();
  void SendHello();
  void ReadReply();
  void OnReply();
  void OnBroken(const ErrorCode& error);
  void Retry(const std::string& why);
  void Finish(const Status& refusal);
  // Wraps a handler: it runs only while the attempt it belongs to is current.
  template <typename Handler>
  auto Current(Handler handler) {
    return [this, attempt = attempt_, handler](const ErrorCode& error, auto&&... rest) {
      if (!cancelled_ && attempt == attempt_) {
        handler(error, rest...);
      }
    };
  }

  TcpLoop& loop_;
  const std::string address_;
  const Bytes hello_;
  const uint64_t expected_process_;
  Callbacks callbacks_;
  asio::ip::tcp::resolver resolver_;
  const std::shared_ptr<Tls> tls_;
  TcpStream stream_;
  bool handed_on_ = false;  // the second session
  asio::steady_timer timer_;
  uint64_t attempt_ = 0;
  int64_t pause_ms_ = kFirstPauseMs;
  bool cancelled_ = false;
  std::array<uint8_t, kEnvelopeBytes> envelope_{};
  Bytes body_;
};

}  // namespace meshwright::collective
