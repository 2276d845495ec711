// Device: the memory and the cores that one rank computes with. Backends are sibling folders (cpu/)
// with the same file names.
//
// A CPU device is virtual: a set of cores with a thread team of its own, so that several devices
// share a host, or a process, without sharing threads.
//
// Thread rule: EnterThread and team() belong to the device's own thread; Allocate and memory() may
// be called from any. Ownership: whoever holds a Memory owns it; it may outlive its Device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "device/memory_use.h"

namespace meshwright::device {

// Every allocation starts at a multiple of this, and so does everything that is placed inside one.
inline constexpr int64_t kAlignmentBytes = 64;

constexpr int64_t AlignUp(int64_t bytes, int64_t alignment = kAlignmentBytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// One allocation; returned to the device's ledger when destroyed.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
};

struct DeviceOptions {
  std::string name;                // for messages, e.g. "cpu:0"
  int threads = 1;                 // cores that kernels may use, the calling thread included
  std::vector<int> cpus;           // cores to pin to, one per thread; empty: not pinned
  int64_t memory_limit_bytes = 0;  // 0: what the machine has
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;

  // Zeroed memory of use.total() bytes, all pages present. Errors: kResourceExhausted with bytes
  // asked for and available.
  virtual Result<std::unique_ptr<Memory>> Allocate(const MemoryUse& use) = 0;

  // What is allocated now, by kind.
  virtual MemoryUse memory() const = 0;

  // Makes the calling thread the device's own thread: pins it and starts the team on first use.
  // Errors: kInvalidArgument naming a core that cannot be used.
  virtual Status EnterThread() = 0;

  // Null before EnterThread and when the device has one thread.
  virtual ThreadTeam* team() = 0;
};

// Errors: kInvalidArgument when options do not fit together.
Result<std::unique_ptr<Device>> MakeCpuDevice(DeviceOptions options);

}  // namespace meshwright::device
