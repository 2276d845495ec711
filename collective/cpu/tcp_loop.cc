#include "collective/cpu/tcp_loop.h"

#include <csignal>
#include <exception>

namespace meshwright::collective {

TcpLoop::TcpLoop(std::function<void(const std::string& what)> on_crash)
    : io_(1), work_(asio::make_work_guard(io_)), on_crash_(std::move(on_crash)) {
  // Signals belong to the program's own threads: the new thread inherits a full mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TcpLoop::~TcpLoop() { Stop(); }

void TcpLoop::Stop() {
  work_.reset();
  io_.stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void TcpLoop::Run() {
  try {
    io_.run();
  } catch (const std::exception& error) {
    on_crash_(error.what());
  }
}

}  // namespace meshwright::collective
