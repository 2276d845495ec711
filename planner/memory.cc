#include "planner/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "planner/cost_model.h"
#include "planner/resolve_layout.h"

namespace meshwright::planner {
namespace {

constexpr int64_t kAlignmentBytes = 64;  // of what a worker allocates

int64_t AlignUp(int64_t bytes) {
  MW_CHECK(bytes >= 0) << bytes << " bytes";
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

// Live transient bytes by kind at the peak of a memory.
std::map<ir::MemoryKind, int64_t> TransientPeak(const ir::Program& program, ir::Space space) {
  struct Change {
    int tick = 0;
    int64_t bytes = 0;
    ir::MemoryKind kind = ir::MemoryKind::kOther;
  };
  const SlotSpans spans = SpansOf(program);
  std::vector<Change> changes;
  for (size_t s = 0; s < program.slots.size(); ++s) {
    const ir::Slot& slot = program.slots[s];
    if (slot.persistent || spans.last[s] < 0 || slot.space != space) continue;
    changes.push_back({spans.first[s], slot.type.bytes(), slot.kind});
    changes.push_back({spans.last[s] + 1, -slot.type.bytes(), slot.kind});
  }
  // At one tick ends come before beginnings.
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::pair(a.tick, a.bytes) < std::pair(b.tick, b.bytes);
  });
  int64_t live_bytes = 0;
  int64_t most_bytes = 0;
  size_t most_end = 0;  // of the changes that lead to the peak
  for (size_t i = 0; i < changes.size(); ++i) {
    live_bytes += changes[i].bytes;
    if (live_bytes <= most_bytes) continue;
    most_bytes = live_bytes;
    most_end = i + 1;
  }
  MW_CHECK(live_bytes == 0) << live_bytes << " bytes are never given back";
  std::map<ir::MemoryKind, int64_t> peak;
  for (size_t i = 0; i < most_end; ++i) peak[changes[i].kind] += changes[i].bytes;
  return peak;
}

int64_t GroupSize(const ir::Program& program, const ir::Node& node) {
  int64_t size = 1;
  for (const std::string& name : node.attrs.Strs("axes")) {
    for (const ir::MeshAxis& axis : program.axes) size *= axis.name == name ? axis.size : 1;
  }
  return size;
}

// Where a collective packs what it sends or unpacks what it received.
int64_t CollectiveScratch(const ir::Program& program, const ir::Graph& graph,
                          const ir::Node& node) {
  if (!IsCollective(node.op) || GroupSize(program, node) == 1) return 0;
  return PackedBytes(graph, node);
}

// A message that is not one run of its slot is packed.
int64_t MessageScratch(const ir::Program& program, const ir::Instruction& instruction) {
  const ir::TensorType& type = program.slot(instruction.slot).type;
  const ir::Dims& size = instruction.box.size;
  int64_t bytes = ir::DTypeBytes(type.dtype);
  bool partial = false;
  bool strided = false;
  for (size_t d = size.size(); d-- > 0;) {
    strided = strided || (partial && size[d] > 1);
    partial = partial || size[d] != type.dims[d];
    bytes *= size[d];
  }
  return strided ? bytes : 0;
}

// The largest need at one moment. Instructions run one after the other; where collectives run
// beside what computes, buckets, other collectives and messages have memory of their own.
struct ScratchNeed {
  int64_t bucket_bytes = 0;
  int64_t collective_bytes = 0;
  int64_t message_bytes = 0;

  int64_t Together() const { return std::max({bucket_bytes, collective_bytes, message_bytes}); }
  int64_t Apart() const {
    return AlignUp(bucket_bytes) + AlignUp(collective_bytes) + AlignUp(message_bytes);
  }
};

void AddScratch(const ir::Program& program, ScratchNeed& need) {
  for (const ir::Executable& executable : program.executables) {
    for (const ir::Node& node : executable.graph->nodes) {
      int64_t& most = node.inputs.size() > 1 ? need.bucket_bytes : need.collective_bytes;
      most = std::max(most, CollectiveScratch(program, *executable.graph, node));
    }
  }
  for (const ir::Instruction& instruction : program.instructions) {
    if (instruction.op != ir::Opcode::kSend && instruction.op != ir::Opcode::kRecv) continue;
    need.message_bytes = std::max(need.message_bytes, MessageScratch(program, instruction));
  }
}

// What is left to raise, from what costs least.
std::string WhatTakesLess(const Layout& layout) {
  std::string text;
  if (layout.degrees[Axis::kData] > 1 && layout.zero < 3) {
    text += fmt::format("let replicas split more (ZeRO, now stage {}), ", layout.zero);
  }
  const bool all_full = !layout.recompute.empty() &&
                        std::all_of(layout.recompute.begin(), layout.recompute.end(),
                                    [](Recompute mode) { return mode == Recompute::kFull; });
  if (!all_full) text += "let the backward compute more again (activation checkpointing), ";
  return text + fmt::format(
                    "raise tensor or pipeline, use more microbatches (now {}), or a smaller batch "
                    "or sequence",
                    layout.microbatches);
}

}  // namespace

