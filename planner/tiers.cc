#include "planner/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/cut_piece.h"
#include "planner/residency.h"

namespace meshwright::planner {
namespace {

using ir::Instruction;
using ir::Opcode;
using ir::Space;

// Per node the params of the host that it reads, or makes.
std::vector<std::set<TensorIndex>> HostParamsOf(const Piece& piece, const Partition& partition) {
  const ir::Graph& graph = *piece.graph;
  const auto on_host = [&](TensorIndex tensor) {
    return partition.tensors[tensor].space == Space::kHost;
  };
  std::vector<std::set<TensorIndex>> touched(graph.nodes.size());
  const auto users = graph.Users();
  const std::vector<NodeId> inputs = graph.NodesOf(ir::Op::kInput);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!on_host(piece.inputs[i])) continue;
    for (const NodeId user : users[graph.node(inputs[i]).outputs[0]]) {
      touched[user.index()].insert(piece.inputs[i]);
    }
  }
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    if (!on_host(piece.outputs[o])) continue;
    touched[graph.value(graph.outputs[o].value).producer.index()].insert(piece.outputs[o]);
  }
  return touched;
}

// The chunk of each node that touches the host's memory, from 1; 0: it does not.
std::vector<int> ChunkNodes(const Piece& piece, const Partition& partition, int64_t chunk_bytes) {
  MW_CHECK(chunk_bytes > 0) << "chunks of " << chunk_bytes << " bytes";
  std::vector<int> chunks(piece.graph->nodes.size(), 0);
  const auto touched = HostParamsOf(piece, partition);
  int chunk = 0;
  int64_t room = 0;
  for (size_t n = 0; n < touched.size(); ++n) {
    if (touched[n].empty()) continue;
    int64_t bytes = 0;
    for (const TensorIndex tensor : touched[n]) {
      bytes += partition.tensors[tensor].local_type.bytes();
    }
    if (chunk == 0 || bytes > room) {
      ++chunk;
      room = chunk_bytes;
    }
    room -= bytes;
    chunks[n] = chunk;
  }
  return chunks;
}

// The copies of one program's RUNs.
class CopyAdder {
 public:
  explicit CopyAdder(ir::Program& program) : program_(program) {}

  void Run(int64_t room_bytes) {
    FindUses();
    residency_ = PlanResidency(uses_, bytes_, room_bytes);
    std::vector<Instruction> with_copies;
    size_t ahead = 0;  // where the copies of the next RUN go
    size_t turn = 0;
    for (Instruction& instruction : program_.instructions) {
      if (instruction.op != Opcode::kRun) {
        with_copies.push_back(std::move(instruction));
        continue;
      }
      std::vector<Instruction> before;
      std::vector<Instruction> behind;
      UseCopies(turn++, instruction, before, behind);
      with_copies.insert(with_copies.begin() + static_cast<int64_t>(ahead), before.begin(),
                         before.end());
      ahead = with_copies.size();
      with_copies.push_back(std::move(instruction));
      with_copies.insert(with_copies.end(), behind.begin(), behind.end());
    }
    program_.instructions = std::move(with_copies);
  }

 private:
  struct Copy {
    SlotId slot;
    bool filled = false;
  };

  bool OnHost(SlotId id) const { return program_.slot(id).space == Space::kHost; }

  void FindUses() {
    for (const Instruction& run : program_.instructions) {
      if (run.op != Opcode::kRun) continue;
      std::vector<size_t>& turn = uses_.emplace_back();
      const auto use = [&](SlotId id) {
        if (!OnHost(id)) return;
        const auto [at, fresh] = items_.try_emplace(id, items_.size());
        if (fresh) bytes_.push_back(program_.slot(id).type.bytes());
        const size_t item = at->second;
        if (std::find(turn.begin(), turn.end(), item) == turn.end()) turn.push_back(item);
      };
      for (const SlotId id : run.inputs) use(id);
      for (const SlotId id : run.outputs) use(id);
    }
    copies_.resize(items_.size());
  }

