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

// Per node the far tensors that it reads, or makes.
std::vector<std::set<TensorIndex>> FarTensorsOf(const Piece& piece, const Partition& partition) {
  const ir::Graph& graph = *piece.graph;
  const auto is_far = [&](TensorIndex tensor) {
    return partition.tensors[tensor].space != Space::kDevice;
  };
  std::vector<std::set<TensorIndex>> touched(graph.nodes.size());
  const auto users = graph.Users();
  const std::vector<NodeId> inputs = graph.NodesOf(ir::Op::kInput);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_far(piece.inputs[i])) continue;
    for (const NodeId user : users[graph.node(inputs[i]).outputs[0]]) {
      touched[user.index()].insert(piece.inputs[i]);
    }
  }
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    if (!is_far(piece.outputs[o])) continue;
    touched[graph.value(graph.outputs[o].value).producer.index()].insert(piece.outputs[o]);
  }
  return touched;
}

// The chunk of each node that touches a far tensor, from 1; 0: it does not. A chunk is the host's
// or the device's.
std::vector<int> ChunkNodes(const Piece& piece, const Partition& partition, int64_t chunk_bytes,
                            const std::vector<bool>& on_host) {
  MW_CHECK(chunk_bytes > 0) << "chunks of " << chunk_bytes << " bytes";
  std::vector<int> chunks(piece.graph->nodes.size(), 0);
  const auto touched = FarTensorsOf(piece, partition);
  std::set<TensorIndex> held;  // by the chunk
  int chunk = 0;
  int64_t room = 0;
  bool of_host = false;
  for (size_t n = 0; n < touched.size(); ++n) {
    if (touched[n].empty()) continue;
    const auto bytes_of_new = [&] {
      int64_t bytes = 0;
      for (const TensorIndex tensor : touched[n]) {
        if (!held.contains(tensor)) bytes += partition.tensors[tensor].local_type.bytes();
      }
      return bytes;
    };
    int64_t bytes = bytes_of_new();
    const bool runs_on_host = !on_host.empty() && on_host[n];
    if (chunk == 0 || bytes > room || runs_on_host != of_host) {
      ++chunk;
      of_host = runs_on_host;
      room = chunk_bytes;
      held.clear();
      bytes = bytes_of_new();
    }
    held.insert(touched[n].begin(), touched[n].end());
    room -= bytes;
    chunks[n] = chunk;
  }
  return chunks;
}

struct DeviceCopy {
  SlotId slot;
  bool filled = false;
};
struct FarUse {
  size_t turn = 0;
  size_t comes = 0;  // with the items of this turn, where it is fetched
  bool fetched = false;
  bool reads = false;
  bool writes = false;
};
// A far slot. What is not persistent is made on the device, in the slot that the list names, and
// has a far one from the first time that it goes.
struct FarItem {
  SlotId named;
  SlotId home;
  bool persistent = true;
  bool made = false;        // the slot that is named has been used
  bool host_reads = false;  // when the last RUN of the device has written it
  std::vector<FarUse> uses;
  size_t next = 0;  // of these
  DeviceCopy copy;  // that is there
};

Instruction MakeTierCopy(Opcode op, SlotId from, SlotId to) {
  Instruction copy;
  copy.op = op;
  copy.inputs = {from};
  copy.outputs = {to};
  return copy;
}

// The copies of one program's RUNs.
class CopyAdder {
 public:
  CopyAdder(const std::vector<bool>& on_host, ir::Program& program)
      : on_host_(on_host), program_(program) {}

  void Run(int64_t room_bytes, bool early) {
    FindUses();
    TakeResidency(PlanResidency(uses_, bytes_, room_bytes), early ? room_bytes : 0);
    before_.resize(uses_.size() + 1);
    std::vector<Instruction> with_copies;
    std::vector<size_t> run_of_turn;  // its place there
    std::vector<Instruction> late;    // go behind the next RUN
    for (Instruction& instruction : program_.instructions) {
      if (instruction.op != Opcode::kRun) {
        with_copies.push_back(std::move(instruction));
        continue;
      }
      if (IsOnHost(instruction)) {
        for (Instruction& each : std::exchange(late, {})) with_copies.push_back(std::move(each));
        ReadOnHost(instruction);
        with_copies.push_back(std::move(instruction));
        continue;
      }
      std::vector<Instruction> behind = std::exchange(late, {});
      UseCopies(run_of_turn.size(), instruction, behind, late);
      run_of_turn.push_back(with_copies.size());
      with_copies.push_back(std::move(instruction));
      with_copies.insert(with_copies.end(), behind.begin(), behind.end());
    }
    MW_CHECK(late.empty()) << program_.name << " gives something to the host behind its last RUN";
    program_.instructions = std::exchange(before_[0], {});
    size_t turn = 0;
    for (size_t i = 0; i < with_copies.size(); ++i) {
      if (turn < run_of_turn.size() && i == run_of_turn[turn]) {
        for (Instruction& each : before_[++turn]) program_.instructions.push_back(std::move(each));
      }
      program_.instructions.push_back(std::move(with_copies[i]));
    }
  }

