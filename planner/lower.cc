#include "planner/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "ir/lifetime.h"
#include "mesh/reshard.h"
#include "planner/memory.h"
#include "planner/tiers.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {
namespace {

using ir::Instruction;
using ir::Opcode;
using ir::Phase;
using ir::Program;

// Fewer are made sooner than a thread is.
constexpr int64_t kProgramsPerThread = 4;

// The tiles of one import, in the order that both sides use.
struct Transfer {
  const Import* import = nullptr;
  std::vector<mesh::Tile> tiles;
};

// What a step of the schedule runs, receives and sends, by the piece's key: there are many more
// steps than pieces.
struct LoweringIndex {
  std::map<PieceKey, std::vector<const Piece*>> pieces;
  std::map<PieceKey, std::vector<const Transfer*>> received_before;
  std::map<PieceKey, std::vector<const Transfer*>> sent_after;
};

LoweringIndex IndexOf(const Partition& partition, const std::vector<Transfer>& transfers) {
  LoweringIndex index;
  for (const Piece& piece : partition.pieces) index.pieces[piece.key].push_back(&piece);
  for (const Transfer& transfer : transfers) {
    index.received_before[transfer.import->before].push_back(&transfer);
    index.sent_after[transfer.import->after].push_back(&transfer);
  }
  return index;
}

template <typename T>
const std::vector<const T*>& FoundOr(const std::map<PieceKey, std::vector<const T*>>& map,
                                     const PieceKey& key) {
  static const std::vector<const T*> kNothing;
  const auto it = map.find(key);
  return it == map.end() ? kNothing : it->second;
}

// Where the slots of a program lie. Devices of a stage mostly have slots of the same sizes and
// lives, so that the first one's places are the others', too.
struct PlacedSlots {
  std::vector<ir::Lifetime> lifetimes;
  std::vector<std::shared_ptr<const ir::Graph>> graphs;  // of the executables
  ir::Placement placement;
  int64_t workspace_bytes = 0;
};

// What goes to the host's memory for a part of the step.
void PlaceHostSlots(const SlotSpans& spans, Program& program) {
  std::vector<ir::Lifetime> lifetimes;
  std::vector<size_t> owners;
  for (size_t s = 0; s < program.slots.size(); ++s) {
    const ir::Slot& slot = program.slots[s];
    if (slot.persistent || slot.space == ir::Space::kDevice) continue;
    MW_CHECK(slot.space == ir::Space::kHost && spans.last[s] >= 0)
        << "slot '" << slot.name << "' is far, and nothing goes there";
    lifetimes.push_back({slot.type.bytes(), spans.first[s], spans.last[s]});
    owners.push_back(s);
  }
  const ir::Placement placement = ir::PlaceLifetimes(lifetimes);
  for (size_t i = 0; i < owners.size(); ++i)
    program.slots[owners[i]].offset_bytes = placement.offset_bytes[i];
}

int64_t RoomForCopies(const LowerInput& input, const Program& program) {
  int64_t room_bytes = input.copies_bytes;
  for (const ir::Slot& slot : program.slots) {
    const bool weight = slot.persistent && slot.kind == ir::MemoryKind::kWeights;
    if (input.keeps_weights && weight && slot.space == ir::Space::kHost) {
      room_bytes += slot.type.bytes();
    }
  }
  return room_bytes;
}

// The slot as one of the state that stages share, or without its padding.
void PlaceBlock(const StateBlock& block, ir::Slot& slot) {
  slot.global_dims = block.whole_dims;
  slot.box.offset[0] += block.first_row;
  for (size_t d = 0; d < slot.global_dims.size(); ++d) {
    const int64_t whole = slot.global_dims[d];
    slot.box.offset[d] = std::min(slot.box.offset[d], whole);
    slot.box.size[d] = std::min(slot.box.size[d], whole - slot.box.offset[d]);
  }
}

class DeviceLowering {
 public:
  // `known`: of another device of the stage; null: none.
  DeviceLowering(const LowerInput& input, const LoweringIndex& index, int stage, int64_t position,
                 const PlacedSlots* known)
      : input_(input),
        partition_(*input.partition),
        index_(index),
        stage_(stage),
        position_(position),
        known_(known),
        mesh_(StageMesh(*input.layout, stage)),
        sweep_(ForwardSchedule(input.layout->shape(), input.microbatches)),
        slots_(partition_.tensors.size()) {
    MW_CHECK(position >= 0 && position < mesh_.device_count())
        << "position " << position << " of stage " << stage;
    program_.name = input.name;
    program_.device = mesh_.devices[static_cast<size_t>(position)];
    program_.device_count = static_cast<int32_t>(input.layout->device_count());
    program_.stage = StageIndex(stage);
    program_.axes = mesh_.axes;
    program_.coords = mesh_.CoordsOf(position);
    program_.mesh_devices = mesh_.devices;
    program_.microbatches = input.microbatches;
    program_.overlap = input.overlap;
  }

