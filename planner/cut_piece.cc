#include "planner/cut_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Op;

class PieceCutter {
 public:
  // of_host: parts that the host runs.
  PieceCutter(const Piece& piece, const PartOfNode& parts, Partition& partition,
              std::set<int> of_host)
      : piece_(piece),
        graph_(*piece.graph),
        parts_(parts),
        partition_(partition),
        of_host_(std::move(of_host)) {
    const std::vector<NodeId> inputs = graph_.NodesOf(Op::kInput);
    MW_CHECK(inputs.size() == piece.inputs.size() && parts.size() == graph_.nodes.size())
        << graph_.name << " binds other inputs or parts than it has";
    for (size_t i = 0; i < inputs.size(); ++i) {
      tensor_of_[graph_.node(inputs[i]).outputs[0]] = piece.inputs[i];
    }
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      outputs_of_[graph_.outputs[o].value].push_back(o);
    }
  }

  Result<std::vector<Piece>> Run() {
    MW_TRY(CheckUpdates());
    const int count = *std::max_element(parts_.begin(), parts_.end()) + 1;
    FindCrossings();
    std::vector<Piece> pieces;
    for (int part = 0; part < count; ++part) {
      MW_ASSIGN_OR_RETURN(Piece made, MakePart(part, pieces.empty()));
      if (!made.outputs.empty()) pieces.push_back(std::move(made));
    }
    return pieces;
  }

 private:
  bool IsInput(ValueId value) const { return graph_.producer(value).op == Op::kInput; }
  int PartOf(ValueId value) const {
    return IsInput(value) ? 0 : parts_[graph_.value(value).producer.index()];
  }

  // A tensor that is read and written is read no later than it is written.
  Status CheckUpdates() const {
    std::map<TensorIndex, int> written;
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      written[piece_.outputs[o]] = PartOf(graph_.outputs[o].value);
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId value : graph_.nodes[n].inputs) {
        if (!IsInput(value)) continue;
        const auto update = written.find(tensor_of_.at(value));
        if (update == written.end() || parts_[n] <= update->second) continue;
        return Internal(fmt::format("{}: part {} reads \"{}\", which part {} updates", graph_.name,
                                    parts_[n], partition_.tensors[update->first].name,
                                    update->second));
      }
    }
    return OkStatus();
  }

  // A value that a later part reads has a tensor: its own where it is an output, else a new one.
  void FindCrossings() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId value : graph_.nodes[n].inputs) {
        if (IsInput(value) || parts_[n] == PartOf(value) || tensor_of_.contains(value)) continue;
        const auto output = outputs_of_.find(value);
        tensor_of_[value] =
            output != outputs_of_.end() ? piece_.outputs[output->second.front()] : AddTensor(value);
      }
    }
  }

  TensorIndex AddTensor(ValueId value) {
    const ir::TensorType& type = graph_.type(value);
    StageTensor tensor;
    tensor.stage = piece_.key.stage;
    tensor.role =
        piece_.key.phase == ir::Phase::kUpdate ? TensorRole::kStep : TensorRole::kMicrobatch;
    tensor.kind = tensor.role == TensorRole::kMicrobatch ? ir::MemoryKind::kActivations
                  : type.rank() == 0                     ? ir::MemoryKind::kOther
                                                         : ir::MemoryKind::kGradients;
    tensor.name = fmt::format("{}.%{}", graph_.name, value.value());
    tensor.global_type = type;
    tensor.sharding.dims.resize(type.dims.size());
    tensor.local_type = type;
    crossing_.push_back(value);
    return partition_.tensors.Add(std::move(tensor));
  }

  Result<Piece> MakePart(int part, bool first) {
    Piece made;
    made.key = piece_.key;
    made.on_host = of_host_.contains(part);
    ir::Builder builder(first ? graph_.name : fmt::format("{}+{}", graph_.name, part));
    IdVector<ValueId, ValueId> map(graph_.values.size());
    AddInputs(part, builder, made, map);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const ir::Node& node = graph_.nodes[n];
      if (node.op == Op::kInput || parts_[n] != part) continue;
      ir::CopyNode(builder, graph_, node, map);
    }
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      const ir::NamedValue& output = graph_.outputs[o];
      if (PartOf(output.value) != part) continue;
      builder.SetOutput(output.name, map[output.value], output.reduction);
      made.outputs.push_back(piece_.outputs[o]);
    }
    for (const ValueId value : crossing_) {
      if (PartOf(value) != part) continue;
      const TensorIndex tensor = tensor_of_.at(value);
      builder.SetOutput(partition_.tensors[tensor].name, map[value]);
      made.outputs.push_back(tensor);
    }
    MW_ASSIGN_OR_RETURN(Graph graph, builder.Finish());
    made.graph = std::make_shared<const Graph>(std::move(graph));
    return made;
  }

  // What the part reads of the piece's inputs and of earlier parts, and inputs that it gives out.
  void AddInputs(int part, ir::Builder& builder, Piece& made, IdVector<ValueId, ValueId>& map) {
    const auto add = [&](ValueId value, const ir::Node& reader) {
      if ((!IsInput(value) && PartOf(value) == part) || map[value].valid()) return;
      const TensorIndex tensor = tensor_of_.at(value);
      builder.SetLayer(reader.layer);
      builder.SetPhase(reader.phase);
      map[value] = builder.AddOne(Op::kInput, {}, {{"name", partition_.tensors[tensor].name}},
                                  {graph_.type(value)});
      made.inputs.push_back(tensor);
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].op == Op::kInput || parts_[n] != part) continue;
      for (const ValueId value : graph_.nodes[n].inputs) add(value, graph_.nodes[n]);
    }
    for (const ir::NamedValue& output : graph_.outputs) {
      if (IsInput(output.value) && part == 0) add(output.value, graph_.producer(output.value));
    }
  }

  const Piece& piece_;
  const Graph& graph_;
  const PartOfNode& parts_;
  Partition& partition_;
  const std::set<int> of_host_;
  std::map<ValueId, TensorIndex> tensor_of_;  // of inputs, and of what crosses a cut
  std::map<ValueId, std::vector<size_t>> outputs_of_;
  std::vector<ValueId> crossing_;  // that are no outputs
};

