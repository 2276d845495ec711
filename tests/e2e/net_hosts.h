// Hosts on one machine: network namespaces with a cable (a veth pair) between any two of them.
//
// A namespace has no name here: it lives as long as a holder process in it, the holder dies with
// this process, and the cable goes with its ends. Nothing can be left behind, not even by kill -9
// of the test.
//
// Thread rule: one thread, the one that made it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/subprocess.h"

namespace meshwright::testing {

class NetHosts {
 public:
  static constexpr int kHosts = 2;  // where nothing else is said

  // Errors: kFailedPrecondition saying what is missing here (the right to make namespaces, `ip`).
  static Result<std::unique_ptr<NetHosts>> Make(int hosts = kHosts);

  static std::string Address(int host);
  // The command line that runs `args` on the host; it replaces itself by the program, so signals
  // reach that.
  std::vector<std::string> On(int host, const std::vector<std::string>& args) const;

  // Bytes that the host has sent over its cables, and over its own loopback.
  int64_t CableBytes(int host) const { return SentBytes(host, kCable); }
  int64_t LoopbackBytes(int host) const { return SentBytes(host, "lo"); }
  pid_t holder(int host) const { return holders_[static_cast<size_t>(host)]->pid(); }

 private:
  static constexpr const char* kCable = "cable";
  Status Prepare(int hosts);
  Status Connect(int one, int other);
  // Over all devices whose names begin so.
  int64_t SentBytes(int host, const std::string& device) const;

  std::vector<std::unique_ptr<Subprocess>> holders_;
};

}  // namespace meshwright::testing