 private:
  bool IsOnHost(const Instruction& run) const {
    return !on_host_.empty() && on_host_[run.executable.index()];
  }

  // What the device has made for the host is in its memory; the rest lies there for good.
  void ReadOnHost(Instruction& run) const {
    for (SlotId& id : run.inputs) {
      const auto found = index_.find(id);
      if (found == index_.end() || items_[found->second].persistent) continue;
      MW_CHECK(items_[found->second].home.valid()) << "the host reads s" << id << " too early";
      id = items_[found->second].home;
    }
  }

  void FindUses() {
    std::set<SlotId> renewed;  // by the host
    for (const Instruction& run : program_.instructions) {
      if (run.op != Opcode::kRun) continue;
      if (IsOnHost(run)) {
        for (const SlotId id : run.inputs) {
          const auto found = index_.find(id);
          if (found != index_.end()) items_[found->second].host_reads = true;
        }
        renewed.insert(run.outputs.begin(), run.outputs.end());
        continue;
      }
      for (const SlotId id : run.inputs) {
        MW_CHECK(!renewed.contains(id) || program_.slot(id).space == Space::kDevice)
            << "a copy of s" << id << " is read behind the host's RUN";
      }
      const size_t turn = uses_.size();
      uses_.emplace_back();
      for (const SlotId id : run.inputs) FindUse(turn, id).reads = true;
      for (const SlotId id : run.outputs) FindUse(turn, id).writes = true;
    }
    for (FarItem& item : items_) {
      ir::Slot& slot = program_.slots[item.named.index()];
      item.persistent = slot.persistent;
      if (item.persistent) item.home = item.named;
      if (!item.persistent) slot.space = Space::kDevice;
    }
  }

  void TakeResidency(const Residency& residency, int64_t early_bytes) {
    std::vector<std::vector<FarUse*>> of_turn(uses_.size());
    std::vector<std::vector<bool>> copied(uses_.size());
    std::vector<size_t> next(items_.size(), 0);  // use of each
    for (size_t turn = 0; turn < uses_.size(); ++turn) {
      for (size_t i = 0; i < uses_[turn].size(); ++i) {
        FarUse& use = items_[uses_[turn][i]].uses[next[uses_[turn][i]]++];
        use.fetched = residency.fetched[turn][i];
        copied[turn].push_back(use.fetched && use.reads);
        of_turn[turn].push_back(&use);
      }
    }
    const auto comes = FetchEarly(uses_, bytes_, early_bytes, residency, copied);
    for (size_t turn = 0; turn < uses_.size(); ++turn) {
      for (size_t i = 0; i < uses_[turn].size(); ++i) of_turn[turn][i]->comes = comes[turn][i];
    }
  }

  // What is near is nothing to remember.
  FarUse& FindUse(size_t turn, SlotId id) {
    if (program_.slot(id).space == Space::kDevice) return near_;
    const auto [at, fresh] = index_.try_emplace(id, items_.size());
    if (fresh) {
      bytes_.push_back(program_.slot(id).type.bytes());
      items_.emplace_back().named = id;
    }
    std::vector<FarUse>& uses = items_[at->second].uses;
    if (uses.empty() || uses.back().turn != turn) {
      uses.push_back({turn});
      uses_[turn].push_back(at->second);
    }
    return uses.back();
  }

  void UseCopies(size_t turn, Instruction& run, std::vector<Instruction>& behind,
                 std::vector<Instruction>& late) {
    MW_CHECK(turn < uses_.size()) << program_.name << " runs more than was counted";
    for (const size_t item : uses_[turn]) BeginUse(item, turn);
    for (SlotId& id : run.inputs) {
      const auto found = index_.find(id);
      if (found != index_.end()) id = items_[found->second].copy.slot;
    }
    for (SlotId& id : run.outputs) {
      const auto found = index_.find(id);
      if (found == index_.end()) continue;
      FarItem& item = items_[found->second];
      id = item.copy.slot;
      GiveBack(item, behind, late);
    }
    for (const size_t item : uses_[turn]) ++items_[item].next;
  }