namespace {

// Where collectives run beside what computes, one of inputs alone may write its result as soon as
// these are made, which is at `made` of their slots.
int EarliestWrite(const ir::Graph& graph, ValueId result, const ir::Instruction& run,
                  const std::vector<int>& made, int listed) {
  const ir::Node& node = graph.node(graph.value(result).producer);
  if (!IsCollective(node.op)) return listed;
  const std::vector<NodeId> inputs = graph.NodesOf(ir::Op::kInput);
  int earliest = 0;
  for (const ValueId operand : node.inputs) {
    const auto at = std::find(inputs.begin(), inputs.end(), graph.value(operand).producer);
    if (at == inputs.end()) return listed;
    const SlotId slot = run.inputs[static_cast<size_t>(at - inputs.begin())];
    MW_CHECK(slot.index() < made.size()) << "slot " << slot << " of " << made.size();
    if (made[slot.index()] < 0) return listed;
    earliest = std::max(earliest, made[slot.index()]);
  }
  return std::min(earliest, listed);
}

}  // namespace

SlotSpans SpansOf(const ir::Program& program) {
  std::map<const ir::Graph*, ir::OperandTimes> times;
  for (const ir::Executable& executable : program.executables) {
    times[executable.graph.get()] = ir::TimesOf(*executable.graph);
  }
  SlotSpans spans;
  spans.first.assign(program.slots.size(), std::numeric_limits<int>::max());
  spans.last.assign(program.slots.size(), -1);
  std::vector<int> made(program.slots.size(), -1);  // by the last RUN that wrote the slot
  const auto touch = [&](SlotId id, int from, int to) {
    const auto s = id.index();
    spans.first[s] = std::min(spans.first[s], from);
    spans.last[s] = std::max(spans.last[s], to);
  };
  for (const ir::Instruction& instruction : program.instructions) {
    const int start = spans.end;
    if (instruction.slot.valid()) touch(instruction.slot, start, start);
    spans.end = start + 1;
    if (ir::IsTierCopy(instruction.op)) {
      touch(instruction.inputs[0], start, start);
      touch(instruction.outputs[0], start, start);
    }
    if (instruction.op != ir::Opcode::kRun) continue;
    const ir::Graph& graph = *program.executables[instruction.executable.index()].graph;
    const ir::OperandTimes& operands = times.at(&graph);
    MW_CHECK(operands.last_read.size() == instruction.inputs.size() &&
             operands.first_write.size() == instruction.outputs.size())
        << "a run of " << graph.name << " binds other counts than its graph has";
    const int nodes = static_cast<int>(graph.nodes.size());
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      touch(instruction.inputs[i], start, start + std::max(0, operands.last_read[i]));
    }
    const bool beside = program.overlap == ir::OverlapMode::kOn;
    for (size_t o = 0; o < instruction.outputs.size(); ++o) {
      const ValueId result = graph.outputs[o].value;
      int first = start + operands.first_write[o];
      if (beside) first = EarliestWrite(graph, result, instruction, made, first);
      touch(instruction.outputs[o], first, start + nodes);
    }
    for (size_t o = 0; o < instruction.outputs.size(); ++o) {
      const NodeId producer = graph.value(graph.outputs[o].value).producer;
      made[instruction.outputs[o].index()] = start + producer.value();
    }
    spans.end = start + nodes + 1;
  }
  return spans;
}