  Result<Program> Run() {
    RunPieces({stage_, Phase::kForward, kOncePerStep}, 0);
    for (const ScheduleStep& step : sweep_[static_cast<size_t>(stage_)]) {
      RunPieces({stage_, step.phase, kSweep, step.chunk}, step.microbatch);
    }
    for (const ScheduleStep& step : input_.schedule[static_cast<size_t>(stage_)]) {
      RunPieces({stage_, step.phase, 0, step.chunk, step.weights}, step.microbatch);
    }
    for (const auto& [key, pieces] : index_.pieces) {
      if (key.stage == stage_ && key.phase == Phase::kUpdate) RunPieces(key, 0);
    }
    AddTierCopies(RoomForCopies(input_, program_), input_.ahead_bytes, on_host_, program_);
    AddReports();
    InsertFrees();
    MW_TRY(PlaceSlots());
    return std::move(program_);
  }

  // Of the program that Run made.
  PlacedSlots TakePlaced() { return std::move(placed_); }

 private:
  const StageTensor& Tensor(TensorIndex index) const { return partition_.tensors[index]; }

  void RunPieces(const PieceKey& key, int microbatch) {
    const std::vector<const Piece*>& pieces = FoundOr(index_.pieces, key);
    if (pieces.empty()) return;
    Receive(key, microbatch);
    for (const Piece* piece : pieces) RunPiece(*piece, microbatch);
    Send(key, microbatch);
  }

  void RunPiece(const Piece& piece, int microbatch) {
    if (!piece.outputs.empty()) {
      Instruction run;
      run.op = Opcode::kRun;
      run.executable = ExecutableOf(piece);
      run.microbatch = microbatch;
      for (TensorIndex tensor : piece.inputs) run.inputs.push_back(SlotOf(tensor, microbatch));
      for (TensorIndex tensor : piece.outputs) run.outputs.push_back(SlotOf(tensor, microbatch));
      program_.instructions.push_back(std::move(run));
    }
  }

  ExecutableIndex ExecutableOf(const Piece& piece) {
    for (size_t i = 0; i < program_.executables.size(); ++i) {
      if (program_.executables[i].graph == piece.graph)
        return ExecutableIndex(static_cast<int32_t>(i));
    }
    program_.executables.push_back({piece.graph});
    on_host_.push_back(piece.on_host);
    return ExecutableIndex(static_cast<int32_t>(program_.executables.size()) - 1);
  }

  SlotId SlotOf(TensorIndex index, int microbatch) {
    const StageTensor& tensor = Tensor(index);
    const int instance = tensor.role == TensorRole::kMicrobatch ? microbatch : 0;
    std::vector<SlotId>& known = slots_[index];
    const auto at = static_cast<size_t>(instance);
    if (at >= known.size()) known.resize(at + 1);
    if (known[at].valid()) return known[at];
    ir::Slot slot;
    slot.type = tensor.local_type;
    slot.kind = tensor.kind;
    slot.persistent = tensor.role == TensorRole::kParam;
    slot.space = tensor.space;
    slot.name = slot.persistent ? tensor.name : fmt::format("{}#{}", tensor.name, instance);
    if (slot.persistent) {
      slot.global_dims = tensor.global_type.dims;
      slot.box = BoxOf(tensor, position_);
      if (tensor.block) PlaceBlock(*tensor.block, slot);
    }
    const SlotId id(static_cast<int32_t>(program_.slots.size()));
    program_.slots.push_back(std::move(slot));
    known[at] = id;
    return id;
  }