  void BeginUse(size_t index, size_t turn) {
    FarItem& item = items_[index];
    MW_CHECK(item.next < item.uses.size() && item.uses[item.next].turn == turn)
        << "item " << index << " is not used by RUN " << turn;
    const FarUse& use = item.uses[item.next];
    // What is written and not read has a new copy.
    if (use.fetched || !item.copy.slot.valid() || !use.reads) item.copy = NewCopy(item);
    if (use.reads && !item.copy.filled) {
      MW_CHECK(item.home.valid()) << "s" << item.named << " is read before it is made";
      before_[use.comes].push_back(MakeTierCopy(Opcode::kPrefetch, item.home, item.copy.slot));
    }
    item.copy.filled = true;
  }

  // Of an item that this turn writes.
  void GiveBack(FarItem& item, std::vector<Instruction>& behind, std::vector<Instruction>& late) {
    if (item.persistent) {
      behind.push_back(MakeTierCopy(Opcode::kOffload, item.copy.slot, item.home));
    } else if (ComesBack(item) || (item.host_reads && IsLastWrite(item))) {
      if (!item.home.valid()) item.home = AddSlot(item.named, Space::kHost);
      late.push_back(MakeTierCopy(Opcode::kOffload, item.copy.slot, item.home));
    }
  }

  // Whether what is there now is read again after it has left.
  static bool ComesBack(const FarItem& item) {
    for (size_t i = item.next + 1; i < item.uses.size(); ++i) {
      if (item.uses[i].fetched) return item.uses[i].reads;
      if (item.uses[i].writes) return false;
    }
    return false;
  }

  static bool IsLastWrite(const FarItem& item) {
    return std::none_of(item.uses.begin() + static_cast<int64_t>(item.next) + 1, item.uses.end(),
                        [](const FarUse& use) { return use.writes; });
  }

  DeviceCopy NewCopy(FarItem& item) {
    if (!item.persistent && !std::exchange(item.made, true)) return {item.named, false};
    return {AddSlot(item.named, Space::kDevice), false};
  }

  SlotId AddSlot(SlotId of, Space space) {
    const SlotId id(static_cast<int32_t>(program_.slots.size()));
    ir::Slot slot;
    slot.type = program_.slot(of).type;
    slot.kind = program_.slot(of).kind;
    slot.space = space;
    slot.name = fmt::format("{}/{}", space == Space::kDevice ? "copy" : SpaceName(space),
                            program_.slot(of).name);
    program_.slots.push_back(std::move(slot));
    return id;
  }

  const std::vector<bool>& on_host_;
  ir::Program& program_;
  std::map<SlotId, size_t> index_;  // of items, by the slot that the list names
  std::vector<FarItem> items_;
  std::vector<int64_t> bytes_;  // of them
  std::vector<std::vector<size_t>> uses_;
  std::vector<std::vector<Instruction>> before_;  // the list, then each turn's RUN
  FarUse near_;
};

// What a message or a report names, which no copy stands for.
std::set<TensorIndex> NamedElsewhere(const Partition& partition) {
  std::set<TensorIndex> named;
  for (const Import& import : partition.imports) {
    named.insert(import.source);
    named.insert(import.destination);
  }
  for (const Report& report : partition.reports) named.insert(report.tensor);
  for (const Report& output : partition.outputs) named.insert(output.tensor);
  return named;
}

// What an earlier piece leaves for a backward.
std::set<TensorIndex> KeptForBackward(const Partition& partition) {
  std::set<TensorIndex> kept;
  std::map<TensorIndex, const Piece*> maker;
  for (const Piece& piece : partition.pieces) {
    for (const TensorIndex tensor : piece.outputs) maker.emplace(tensor, &piece);
  }
  for (const Piece& piece : partition.pieces) {
    if (piece.key.phase != ir::Phase::kBackward) continue;
    for (const TensorIndex tensor : piece.inputs) {
      const auto made = maker.find(tensor);
      if (made != maker.end() && made->second != &piece) kept.insert(tensor);
    }
  }
  return kept;
}

void MarkParams(const ir::ParallelSpec& wanted, Partition& partition) {
  for (StageTensor& tensor : partition.tensors) {
    const bool state =
        tensor.kind == ir::MemoryKind::kOptimizer || tensor.kind == ir::MemoryKind::kWeights;
    if (tensor.role == TensorRole::kParam && state) tensor.space = SpaceOf(wanted, tensor.kind);
  }
}

// Scalars are not worth a copy.
bool IsTensor(const StageTensor& tensor) { return tensor.local_type.rank() > 0; }

void MarkActivations(const std::set<TensorIndex>& named, Partition& partition) {
  for (const TensorIndex index : KeptForBackward(partition)) {
    StageTensor& tensor = partition.tensors[index];
    const bool kept = tensor.role == TensorRole::kMicrobatch &&
                      tensor.kind == ir::MemoryKind::kActivations && IsTensor(tensor);
    if (kept && !named.contains(index)) tensor.space = Space::kHost;
  }
}