namespace {

void AddPersistent(const ir::Slot& slot, DeviceMemory& memory) {
  const int64_t bytes = slot.type.bytes();
  if (slot.space == ir::Space::kDevice) {
    memory.bytes[slot.kind] += bytes;
    memory.total_bytes += AlignUp(bytes);
    return;
  }
  FarMemory& far = slot.space == ir::Space::kHost ? memory.host : memory.disk;
  far.bytes[slot.kind] += bytes;
  far.total_bytes += AlignUp(bytes);
}

// Of the program that puts most there.
void AddHostArena(const std::vector<const ir::Program*>& programs, FarMemory& host) {
  const ir::Program* largest = nullptr;
  int64_t most_bytes = 0;
  for (const ir::Program* program : programs) {
    const int64_t bytes = ir::HostArenaBytes(*program);
    if (bytes > most_bytes) largest = program;
    most_bytes = std::max(most_bytes, bytes);
  }
  if (largest == nullptr) return;
  for (const auto& [kind, bytes] : TransientPeak(*largest, ir::Space::kHost)) {
    host.bytes[kind] += bytes;
  }
  host.total_bytes += AlignUp(most_bytes);
}

}  // namespace

DeviceMemory PeakMemory(const std::vector<const ir::Program*>& programs) {
  DeviceMemory memory;
  std::set<std::string> counted;
  const ir::Program* largest = nullptr;
  ScratchNeed scratch;
  bool apart = false;
  for (const ir::Program* program : programs) {
    for (const ir::Slot& slot : program->slots) {
      if (slot.persistent && counted.insert(slot.name).second) AddPersistent(slot, memory);
    }
    AddScratch(*program, scratch);
    apart = apart || program->overlap == ir::OverlapMode::kOn;
    if (!largest || program->arena_bytes > largest->arena_bytes) largest = program;
  }
  if (!largest) return memory;
  const int64_t scratch_bytes = apart ? scratch.Apart() : scratch.Together();
  AddHostArena(programs, memory.host);
  for (const auto& [kind, bytes] : TransientPeak(*largest, ir::Space::kDevice))
    memory.bytes[kind] += bytes;
  memory.bytes[ir::MemoryKind::kWorkspace] += largest->workspace_bytes + scratch_bytes;
  memory.total_bytes += AlignUp(largest->arena_bytes) + AlignUp(scratch_bytes);
  return memory;
}

int64_t FullestBytes(std::span<const DeviceMemory> devices) {
  int64_t most = 0;
  for (const DeviceMemory& device : devices) most = std::max(most, device.total_bytes);
  return most;
}

std::pair<std::string, std::string> ApartMib(int64_t one, int64_t other) {
  const auto text = [](int64_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
  };
  if (text(one) != text(other)) return {text(one), text(other)};
  return {FormatCount(one) + " bytes", FormatCount(other) + " bytes"};
}

Status CheckDeviceMemory(const mesh::Topology& topology, DeviceIndex device, int64_t need_bytes,
                         const Layout& layout) {
  MW_CHECK(device.index() < topology.devices.size())
      << "device " << device << " is not of the topology";
  const mesh::Device& owner = topology.devices[device.index()];
  if (owner.memory_bytes == 0 || need_bytes <= owner.memory_bytes) return OkStatus();
  const auto [needs, has] = ApartMib(need_bytes, owner.memory_bytes);
  return ResourceExhausted(fmt::format("device {} ({} of {}) needs {} and has {}; {}",
                                       device.value(), owner.local_index, owner.worker, needs, has,
                                       WhatTakesLess(layout)));
}