  // ---- transfers ----

  void Receive(const PieceKey& before, int microbatch) {
    for (const Transfer* transfer : FoundOr(index_.received_before, before)) {
      const int from_stage = Tensor(transfer->import->source).stage;
      for (const mesh::Tile& tile : transfer->tiles) {
        if (tile.to_position != position_) continue;
        const SlotId slot = SlotOf(transfer->import->destination, microbatch);
        AddTransfer(Opcode::kRecv, slot, tile.destination_local, from_stage, SenderOf(tile),
                    before);
      }
    }
  }

  void Send(const PieceKey& after, int microbatch) {
    for (const Transfer* transfer : FoundOr(index_.sent_after, after)) {
      const int to_stage = Tensor(transfer->import->destination).stage;
      for (const mesh::Tile& tile : transfer->tiles) {
        if (!Sends(tile)) continue;
        const SlotId slot = SlotOf(transfer->import->source, microbatch);
        AddTransfer(Opcode::kSend, slot, tile.source_local, to_stage, tile.to_position,
                    transfer->import->before);
      }
    }
  }

  int64_t SenderOf(const mesh::Tile& tile) const {
    return input_.scope == PlanScope::kOnePerStage ? 0 : tile.from_position;
  }

  bool Sends(const mesh::Tile& tile) const {
    if (input_.scope == PlanScope::kOnePerStage) return tile.to_position == 0;
    return tile.from_position == position_;
  }

  void AddTransfer(Opcode op, SlotId slot, const ir::Box& box, int peer_stage,
                   int64_t peer_position, const PieceKey& reader) {
    Instruction instruction;
    instruction.op = op;
    instruction.slot = slot;
    instruction.box = box;
    int64_t bytes = ir::DTypeBytes(program_.slot(slot).type.dtype);
    for (int64_t size : box.size) bytes *= size;
    instruction.channel = ChannelOf(op == Opcode::kSend, peer_stage, peer_position, reader, bytes);
    program_.instructions.push_back(std::move(instruction));
  }

  // One channel per device pair and reading piece: forward, backward and update never wait for each
  // other's messages.
  ChannelId ChannelOf(bool outgoing, int peer_stage, int64_t peer_position, const PieceKey& reader,
                      int64_t bytes) {
    const DeviceIndex peer(
        static_cast<int32_t>(input_.layout->FirstDevice(peer_stage) + peer_position));
    const auto [it, fresh] = channels_.try_emplace({outgoing, peer.value(), reader});
    if (!fresh) {
      ir::ChannelEnd& channel = program_.channels[it->second.index()];
      channel.max_message_bytes = std::max(channel.max_message_bytes, bytes);
      return it->second;
    }
    it->second = ChannelId(static_cast<int32_t>(program_.channels.size()));
    const DeviceIndex from = outgoing ? program_.device : peer;
    const DeviceIndex to = outgoing ? peer : program_.device;
    const std::string name =
        fmt::format("{}/{}/{}-{}", input_.name, PieceName(reader), from.value(), to.value());
    program_.channels.push_back({outgoing, peer,
                                 MessagesInFlight(peer_stage, peer_position, outgoing, reader),
                                 bytes, name});
    return it->second;
  }