// `first`: those before it are as they should be.
void MarkGradients(TensorIndex first, std::set<TensorIndex> named, Partition& partition) {
  for (const Piece& piece : partition.pieces) {  // has its own way back
    if (piece.on_host) named.insert(piece.outputs.begin(), piece.outputs.end());
  }

  for (auto i = first; i.index() < partition.tensors.size(); i = TensorIndex(i.value() + 1)) {
    StageTensor& tensor = partition.tensors[i];
    if (tensor.role == TensorRole::kParam || tensor.kind != ir::MemoryKind::kGradients) continue;
    if (IsTensor(tensor) && !named.contains(i)) tensor.space = Space::kHost;
  }
}

Status CutIntoChunks(int64_t chunk_bytes, const HostNodes& host_nodes, Partition& partition) {
  std::vector<Piece> pieces;
  for (size_t p = 0; p < partition.pieces.size(); ++p) {
    Piece& piece = partition.pieces[p];
    const bool split =
        !host_nodes.empty() && std::any_of(host_nodes[p].begin(), host_nodes[p].end(),
                                           [](bool on_host) { return on_host; });
    const std::vector<bool> on_host = split ? host_nodes[p] : std::vector<bool>();
    std::vector<int> chunks = ChunkNodes(piece, partition, chunk_bytes, on_host);
    // Between chunks there is room for what the host's nodes read and what reads theirs.
    if (split)
      std::transform(chunks.begin(), chunks.end(), chunks.begin(), [](int c) { return 3 * c; });
    if (std::all_of(chunks.begin(), chunks.end(), [](int chunk) { return chunk == 0; })) {
      pieces.push_back(std::move(piece));
      continue;
    }
    MW_ASSIGN_OR_RETURN(std::vector<Piece> parts,
                        CutPiece(piece, PlaceNodes(*piece.graph, chunks), partition, on_host));
    for (Piece& part : parts) pieces.push_back(std::move(part));
  }
  partition.pieces = std::move(pieces);
  return OkStatus();
}

Space ParseSpace(const std::string& memory) {
  for (const Space space : {Space::kHost, Space::kDisk}) {
    if (memory == ir::SpaceName(space)) return space;
  }
  return Space::kDevice;
}

}  // namespace

Space SpaceOf(const ir::ParallelSpec& wanted, ir::MemoryKind kind) {
  switch (kind) {
    case ir::MemoryKind::kOptimizer:
      return ParseSpace(wanted.optimizer_memory);
    case ir::MemoryKind::kWeights:
      return ParseSpace(wanted.weights_memory);
    case ir::MemoryKind::kGradients:
      return ParseSpace(wanted.gradients_memory);
    case ir::MemoryKind::kActivations:
      return ParseSpace(wanted.activations_memory);
    case ir::MemoryKind::kWorkspace:
    case ir::MemoryKind::kOther:
      return Space::kDevice;
  }
  return Space::kDevice;
}

Status PlaceState(const ir::ParallelSpec& wanted, Partition& partition, const HostWeights& known) {
  MarkParams(wanted, partition);
  MarkHostWeights(known, partition);
  const HostNodes host_nodes = ChooseHostNodes(wanted, partition);
  const std::set<TensorIndex> named = NamedElsewhere(partition);
  if (SpaceOf(wanted, ir::MemoryKind::kActivations) == Space::kHost) {
    MarkActivations(named, partition);
  }
  const bool gradients = SpaceOf(wanted, ir::MemoryKind::kGradients) == Space::kHost;
  if (gradients) MarkGradients(TensorIndex(0), named, partition);
  const auto is_far = [](const StageTensor& tensor) { return tensor.space != Space::kDevice; };
  if (std::none_of(partition.tensors.begin(), partition.tensors.end(), is_far)) return OkStatus();
  const TensorIndex cut(static_cast<int32_t>(partition.tensors.size()));
  MW_TRY(CutIntoChunks(wanted.offload_chunk_bytes, host_nodes, partition));
  // Gradients that an update hands on from chunk to chunk.
  if (gradients) MarkGradients(cut, named, partition);
  return OkStatus();
}

void AddTierCopies(int64_t room_bytes, int64_t ahead_bytes, const std::vector<bool>& on_host,
                   ir::Program& program) {
  const auto is_far = [](const ir::Slot& slot) { return slot.space != Space::kDevice; };
  if (std::none_of(program.slots.begin(), program.slots.end(), is_far)) return;
  AddHostCopies(on_host, program);
  CopyAdder(on_host, program).Run(room_bytes + ahead_bytes, ahead_bytes > 0);
}

}  // namespace meshwright::planner