namespace {

constexpr double kMib = 1048576.0;

struct Kept {
  int64_t bytes = 0;
  int64_t limit_bytes = 0;  // 0: none
};

// Of the first that is to hold more than it may.
std::optional<std::pair<std::string, Kept>> TooFull(const std::map<std::string, Kept>& kept) {
  for (const auto& [name, what] : kept) {
    if (what.limit_bytes > 0 && what.bytes > what.limit_bytes) return std::pair(name, what);
  }
  return std::nullopt;
}

Status CheckHosts(const std::map<std::string, Kept>& hosts) {
  const auto full = TooFull(hosts);
  if (!full) return OkStatus();
  const auto [keep, has] = ApartMib(full->second.bytes, full->second.limit_bytes);
  return ResourceExhausted(
      fmt::format("the devices of {} keep {} in its host's memory, which has {} for them; keep "
                  "less there (parallelism.optimizer_memory, weights_memory, gradients_memory, "
                  "activations_memory), or state on a disk (\"disk\")",
                  full->first, keep, has));
}

Status CheckScratch(const std::map<std::string, Kept>& disks) {
  const auto full = TooFull(disks);
  if (!full) return OkStatus();
  const auto [keep, has] = ApartMib(full->second.bytes, full->second.limit_bytes);
  constexpr int64_t kWholeMib = 1 << 20;
  return ResourceExhausted(fmt::format(
      "the room on the disk is too small: the devices of {} keep {} on it and may have {}; let "
      "them have "
      "more (`meshwright worker --scratch-mib {}`, disk_gib of a cluster file), or keep optimizer "
      "and weights in the memory of the host (\"host\")",
      full->first, keep, has, (full->second.bytes + kWholeMib - 1) / kWholeMib));
}

Status CheckDisk(const mesh::Device& device, DeviceIndex index, int64_t bytes) {
  if (bytes == 0 || device.disk == mesh::Disk::kPerhaps) return OkStatus();
  if (device.disk == mesh::Disk::kOfGpu) {
    return ResourceExhausted(
        fmt::format("device {} ({} of {}) is a GPU, and GPUs keep nothing on a disk; optimizer "
                    "and weights can be in the memory of the host",
                    index.value(), device.local_index, device.worker));
  }
  return ResourceExhausted(fmt::format(
      "device {} ({} of {}) would keep {:.1f} MiB on a disk, and its worker was started without a "
      "folder for that; start the workers with --scratch-dir DIR, or keep optimizer and weights in "
      "the memory of the host (\"host\")",
      index.value(), device.local_index, device.worker, static_cast<double>(bytes) / kMib));
}

}  // namespace

Status CheckDisks(const ir::ParallelSpec& parallel, const mesh::Topology& topology) {
  if (MayUseDisk(topology)) return OkStatus();
  const auto no_folder = [](const mesh::Device& device) {
    return device.disk == mesh::Disk::kNoFolder;
  };
  const bool started = std::any_of(topology.devices.begin(), topology.devices.end(), no_folder);
  for (const MemoryPin& pin : kMemoryPins) {
    if (parallel.*pin.memory != "disk") continue;
    return ResourceExhausted(fmt::format(
        "parallelism.{0}_memory = \"disk\": {1}parallelism.{0}_memory = \"host\"", pin.kind,
        started ? "no worker was started with a folder for it; start the workers with "
                  "--scratch-dir DIR, or say "
                : "the devices are GPUs, and GPUs keep nothing on a disk; say "));
  }
  return OkStatus();
}

bool MayUseDisk(const mesh::Topology& topology) {
  return topology.devices.empty() ||
         std::any_of(topology.devices.begin(), topology.devices.end(),
                     [](const auto& device) { return device.disk == mesh::Disk::kPerhaps; });
}

namespace {

// Such refusals are known by how they begin: nothing is put before it on the way to MoreTelling.
constexpr std::string_view kFarMemory = "no room in farther memories";

Status CheckKept(const mesh::Topology& topology, std::span<const DeviceMemory> devices,
                 std::span<const DeviceIndex> of) {
  std::map<std::string, Kept> hosts;
  std::map<std::string, Kept> disks;
  for (size_t i = 0; i < of.size(); ++i) {
    const mesh::Device& device = topology.devices[of[i].index()];
    const auto host = topology.hosts.find(device.host);
    Kept& of_host = hosts[device.host];
    of_host.bytes += devices[i].host.total_bytes;
    of_host.limit_bytes = host == topology.hosts.end() ? 0 : host->second.memory_bytes;
    Kept& of_disk = disks[device.worker];
    of_disk.bytes += devices[i].disk.total_bytes;
    of_disk.limit_bytes = device.disk_bytes;
  }
  MW_TRY(CheckHosts(hosts));
  return CheckScratch(disks);
}

bool IsOfFarMemory(const Status& refusal) {
  return refusal.code() == StatusCode::kResourceExhausted &&
         refusal.message().starts_with(kFarMemory);
}

}  // namespace

Status CheckFarMemory(const mesh::Topology& topology, std::span<const DeviceMemory> devices,
                      std::span<const DeviceIndex> of) {
  for (size_t i = 0; i < of.size(); ++i) {
    MW_TRY(CheckDisk(topology.devices[of[i].index()], of[i], devices[i].disk.total_bytes));
  }
  return CheckKept(topology, devices, of).WithContext(kFarMemory);
}

const Status& MoreTelling(const Status& before, const Status& now) {
  return IsOfFarMemory(before) && !IsOfFarMemory(now) ? before : now;
}

}  // namespace meshwright::planner