  // Messages that a channel holds, of whole microbatches: with room for fewer, a stage could wait
  // in the middle of one for a reader that waits for it.
  int32_t MessagesInFlight(int peer_stage, int64_t peer_position, bool outgoing,
                           const PieceKey& reader) const {
    int32_t count = 0;
    const PipelineShape shape = StepShape(*input_.layout);
    for (const Transfer* transfer : FoundOr(index_.received_before, reader)) {
      const int from_stage = Tensor(transfer->import->source).stage;
      const int to_stage = Tensor(transfer->import->destination).stage;
      if ((outgoing ? from_stage : to_stage) != stage_ ||
          (outgoing ? to_stage : from_stage) != peer_stage)
        continue;
      const int32_t microbatches =
          MicrobatchesBetween(shape, input_.microbatches,
                              transfer->import->after.chunk != transfer->import->before.chunk);
      for (const mesh::Tile& tile : transfer->tiles) {
        const int64_t mine = outgoing ? SenderOf(tile) : tile.to_position;
        const int64_t theirs = outgoing ? tile.to_position : SenderOf(tile);
        if (mine == position_ && theirs == peer_position) count += microbatches;
      }
    }
    return count;
  }

  // ---- ends of lives ----

  void AddReports() {
    AddOutputs();
    if (program_.device.value() != ReportingDevice(*input_.layout)) return;
    for (const Report& report : partition_.reports) {
      const std::vector<SlotId>& known = slots_[report.tensor];
      if (!known.empty() && known[0].valid()) program_.reports.push_back({report.name, known[0]});
    }
  }

  // Of equal blocks the one on the first device.
  void AddOutputs() {
    for (const Report& output : partition_.outputs) {
      const StageTensor& tensor = Tensor(output.tensor);
      const std::vector<SlotId>& known = slots_[output.tensor];
      if (tensor.stage != stage_ || known.empty() || !known[0].valid()) continue;
      const ir::Box box = BoxOf(tensor, position_);
      bool first = true;
      for (int64_t p = 0; p < position_ && first; ++p) first = BoxOf(tensor, p) != box;
      if (!first) continue;
      ir::Slot& slot = program_.slots[known[0].index()];
      slot.global_dims = tensor.global_type.dims;
      slot.box = box;
      program_.outputs.push_back({output.name, known[0]});
    }
  }

  ir::Box BoxOf(const StageTensor& tensor, int64_t position) const {
    return mesh::LocalBox(tensor.global_type.dims, tensor.sharding, mesh_, position);
  }

  bool IsReport(SlotId id) const {
    const auto reads = [&](const Program::Report& report) { return report.slot == id; };
    return std::any_of(program_.reports.begin(), program_.reports.end(), reads) ||
           std::any_of(program_.outputs.begin(), program_.outputs.end(), reads);
  }

  // The last instruction of each slot; -1: none.
  std::vector<int> LastUses() const {
    std::vector<int> last(program_.slots.size(), -1);
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const auto use = [&](SlotId slot) {
        if (slot.valid()) last[slot.index()] = static_cast<int>(i);
      };
      const Instruction& instruction = program_.instructions[i];
      for (const SlotId slot : instruction.inputs) use(slot);
      for (const SlotId slot : instruction.outputs) use(slot);
      use(instruction.slot);
    }
    return last;
  }

  void InsertFrees() {
    const std::vector<int> last = LastUses();
    std::vector<std::pair<int, SlotId>> ends;
    for (size_t s = 0; s < last.size(); ++s) {
      const SlotId id(static_cast<int32_t>(s));
      if (!program_.slots[s].persistent && last[s] >= 0 && !IsReport(id))
        ends.emplace_back(last[s], id);
    }
    std::stable_sort(ends.begin(), ends.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Instruction> with_frees;
    with_frees.reserve(2 * program_.instructions.size());
    auto end = ends.begin();
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      with_frees.push_back(std::move(program_.instructions[i]));
      if (end == ends.end() || end->first != static_cast<int>(i)) continue;
      Instruction free;
      free.op = Opcode::kFree;
      for (; end != ends.end() && end->first == static_cast<int>(i); ++end) {
        free.inputs.push_back(end->second);
      }
      with_frees.push_back(std::move(free));
    }
    MW_CHECK(end == ends.end()) << "slots outlive the program of device " << program_.device;
    program_.instructions = std::move(with_frees);
  }

