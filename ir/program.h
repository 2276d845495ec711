// The static program of one device: a flat list of RUN / SEND / RECV / PREFETCH / OFFLOAD / FREE
// over numbered slots.
//
//   RUN   executable, microbatch, inputs[], outputs[]
//                              run a local graph; an output slot equal to an input slot is updated
//                              in place (donated)
//   SEND  slot, box -> channel a tile of a cross-mesh transfer
//   RECV  slot, box <- channel fills a tile; the slot is defined once its tiles cover it
//   PREFETCH far slot -> slot  copies what another memory holds into a slot of the device
//   OFFLOAD  slot -> far slot  copies it there
//   FREE  slots[]              ends their life; their bytes may be reused by later slots
//
// Within a RUN an output may take bytes of a transient input, when the last node that reads the
// input comes before the first that writes the output (OperandTimes). The input's content is gone
// then; all that may follow is its FREE.
//
// A slot is a tensor with a fixed place. Persistent slots (weights, optimizer state) are found by
// name in the job's persistent memory and outlive the program; transient slots have an offset in
// the program's arena. A persistent slot may live in the memory of the host or on a disk (Space),
// a transient one in that of the host, at an offset of its own arena there: no message and no RUN
// of the device touches such a far slot, they have a transient copy on the device, and what is
// written to a copy is given back before the copy ends. A RUN whose operands are all in the host's
// memory is the host's (RunsOnHost): it has no temporaries and meets nobody, and what it writes
// makes all copies old. A transient far slot comes alive with the first OFFLOAD to it, or as an
// output of such a RUN; from its FREE on the copies that hold the same are all there is. Within a
// RUN, the executable's temporaries live in [workspace_offset, +workspace_bytes) of the arena, by
// ir::PlanWorkspace. All devices of a stage share their executables; the device's mesh coordinates
// resolve groups and sharded dims at load.
//
// Text form (FormatProgram); ranks are the devices of the stage's mesh, row-major over the axes:
//   program "step" device 3 of 8 stage 1 {
//     axes data=2 tensor=2 | coords data=0 tensor=1 | microbatches 4 | arena 64 | workspace 0 + 64
//     ranks 4 5 6 7
//     slot s0 : f32[64,64] persistent weights "wte" part [64,0:64,64] of [128,64]
//     slot s1 : f32[64,64] persistent host optimizer "opt.m/wte" part [64,0:64,64] of [128,64]
//     slot s7 : f32[2,16] transient activations @256 "stage0/f/%12"
//     slot s8 : f32[2,16] transient host activations @0 "host/stage0/f/%12"
//     channel c0 out to 5 capacity 2 bytes 4096 "step/c/3-5"
//     channel c1 in from 1 capacity 2 bytes 4096 "step/c/1-3"
//     RUN e0 mb=0 (s0, s1) -> (s7)
//     SEND s7 [0,0:2,8] -> c0
//     RECV s9 [0,0:2,8] <- c1
//     PREFETCH s1 -> s8
//     OFFLOAD s8 -> s1
//     FREE (s7, s9)
//     report "loss" s5
//     output "logits" s8
//     executable e0 = graph "f" { ... }
//   }
// Where the program says whether collectives run beside what computes, the line of the arena ends
// in
// "| overlap on" or "| overlap off".
// A report is a scalar that is read after every step; an output is this device's block of a tensor
// that a launch may ask for, and its slot says which block that is ("part").
// A tile that is the whole slot prints no box. Slots, channels and executables are numbered in
// order.
//
// What makes a list meaningful, beyond its instructions: a microbatch index is a name, so an
// executable with forward or backward nodes runs once for every microbatch and one with update
// nodes once per step; executables that write one slot in place are numbered in the order in which
// they run; a value that crosses meshes has one name, that of the output of the executable that
// makes it and of the input of those that read it. ir/verify.h holds programs to this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

enum class Opcode : uint8_t { kRun, kSend, kRecv, kFree, kPrefetch, kOffload };
inline constexpr int kOpcodeCount = static_cast<int>(Opcode::kOffload) + 1;

// Copies between the device's memory and a farther one.
constexpr bool IsTierCopy(Opcode op) { return op == Opcode::kPrefetch || op == Opcode::kOffload; }

// A box of a tensor: per dim an offset and a size. Empty vectors: the whole tensor.
struct Box {
  Dims offset;
  Dims size;
  friend bool operator==(const Box&, const Box&) = default;
};

struct Instruction {
  Opcode op = Opcode::kRun;
  ExecutableIndex executable;   // RUN
  int32_t microbatch = 0;       // RUN
  std::vector<SlotId> inputs;   // RUN; FREE: the slots that end; PREFETCH, OFFLOAD: one, read
  std::vector<SlotId> outputs;  // RUN; PREFETCH, OFFLOAD: one, written
  SlotId slot;                  // SEND, RECV
  Box box;                      // SEND, RECV
  ChannelId channel;            // SEND, RECV
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

enum class MemoryKind : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,
  kWorkspace,
  kOther
};
const char* MemoryKindName(MemoryKind kind);  // "weights", "gradients", ...