  void UseCopies(size_t turn, Instruction& run, std::vector<Instruction>& before,
                 std::vector<Instruction>& behind) {
    MW_CHECK(turn < uses_.size()) << program_.name << " runs more than was counted";
    for (size_t i = 0; i < uses_[turn].size(); ++i) {
      if (residency_.fetched[turn][i]) copies_[uses_[turn][i]] = {};
    }
    std::set<SlotId> read;  // what is written and not read has a new copy
    for (SlotId& id : run.inputs) {
      if (!OnHost(id)) continue;
      Copy& copy = CopyOf(id);
      if (!copy.filled) before.push_back(MakeCopy(Opcode::kPrefetch, id, copy.slot));
      read.insert(id);
      copy.filled = true;
      id = copy.slot;
    }
    for (SlotId& id : run.outputs) {
      if (!OnHost(id)) continue;
      if (!read.contains(id)) copies_[items_.at(id)] = {};
      Copy& copy = CopyOf(id);
      copy.filled = true;
      behind.push_back(MakeCopy(Opcode::kOffload, copy.slot, id));
      id = copy.slot;
    }
  }

  Copy& CopyOf(SlotId home) {
    Copy& copy = copies_[items_.at(home)];
    if (!copy.slot.valid()) copy.slot = AddSlot(home);
    return copy;
  }

  static Instruction MakeCopy(Opcode op, SlotId from, SlotId to) {
    Instruction copy;
    copy.op = op;
    copy.inputs = {from};
    copy.outputs = {to};
    return copy;
  }

  SlotId AddSlot(SlotId home) {
    const SlotId id(static_cast<int32_t>(program_.slots.size()));
    ir::Slot slot;
    slot.type = program_.slot(home).type;
    slot.kind = program_.slot(home).kind;
    slot.name = fmt::format("copy/{}", program_.slot(home).name);
    program_.slots.push_back(std::move(slot));
    return id;
  }

  ir::Program& program_;
  std::map<SlotId, size_t> items_;  // slots of the host's memory
  std::vector<int64_t> bytes_;      // of them
  std::vector<std::vector<size_t>> uses_;
  Residency residency_;
  std::vector<Copy> copies_;  // that are there
};

}  // namespace

Status PlaceState(const ir::ParallelSpec& wanted, Partition& partition) {
  const bool optimizer = wanted.optimizer_memory == "host";
  const bool weights = wanted.weights_memory == "host";
  if (!optimizer && !weights) return OkStatus();
  for (StageTensor& tensor : partition.tensors) {
    if (tensor.role != TensorRole::kParam) continue;
    const bool moves = (optimizer && tensor.kind == ir::MemoryKind::kOptimizer) ||
                       (weights && tensor.kind == ir::MemoryKind::kWeights);
    if (moves) tensor.space = Space::kHost;
  }
  std::vector<Piece> pieces;
  for (Piece& piece : partition.pieces) {
    const std::vector<int> chunks = ChunkNodes(piece, partition, wanted.offload_chunk_bytes);
    if (std::all_of(chunks.begin(), chunks.end(), [](int chunk) { return chunk == 0; })) {
      pieces.push_back(std::move(piece));
      continue;
    }
    MW_ASSIGN_OR_RETURN(std::vector<Piece> parts,
                        CutPiece(piece, PlaceNodes(*piece.graph, chunks), partition));
    for (Piece& part : parts) pieces.push_back(std::move(part));
  }
  partition.pieces = std::move(pieces);
  return OkStatus();
}

void AddTierCopies(int64_t room_bytes, ir::Program& program) {
  const auto on_host = [](const ir::Slot& slot) { return slot.space == Space::kHost; };
  if (std::none_of(program.slots.begin(), program.slots.end(), on_host)) return;
  CopyAdder(program).Run(room_bytes);
}

}  // namespace meshwright::planner
