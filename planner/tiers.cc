#include "planner/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/cut_piece.h"

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

  void Run() {
    std::vector<Instruction> with_copies;
    size_t ahead = 0;  // where the copies of the next RUN go
    for (Instruction& instruction : program_.instructions) {
      if (instruction.op != Opcode::kRun) {
        with_copies.push_back(std::move(instruction));
        continue;
      }
      std::vector<Instruction> before;
      std::vector<Instruction> behind;
      UseCopies(instruction, before, behind);
      with_copies.insert(with_copies.begin() + static_cast<int64_t>(ahead), before.begin(),
                         before.end());
      ahead = with_copies.size();
      with_copies.push_back(std::move(instruction));
      with_copies.insert(with_copies.end(), behind.begin(), behind.end());
    }
    program_.instructions = std::move(with_copies);
  }

 private:
  void UseCopies(Instruction& run, std::vector<Instruction>& before,
                 std::vector<Instruction>& behind) {
    std::map<SlotId, SlotId> copies;
    const auto copy_of = [&](SlotId home) {
      const auto [at, fresh] = copies.try_emplace(home);
      if (fresh) at->second = AddCopy(home);
      return at->second;
    };
    for (SlotId& id : run.inputs) {
      if (program_.slot(id).space != Space::kHost) continue;
      const SlotId home = id;
      const bool known = copies.contains(home);
      id = copy_of(home);
      if (!known) before.push_back(CopyOf(Opcode::kPrefetch, home, id));
    }
    for (SlotId& id : run.outputs) {
      if (program_.slot(id).space != Space::kHost) continue;
      const SlotId home = id;
      id = copy_of(home);
      behind.push_back(CopyOf(Opcode::kOffload, id, home));
    }
  }

  static Instruction CopyOf(Opcode op, SlotId from, SlotId to) {
    Instruction copy;
    copy.op = op;
    copy.inputs = {from};
    copy.outputs = {to};
    return copy;
  }

  SlotId AddCopy(SlotId home) {
    const SlotId id(static_cast<int32_t>(program_.slots.size()));
    ir::Slot slot;
    slot.type = program_.slot(home).type;
    slot.kind = program_.slot(home).kind;
    slot.name = fmt::format("copy/{}", program_.slot(home).name);
    program_.slots.push_back(std::move(slot));
    return id;
  }

  ir::Program& program_;
};

}  // namespace

Status PlaceState(const ir::ParallelSpec& wanted, Partition& partition) {
  if (wanted.optimizer_memory != "host") return OkStatus();
  for (StageTensor& tensor : partition.tensors) {
    const bool state =
        tensor.role == TensorRole::kParam && tensor.kind == ir::MemoryKind::kOptimizer;
    if (state) tensor.space = Space::kHost;
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

void AddTierCopies(ir::Program& program) {
  const auto on_host = [](const ir::Slot& slot) { return slot.space == Space::kHost; };
  if (std::none_of(program.slots.begin(), program.slots.end(), on_host)) return;
  CopyAdder(program).Run();
}

}  // namespace meshwright::planner