// The memory that a slot lives in, from near to far.
enum class Space : uint8_t { kDevice, kHost, kDisk };
inline constexpr size_t kSpaceCount = 3;
const char* SpaceName(Space space);  // "device", "host", "disk"

struct Slot {
  TensorType type;
  bool persistent = false;
  MemoryKind kind = MemoryKind::kActivations;
  Space space = Space::kDevice;  // transient slots: never kDisk
  int64_t offset_bytes = 0;      // in its space's arena; transient slots only, 64-byte aligned
  std::string name;              // persistent: the key in the job's memory; transient: for people
  // Persistent slots and outputs: which part of the logical tensor this device holds (whole when
  // empty).
  Dims global_dims;
  Box box;
  // What of a persistent slot is the part above: the first elements along each dim. Behind them is
  // padding (planner/padding.h), zeros, which is neither saved nor loaded.
  TensorType part() const { return box.size.empty() ? type : TensorType{type.dtype, box.size}; }
  friend bool operator==(const Slot&, const Slot&) = default;
};

struct ChannelEnd {
  bool outgoing = false;
  DeviceIndex peer;
  int32_t capacity = 2;
  int64_t max_message_bytes = 0;
  std::string name;  // equal at both ends and unique in the job: "step/c/0-4"
  friend bool operator==(const ChannelEnd&, const ChannelEnd&) = default;
};

// Whether collectives run beside what computes, or in their turn. Either way an instruction reads
// and writes what it would in its turn: bytes that two of them touch are never touched at once, and
// who comes first in the list does so (worker/step_list.h).
enum class OverlapMode : uint8_t {
  kByDevice,  // on GPUs they do
  kOn,
  kOff
};

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

struct Executable {
  // Inputs: its `input` nodes in order; outputs: its outputs in order.
  std::shared_ptr<const Graph> graph;
  friend bool operator==(const Executable& a, const Executable& b) { return *a.graph == *b.graph; }
};

struct Program {
  std::string name;  // "init", "step", "predict"
  DeviceIndex device;
  int32_t device_count = 1;  // of the job
  StageIndex stage{0};
  std::vector<MeshAxis> axes;             // of the stage's mesh, major first
  std::vector<int64_t> coords;            // of this device, one per axis
  std::vector<DeviceIndex> mesh_devices;  // row-major over the axes
  int32_t microbatches = 1;
  OverlapMode overlap = OverlapMode::kByDevice;
  int64_t arena_bytes = 0;  // transient slots + workspace
  int64_t workspace_offset = 0;
  int64_t workspace_bytes = 0;  // max over executables
  std::vector<Slot> slots;
  std::vector<ChannelEnd> channels;
  std::vector<Executable> executables;
  std::vector<Instruction> instructions;
  struct Report {
    std::string name;
    SlotId slot;
    friend bool operator==(const Report&, const Report&) = default;
  };
  // Scalars read after a step; only on the reporting device, else empty.
  std::vector<Report> reports;
  // Tensors read after a step when its launch asks for them; every block is on one device only.
  std::vector<Report> outputs;

  const Slot& slot(SlotId id) const { return slots[CheckedIndex(id, slots.size())]; }
  friend bool operator==(const Program&, const Program&) = default;
};

// What the transient slots of the host's memory take there.
int64_t HostArenaBytes(const Program& program);

// A RUN is done by whoever has its operands: by the host where they are in its memory.
bool RunsOnHost(const Program& program, const Instruction& instruction);

// Values that share memory: a node that may work in place (ir::InPlaceOperand) writes its result
// over a temporary that nothing else reads from then on. All values of a chain live where its last
// one does. An output ends a chain only where an op accumulates into it (ir::AccumulatorOf).
struct InPlaceChains {
  std::vector<ValueId> first;  // per value: of its chain
  std::vector<ValueId> last;
};
InPlaceChains FindInPlaceChains(const Graph& executable);

// When a RUN touches its operands, as positions of nodes.
struct OperandTimes {
  std::vector<int> last_read;    // per input: -1 never; the node count: copied behind the last node
  std::vector<int> first_write;  // per output: of its chain; 0 for an output that is an input
};
OperandTimes TimesOf(const Graph& executable);

// Per value the last node that something may touch it by; -1: none. That is who reads it last; but
// what an all-to-all reads stays until its result is read, so that what is computed between the two
// takes other bytes and may run beside it (worker/step_lanes.h).
std::vector<int> LastTouches(const Graph& executable);

// Static memory plan of an executable: offsets of every value that is neither an input nor in the
// place of an output, reused by liveness.
struct WorkspacePlan {
  std::vector<int64_t> offset_bytes;  // per value; -1 for inputs and chains of outputs
  int64_t bytes = 0;
};
WorkspacePlan PlanWorkspace(const Graph& executable);

}  // namespace meshwright::ir
