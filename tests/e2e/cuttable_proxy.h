// A network that breaks: passes bytes between clients and a port of this machine until it is told
// to cut every connection. New ones are taken at once.
//
// Thread rule: thread-safe; a thread of its own passes the bytes. Ownership: closes what it opened.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::testing {

class CuttableProxy {
 public:
  static Result<std::unique_ptr<CuttableProxy>> Start(int target_port);
  ~CuttableProxy();

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Whatever is under way on every connection is lost.
  void Cut();
  int64_t connections() const { return connections_; }  // that were ever made

 private:
  CuttableProxy(UniqueFd listener, UniqueFd wake, int port, int target_port);
  void Run();
  void Accept();
  // False: one of the two has ended.
  static bool Pass(int from, int to);

  const UniqueFd listener_;
  const UniqueFd wake_;
  const int port_;
  const int target_port_;
  std::atomic<bool> cut_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> connections_{0};
  std::vector<std::pair<UniqueFd, UniqueFd>> pairs_;  // of the thread
  Executor thread_{"proxy"};
};

}  // namespace meshwright::testing