  // Arena: transient slots by the nodes that write and read them, then the workspace of the largest
  // executable. What cannot fit wherever slots are placed is refused before they are.
  Status PlaceSlots() {
    std::vector<ir::Lifetime>& lifetimes = placed_.lifetimes;
    std::vector<size_t> owners;
    const SlotSpans spans = SpansOf(program_);
    PlaceHostSlots(spans, program_);
    int64_t persistent_bytes = 0;
    for (size_t s = 0; s < program_.slots.size(); ++s) {
      const int64_t bytes = program_.slots[s].type.bytes();
      if (program_.slots[s].space != ir::Space::kDevice) continue;
      if (program_.slots[s].persistent) persistent_bytes += bytes;
      if (program_.slots[s].persistent || spans.last[s] < 0) continue;
      const bool report = IsReport(SlotId(static_cast<int32_t>(s)));
      lifetimes.push_back({bytes, spans.first[s], report ? spans.end : spans.last[s]});
      owners.push_back(s);
    }
    for (const ir::Executable& executable : program_.executables) {
      placed_.graphs.push_back(executable.graph);
    }
    const bool same_graphs = known_ != nullptr && known_->graphs == placed_.graphs;
    placed_.workspace_bytes = same_graphs ? known_->workspace_bytes : MostWorkspaceBytes();
    program_.workspace_bytes = placed_.workspace_bytes;
    if (input_.topology) {
      const int64_t least_bytes =
          persistent_bytes + ir::MostLiveBytes(lifetimes) + program_.workspace_bytes;
      MW_TRY(CheckDeviceMemory(*input_.topology, program_.device, least_bytes, *input_.layout));
    }
    const bool same_slots = known_ != nullptr && known_->lifetimes == lifetimes;
    if (!same_slots) placed_.placement = ir::PlaceLifetimes(lifetimes);
    const ir::Placement& placement = same_slots ? known_->placement : placed_.placement;
    MW_CHECK(placement.offset_bytes.size() == owners.size())
        << placement.offset_bytes.size() << " places for " << owners.size() << " slots";
    for (size_t i = 0; i < owners.size(); ++i)
      program_.slots[owners[i]].offset_bytes = placement.offset_bytes[i];
    program_.workspace_offset = placement.bytes;
    program_.arena_bytes = placement.bytes + program_.workspace_bytes;
    return OkStatus();
  }

  int64_t MostWorkspaceBytes() const {
    int64_t most = 0;
    for (const ir::Executable& executable : program_.executables) {
      most = std::max(most, ir::PlanWorkspace(*executable.graph).bytes);
    }
    return most;
  }

  const LowerInput& input_;
  const Partition& partition_;
  const LoweringIndex& index_;
  const int stage_;
  const int64_t position_;
  const PlacedSlots* const known_;
  const mesh::Mesh mesh_;
  const std::vector<StageSchedule> sweep_;  // of all stages
  Program program_;
  std::vector<bool> on_host_;  // per executable: the host runs it
  PlacedSlots placed_;
  // [tensor][microbatch, or 0 where the tensor has one instance per step]; not valid: not yet.
  IdVector<TensorIndex, std::vector<SlotId>> slots_;
  std::map<std::tuple<bool, int32_t, PieceKey>, ChannelId> channels_;  // outgoing, peer, reader
};

// Tiles of an import, per microbatch: the micro axis is dropped from type and shardings.
Result<Transfer> PlanImport(const Partition& partition, const Import& import,
                            const Layout& layout) {
  const StageTensor& source = partition.tensors[import.source];
  const StageTensor& destination = partition.tensors[import.destination];
  ir::TensorType type = source.global_type;
  for (size_t d = 0; d < source.sharding.dims.size(); ++d) {
    const mesh::AxisList& axes = source.sharding.dims[d];
    if (std::find(axes.begin(), axes.end(), kMicro) != axes.end())
      type.dims[d] /= layout.microbatches;
  }
  Transfer transfer;
  transfer.import = &import;
  MW_ASSIGN_OR_RETURN(transfer.tiles, mesh::PlanTransfer(type, WithoutAxis(source.sharding, kMicro),
                                                         StageMesh(layout, source.stage),
                                                         WithoutAxis(destination.sharding, kMicro),
                                                         StageMesh(layout, destination.stage)));
  return transfer;
}

