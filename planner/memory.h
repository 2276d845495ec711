// Memory of one device by kind, read off its programs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "ir/program.h"
#include "mesh/topology.h"
#include "planner/layout.h"

namespace meshwright::planner {

// Of a device in a farther memory.
struct FarMemory {
  std::map<ir::MemoryKind, int64_t> bytes;  // at the fullest moment
  int64_t total_bytes = 0;                  // what a worker allocates there
};

struct DeviceMemory {
  std::map<ir::MemoryKind, int64_t> bytes;  // at the fullest moment
  int64_t total_bytes = 0;                  // arena + persistent
  FarMemory host;
  FarMemory disk;

  // REQUIRES: not kDevice.
  const FarMemory& Far(ir::Space space) const { return space == ir::Space::kHost ? host : disk; }
};

// When transient slots hold something, on a clock that ticks once per node of a RUN and once per
// other instruction: from the first write to the last read, both inclusive. A slot that a RUN
// writes lives from the node that does; one that it reads last, up to the node that does. Where
// collectives run beside what computes, what one makes of inputs alone lives from where these are
// made.
struct SlotSpans {
  std::vector<int> first;  // per slot
  std::vector<int> last;   // -1: never used
  int end = 0;             // behind the last instruction
};
SlotSpans SpansOf(const ir::Program& program);

// Persistent slots (each name once over all programs) plus, of the program with the largest arena,
// the bytes by kind at the node when most is live. total_bytes is what a worker allocates for a
// device: persistent bytes, the largest arena, and the scratch in which collectives pack buckets
// and blocks (a part of the workspace). Not in it: what kernels keep for themselves, such as the
// tiles of a matmul, and the buffers of the transports. Of a farther memory: what is persistent
// there, and what the program that needs most puts there for a part of a step.
DeviceMemory PeakMemory(const std::vector<const ir::Program*>& programs);

// total_bytes of the device that needs most; 0: of none.
int64_t FullestBytes(std::span<const DeviceMemory> devices);

// Two amounts in MiB, or in bytes where they would look alike there.
std::pair<std::string, std::string> ApartMib(int64_t one, int64_t other);

// A device of unknown memory has enough. Errors: kResourceExhausted with the device, what it needs
// and has, and what takes less.
Status CheckDeviceMemory(const mesh::Topology& topology, DeviceIndex device, int64_t need_bytes,
                         const Layout& layout);

// Whether a device of the topology, as far as is known, may keep state on a disk.
bool MayUseDisk(const mesh::Topology& topology);

// What the job says is on a disk, before there is a plan. Errors: kResourceExhausted with the key
// and what would mend it, where no device may use one.
Status CheckDisks(const ir::ParallelSpec& parallel, const mesh::Topology& topology);

// What all devices keep in the memory of their hosts and on the disks of their workers; of a host
// or a worker that says no limit there is enough. GPUs, and workers that were started without a
// folder for it, keep nothing on disks. Errors:
// kResourceExhausted with the host or worker, what it would hold and has, and what takes less.
Status CheckFarMemory(const mesh::Topology& topology, std::span<const DeviceMemory> devices,
                      std::span<const DeviceIndex> of);

// Of the refusals of two plans for one job that which says more: a plan that CheckFarMemory refuses
// fits its devices, so what is to be mended is farther away, whatever others lack. Of two alike
// `now`.
const Status& MoreTelling(const Status& before, const Status& now);

}  // namespace meshwright::planner
