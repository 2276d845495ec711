// Device: the memory and the cores that one rank computes with. Backends are sibling folders (cpu/,
// cuda/) with the same file names.
//
// A CPU device is virtual: a set of cores with a thread team of its own, so that several devices
// share a host, or a process, without sharing threads. A CUDA device is a GPU; work is given to it
// through queues (device/queue.h).
//
// Thread rule: EnterThread, team() and queue() belong to the device's own thread; the rest may be
// called from any. Ownership: whoever holds a Memory owns it. That of a CPU may outlive its Device,
// nothing else may.
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
#include "device/queue.h"

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
  // An address of the device: the host may touch it only on CPUs.
  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
  // How a peer maps it, valid as long as the Memory lives; null when it is private.
  virtual const SharedHandle* shared() const = 0;
};

// Memory of the host that the device's copies reach without a detour.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
};

enum class Kind : uint8_t { kCpu, kCuda };
const char* KindName(Kind kind);  // "cpu", "cuda"

struct DeviceOptions {
  std::string name = {};           // for messages, e.g. "cpu:0"
  int threads = 1;                 // cores that kernels may use, the calling thread included
  std::vector<int> cpus = {};      // cores to pin to, one per thread; empty: not pinned
  int64_t memory_limit_bytes = 0;  // 0: what the machine has
  // Of CPUs: copies between "the device's" and the host's memory, which are the same, take as long
  // as over a link like this; 0: as long as they take.
  int64_t host_link_bytes_per_s = 0;
  // Other processes of the host may map what is allocated. Where the system refuses shared memory,
  // allocations are private.
  bool share_memory = false;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual Kind kind() const = 0;
  virtual const std::string& name() const = 0;

  // Zeroed memory of use.total() bytes, all pages present. Errors: kResourceExhausted with bytes
  // asked for and available.
  virtual Result<std::unique_ptr<Memory>> Allocate(const MemoryUse& use) = 0;

  // What is allocated now, by kind.
  virtual MemoryUse memory() const = 0;

  // Zeroed. Errors: kResourceExhausted.
  virtual Result<std::unique_ptr<HostMemory>> AllocateHost(int64_t bytes) = 0;
  // That copies to and from it are held to; 0: they take what they take.
  virtual int64_t host_link_bytes_per_s() const { return 0; }

  // Makes the calling thread the device's own thread: pins it and starts the team on first use.
  // Errors: kInvalidArgument naming a core that cannot be used.
  virtual Status EnterThread() = 0;

  // Null before EnterThread and when the device has one thread.
  virtual ThreadTeam* team() = 0;

  // The queue that computes. REQUIRES EnterThread.
  virtual Queue& queue() = 0;
  // Another one, for what runs beside it; `urgent` ones go first where both could run.
  virtual Result<std::unique_ptr<Queue>> MakeQueue(bool urgent) = 0;
  virtual Result<std::unique_ptr<Event>> MakeEvent() = 0;

  // OK, or the error after which this process cannot use the device any more.
  virtual Status status() const = 0;
  // Makes `cause`, unless there is one already, the answer of status() and of every later call: for
  // who has found out that the device does not come back. CPUs always do.
  virtual void GiveUp(const Status& /*cause*/) {}
};

// Errors: kInvalidArgument when options do not fit together.
Result<std::unique_ptr<Device>> MakeCpuDevice(DeviceOptions options);

}  // namespace meshwright::device