// What is made of nothing goes to the first part that reads it: a part of constants alone would be
// the same for all microbatches.
PartOfNode WithConstantsWhereRead(const Graph& graph, PartOfNode parts) {
  std::vector<bool> varies(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    varies[n] = graph.nodes[n].op == Op::kInput;
    for (const ValueId value : graph.nodes[n].inputs) {
      if (varies[graph.value(value).producer.index()]) varies[n] = true;
    }
  }
  const auto users = graph.Users();
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (varies[n]) continue;
    std::vector<int> readers;
    for (const ValueId value : graph.nodes[n].outputs) {
      for (const NodeId user : users[value]) readers.push_back(parts[user.index()]);
    }
    if (readers.empty()) continue;
    parts[n] = std::max(parts[n], *std::min_element(readers.begin(), readers.end()));
  }
  return parts;
}

// What reads the old content of a gradient that the piece adds to goes where the new one is made,
// with all that follows from it: a RUN writes in place only what it reads itself. Of an embedding
// that is the head's weight, too, several parts make a share.
PartOfNode ReadWhereUpdated(const Piece& piece, const Partition& partition, PartOfNode parts) {
  const Graph& graph = *piece.graph;
  std::map<TensorIndex, int> updated;  // by tensor, the part that makes the new content
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    const auto producer = graph.value(graph.outputs[o].value).producer.index();
    const bool passes = partition.tensors[piece.outputs[o]].role == TensorRole::kAccumulator;
    if (passes && graph.nodes[producer].op != Op::kInput) {
      updated[piece.outputs[o]] = parts[producer];
    }
  }
  const std::vector<NodeId> inputs = graph.NodesOf(Op::kInput);
  std::map<ValueId, int> at_least;  // of those who read an input
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto update = updated.find(piece.inputs[i]);
    if (update != updated.end()) at_least[graph.node(inputs[i]).outputs[0]] = update->second;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId value : graph.nodes[n].inputs) {
      const auto producer = graph.value(value).producer.index();
      const auto wanted = at_least.find(value);
      if (wanted != at_least.end()) parts[n] = std::max(parts[n], wanted->second);
      if (graph.nodes[producer].op != Op::kInput) parts[n] = std::max(parts[n], parts[producer]);
    }
  }
  return WithConstantsWhereRead(graph, std::move(parts));
}

