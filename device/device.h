// Device: the memory and the cores that one rank computes with. Backends are sibling folders (cpu/)
// with the same file names.
//
// A CPU device is virtual: a set of cores with a thread team of its own, so that several devices
// share a host, or a process, without sharing threads.
//
// Thread rule: EnterThread and team() belong to the device's own thread; Allocate and memory() may
// be called from any. Ownership: whoever holds a Memory owns it; it may outlive its Device.
#pragma once

#include <array>
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

// Where other processes of the host find a block of memory that they may map: a descriptor of the
// process that made it, and what proves that it is the announced one.
struct SharedHandle {
  int64_t process_id = 0;  // of the operating system
  int32_t descriptor = -1;
  int64_t bytes = 0;
  std::array<uint64_t, 2> token{};
};

// One allocation; returned to the device's ledger when destroyed.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
  // How a peer maps it, valid as long as the Memory lives; null when it is private.
  virtual const SharedHandle* shared() const = 0;
};

struct DeviceOptions {
  std::string name = {};           // for messages, e.g. "cpu:0"
  int threads = 1;                 // cores that kernels may use, the calling thread included
  std::vector<int> cpus = {};      // cores to pin to, one per thread; empty: not pinned
  int64_t memory_limit_bytes = 0;  // 0: what the machine has
  // Other processes of the host may map what is allocated. Where the system refuses shared memory,
  // allocations are private.
  bool share_memory = false;
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
