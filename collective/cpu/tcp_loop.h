// The event loop of one listener or fabric: one thread that runs all of its socket work.
//
// The only wrapper of Boost.Asio's includes in this folder (1.74 needs <utility> before its headers
// on gcc 12).
//
// Thread rule: Post and Stop from any thread but the loop's own for Stop; everything else on the
// loop. Ownership: owners destroy their sockets and timers after Stop() and before the loop.
#pragma once

#include <utility>
// <utility> must come first.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace meshwright::collective {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using TcpSocket = asio::ip::tcp::socket;

class TcpLoop {
 public:
  // on_crash: told when a handler threw (out of memory); the loop is dead then. Runs on the loop's
  // thread.
  explicit TcpLoop(std::function<void(const std::string& what)> on_crash);
  ~TcpLoop();
  TcpLoop(const TcpLoop&) = delete;
  TcpLoop& operator=(const TcpLoop&) = delete;

  asio::io_context& io() { return io_; }
  bool InLoop() const { return std::this_thread::get_id() == thread_.get_id(); }
  template <typename Work>
  void Post(Work&& work) {
    asio::post(io_, std::forward<Work>(work));
  }
  // Lets the running handler finish and joins the thread. Handlers that are queued never run.
  // Idempotent.
  void Stop();

 private:
  void Run();

  asio::io_context io_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::function<void(const std::string&)> on_crash_;
  std::thread thread_;
};

}  // namespace meshwright::collective