// Other nodes leave the host's parts: what reads what the host makes goes to the part behind, all
// else to the one before.
Result<PartOfNode> WithHostAlone(const Graph& graph, const std::vector<bool>& on_host,
                                 const std::set<int>& of_host, PartOfNode parts) {
  MW_CHECK(on_host.size() == graph.nodes.size() && parts.size() == graph.nodes.size())
      << on_host.size() << " of " << graph.nodes.size() << " nodes of " << graph.name
      << " have a place";
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op == Op::kInput) continue;
    int latest = 0;  // part of what it reads
    for (const ValueId value : graph.nodes[n].inputs) {
      const auto producer = graph.value(value).producer.index();
      if (graph.nodes[producer].op != Op::kInput) latest = std::max(latest, parts[producer]);
    }
    if (!on_host[n] && of_host.contains(parts[n])) {
      parts[n] = latest < parts[n] ? parts[n] - 1 : parts[n] + 1;
    }
    if (latest <= parts[n]) continue;
    return Fail(Internal(fmt::format("{}: node {} is in part {} and reads what part {} makes",
                                     graph.name, n, parts[n], latest)));
  }
  return parts;
}

}  // namespace

PartOfNode PlaceNodes(const ir::Graph& graph, const std::vector<int>& wanted) {
  MW_CHECK(wanted.size() == graph.nodes.size())
      << wanted.size() << " wishes for " << graph.nodes.size() << " nodes of " << graph.name;
  PartOfNode parts = wanted;
  std::vector<bool> given(graph.nodes.size(), false);
  for (const ir::NamedValue& output : graph.outputs) {
    given[graph.value(output.value).producer.index()] = true;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId value : graph.nodes[n].inputs) {
      const auto producer = graph.value(value).producer.index();
      if (graph.nodes[producer].op == Op::kInput) continue;
      parts[n] = std::max(parts[n], parts[producer]);
    }
  }
  const auto users = graph.Users();
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (wanted[n] > 0 || given[n]) continue;
    int first = 0;
    for (const ValueId value : graph.nodes[n].outputs) {
      for (const NodeId user : users[value]) {
        const int part = parts[user.index()];
        first = first == 0 ? part + 1 : std::min(first, part + 1);
      }
    }
    parts[n] = std::max(parts[n], first - 1);
  }
  return parts;
}

Result<std::vector<Piece>> CutPiece(const Piece& piece, const PartOfNode& parts,
                                    Partition& partition, const std::vector<bool>& on_host) {
  PartOfNode placed = ReadWhereUpdated(piece, partition, parts);
  if (on_host.empty()) return PieceCutter(piece, placed, partition, {}).Run();
  std::set<int> of_host;
  for (size_t n = 0; n < on_host.size(); ++n) {
    if (on_host[n]) of_host.insert(placed[n]);
  }
  MW_ASSIGN_OR_RETURN(placed, WithHostAlone(*piece.graph, on_host, of_host, std::move(placed)));
  return PieceCutter(piece, placed, partition, of_host).Run();
}

}  // namespace meshwright::planner