// The first device of each stage, then the others with its places.
Result<std::vector<Program>> LowerAll(const LowerInput& input, const LoweringIndex& index) {
  MW_CHECK(static_cast<int64_t>(input.schedule.size()) == input.layout->pipeline)
      << "a schedule of " << input.schedule.size() << " stages";
  std::vector<std::pair<int, int64_t>> places;  // stage, position
  std::vector<size_t> first_of_stage;           // of `places`
  for (int stage = 0; stage < input.layout->pipeline; ++stage) {
    first_of_stage.push_back(places.size());
    const int64_t end =
        input.scope == PlanScope::kOnePerStage ? 1 : input.layout->DegreesOf(stage).device_count();
    for (int64_t position = 0; position < end; ++position) places.emplace_back(stage, position);
  }
  std::vector<Result<Program>> lowered(places.size());
  std::vector<PlacedSlots> placed(first_of_stage.size());
  ParallelItems(input.layout->pipeline, kProgramsPerThread, [&](int64_t i) {
    const auto stage = static_cast<size_t>(i);
    DeviceLowering lowering(input, index, static_cast<int>(i), 0, nullptr);
    lowered[first_of_stage[stage]] = lowering.Run();
    placed[stage] = lowering.TakePlaced();
  });
  ParallelItems(static_cast<int64_t>(places.size()), kProgramsPerThread, [&](int64_t i) {
    const auto [stage, position] = places[static_cast<size_t>(i)];
    if (position == 0) return;
    const PlacedSlots& known = placed[static_cast<size_t>(stage)];
    lowered[static_cast<size_t>(i)] = DeviceLowering(input, index, stage, position, &known).Run();
  });
  std::vector<Program> programs;
  for (Result<Program>& program : lowered) {
    MW_TRY(program);
    programs.push_back(*std::move(program));
  }
  return programs;
}

}  // namespace

mesh::Mesh StageMesh(const Layout& layout, int stage) {
  const Degrees& degrees = layout.DegreesOf(stage);
  mesh::Mesh mesh{StageAxes(layout, degrees), {}};
  const int64_t first = layout.FirstDevice(stage);
  for (int64_t i = 0; i < degrees.device_count(); ++i) {
    mesh.devices.push_back(DeviceIndex(static_cast<int32_t>(first + i)));
  }
  return mesh;
}

int ReportingDevice(const Layout& layout) {
  const PipelineShape shape = layout.shape();
  return static_cast<int>(layout.FirstDevice(shape.StageOf(shape.parts() - 1)));
}

Status CheckInitialized(const Program& init, const Program& program) {
  for (const ir::Slot& slot : program.slots) {
    const bool filled = std::any_of(init.slots.begin(), init.slots.end(), [&](const auto& other) {
      return other.persistent && other.name == slot.name;
    });
    if (filled || !slot.persistent) continue;
    return Internal(fmt::format("device {} uses \"{}\" in \"{}\", but \"{}\" does not fill it",
                                program.device.value(), slot.name, program.name, init.name));
  }
  return OkStatus();
}

Result<std::vector<Program>> LowerToPrograms(const LowerInput& input) {
  std::vector<Transfer> transfers;
  for (const Import& import : input.partition->imports) {
    MW_ASSIGN_OR_RETURN(Transfer transfer, PlanImport(*input.partition, import, *input.layout));
    transfers.push_back(std::move(transfer));
  }
  // Senders list a channel's messages by the piece that made them; receivers must agree.
  std::stable_sort(transfers.begin(), transfers.end(), [](const Transfer& a, const Transfer& b) {
    return a.import->after < b.import->after;
  });
  return LowerAll(input, IndexOf(*input.partition, transfers));
}

}  // namespace meshwright::planner
