#include "planner/streamed_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/fused.h"
#include "ir/rewrite.h"
#include "ir/schema.h"
#include "planner/lower.h"
#include "planner/overlap.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::TensorType;

constexpr std::array<int64_t, 3> kChunkDegrees = {2, 4, 8};

// How a value is cut: chunk i has of each of `parts` equal blocks of `dim` the i-th part.
struct Cut {
  size_t dim = 0;
  int64_t parts = 1;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// A value of the new graph: whole, in chunks, or both.
struct Streamed {
  ValueId whole;
  Cut cut;
  std::vector<ValueId> chunks;
  bool made_so = false;  // chunks are not cut of the whole
  bool in(const Cut& as) const { return !chunks.empty() && cut == as; }
};

// The values of the graph that is made, cut and put together as they are asked for.
class StreamedValues {
 public:
  StreamedValues(const Graph& graph, int64_t chunks, ir::Builder& builder)
      : graph_(graph), chunks_(chunks), builder_(builder), values_(graph.values.size()) {}

  const Streamed& operator[](ValueId value) const { return values_[value]; }

  bool Divides(ValueId value, const Cut& cut) const {
    return graph_.type(value).dims[cut.dim] % (cut.parts * chunks_) == 0;
  }

  // Put together once.
  ValueId Whole(ValueId value) {
    Streamed& made = values_[value];
    if (made.whole.valid()) return made.whole;
    const TensorType& type = graph_.type(value);
    std::vector<ValueId> chunks = made.chunks;
    const auto dim = static_cast<int64_t>(made.cut.dim);
    if (made.cut.parts == 1) {
      return made.whole = builder_.AddOne(Op::kConcat, chunks, {{"dim", dim}});
    }
    ir::Dims part = type.dims;
    part[made.cut.dim] /= chunks_;
    for (ValueId& chunk : chunks) chunk = Reshaped(chunk, type.dtype, Apart(part, made.cut));
    const ValueId apart = builder_.AddOne(Op::kConcat, chunks, {{"dim", dim + 1}});
    return made.whole = Reshaped(apart, type.dtype, type.dims);
  }

  std::vector<ValueId> ChunksOf(ValueId value, const Cut& cut) {
    Streamed& made = values_[value];
    if (made.in(cut)) return made.chunks;
    const ValueId whole = Whole(value);
    const TensorType& type = graph_.type(value);
    const bool apart = cut.parts > 1;
    const ValueId from = apart ? Reshaped(whole, type.dtype, Apart(type.dims, cut)) : whole;
    ir::Dims part = type.dims;
    part[cut.dim] /= chunks_;
    const int64_t size = type.dims[cut.dim] / cut.parts / chunks_;
    const auto dim = static_cast<int64_t>(cut.dim + (apart ? 1 : 0));
    std::vector<ValueId> chunks;
    for (int64_t i = 0; i < chunks_; ++i) {
      const ValueId slice =
          builder_.AddOne(Op::kSlice, {from}, {{"dim", dim}, {"start", i * size}, {"size", size}});
      chunks.push_back(apart ? Reshaped(slice, type.dtype, part) : slice);
    }
    if (made.chunks.empty()) {
      made.cut = cut;
      made.chunks = chunks;
    }
    return chunks;
  }

  void Set(ValueId value, const Cut& cut, std::vector<ValueId> chunks) {
    values_[value].cut = cut;
    values_[value].chunks = std::move(chunks);
    values_[value].made_so = true;
  }

  void SetWhole(ValueId value, ValueId whole) { values_[value].whole = whole; }

 private:
  // The dims of a value with those of the cut apart: [.., parts, the rest, ..].
  static ir::Dims Apart(ir::Dims dims, const Cut& cut) {
    const auto at = dims.begin() + static_cast<std::ptrdiff_t>(cut.dim);
    *at /= cut.parts;
    dims.insert(at, cut.parts);
    return dims;
  }

  ValueId Reshaped(ValueId value, ir::DType dtype, ir::Dims dims) {
    return builder_.AddOne(Op::kReshape, {value}, {}, {TensorType{dtype, std::move(dims)}});
  }

  const Graph& graph_;
  const int64_t chunks_;
  ir::Builder& builder_;
  IdVector<ValueId, Streamed> values_;
};

// A collective over axes of the tensor group alone, of one value.
bool IsOfGroup(const Node& node, const std::vector<ir::MeshAxis>& tensor) {
  const std::vector<std::string> axes = node.attrs.Strs("axes");
  const auto known = [&](const std::string& name) {
    return std::any_of(tensor.begin(), tensor.end(),
                       [&](const ir::MeshAxis& axis) { return axis.name == name; });
  };
  return node.inputs.size() == 1 && !axes.empty() && std::all_of(axes.begin(), axes.end(), known);
}

int64_t GroupSize(const Node& node, const std::vector<ir::MeshAxis>& tensor) {
  int64_t size = 1;
  const std::vector<std::string> axes = node.attrs.Strs("axes");
  for (const ir::MeshAxis& axis : tensor) {
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) size *= axis.size;
  }
  return size;
}

// The dim of the product's result that follows from this dim of an operand, if rows of it can be
// computed by themselves.
std::optional<size_t> RowsIn(const ir::FactorRule& rule, size_t operand, size_t dim) {
  const ir::DimFactors& factors = rule.operands[operand][dim];
  if (factors.size() != 1) return std::nullopt;
  if (rule.factors[static_cast<size_t>(factors[0])].kind != ir::FactorKind::kParallel) {
    return std::nullopt;
  }
  for (size_t d = 0; d < rule.results[0].size(); ++d) {
    if (rule.results[0][d] == factors) return d;
  }
  return std::nullopt;
}

class Streamer {
 public:
  Streamer(const Graph& graph, const std::vector<ir::MeshAxis>& tensor, int64_t chunks)
      : graph_(graph),
        tensor_(tensor),
        chunks_(chunks),
        users_(graph.Users()),
        builder_(graph.name),
        values_(graph, chunks, builder_) {
    for (const ir::NamedValue& output : graph.outputs) given_out_.push_back(output.value);
  }

  Result<Graph> Run() {
    for (const Node& node : graph_.nodes) {
      builder_.SetLayer(node.layer);
      builder_.SetPhase(node.phase);
      std::vector<ValueId> due = std::exchange(kept_, {});
      const bool streams = Stream(node);
      if (!streams) Copy(node);
      // Kernels of chunks, which may be fused, come before copies of them.
      const bool goes_on = node.op == Op::kInput || (streams && !IsCollective(node.op));
      if (goes_on) kept_.insert(kept_.begin(), due.begin(), due.end());
      for (const ValueId value : goes_on ? std::vector<ValueId>() : due) values_.Whole(value);
      MW_TRY(builder_.status());
    }
    for (const ir::NamedValue& output : graph_.outputs) {
      builder_.SetOutput(output.name, values_.Whole(output.value));
    }
    return builder_.Finish();
  }

  int64_t products() const { return products_; }

 private:
  const ir::Dims& DimsOf(ValueId value) const { return graph_.type(value).dims; }

  void Copy(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(values_.Whole(input));
    const std::vector<ValueId> outputs = ir::AddLike(builder_, graph_, node, std::move(inputs));
    for (size_t r = 0; r < outputs.size(); ++r) values_.SetWhole(node.outputs[r], outputs[r]);
  }

  // In chunks, if the node can be; else nothing is added.
  bool Stream(const Node& node) {
    switch (node.op) {
      case Op::kAllGather:
        return StreamGather(node);
      case Op::kEinsum:
        return StreamProduct(node);
      case Op::kAllReduce:
      case Op::kReduceScatter:
        return StreamSum(node);
      default:
        return ir::IsElementwise(node.op) && StreamElements(node);
    }
  }

  // The node once per chunk, with results cut like this. An operand that all chunks read is one
  // value.
  void AddChunks(const Node& node, const std::vector<std::vector<ValueId>>& operands,
                 const Cut& result) {
    TensorType type = graph_.type(node.outputs[0]);
    type.dims[result.dim] /= chunks_;
    std::vector<ValueId> chunks;
    for (int64_t i = 0; i < chunks_; ++i) {
      std::vector<ValueId> inputs;
      for (const std::vector<ValueId>& operand : operands) {
        inputs.push_back(operand[operand.size() == 1 ? 0 : static_cast<size_t>(i)]);
      }
      chunks.push_back(builder_.AddOne(node.op, std::move(inputs), node.attrs, {type}));
    }
    values_.Set(node.outputs[0], result, std::move(chunks));
    if (IsGivenOut(node.outputs[0])) kept_.push_back(node.outputs[0]);
  }

  bool StreamGather(const Node& node) {
    if (!IsOfGroup(node, tensor_)) return false;
    const auto dim = static_cast<size_t>(node.attrs.Int("dim"));
    const Cut before{dim, 1};
    if (!values_.Divides(node.inputs[0], before)) return false;
    const std::vector<NodeId>& users = users_[node.outputs[0]];
    const bool streams = std::any_of(users.begin(), users.end(), [&](NodeId user) {
      return IsProductOfRows(graph_.node(user), node.outputs[0], dim);
    });
    if (!streams) return false;
    AddChunks(node, {values_.ChunksOf(node.inputs[0], before)}, {dim, GroupSize(node, tensor_)});
    return true;
  }

  // Whether `user` is a product that can compute rows along this dim by themselves.
  bool IsProductOfRows(const Node& user, ValueId operand, size_t dim) const {
    if (user.op != Op::kEinsum) return false;
    const Result<ir::FactorRule> rule = ir::RuleOf(graph_, user);
    for (size_t i = 0; rule.has_value() && i < user.inputs.size(); ++i) {
      if (user.inputs[i] == operand && RowsIn(*rule, i, dim)) return true;
    }
    return false;
  }

  bool StreamProduct(const Node& node) {
    const Result<ir::FactorRule> rule = ir::RuleOf(graph_, node);
    if (!rule.has_value()) return false;
    const std::optional<Cut> result = CutOfProduct(node, *rule);
    if (!result) return false;
    std::vector<std::vector<ValueId>> operands;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      std::optional<Cut> own;
      for (size_t d = 0; d < rule->operands[i].size(); ++d) {
        if (RowsIn(*rule, i, d) == result->dim) own = Cut{d, result->parts};
      }
      operands.push_back(own ? values_.ChunksOf(node.inputs[i], *own)
                             : std::vector<ValueId>{values_.Whole(node.inputs[i])});
    }
    AddChunks(node, operands, *result);
    ++products_;
    return true;
  }

  // As its operand comes, or as what sums up its result takes it.
  std::optional<Cut> CutOfProduct(const Node& node, const ir::FactorRule& rule) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Streamed& operand = values_[node.inputs[i]];
      if (!operand.made_so) continue;
      if (const std::optional<size_t> dim = RowsIn(rule, i, operand.cut.dim)) {
        return Cut{*dim, operand.cut.parts};
      }
    }
    const std::vector<NodeId>& users = users_[node.outputs[0]];
    if (users.size() != 1 || IsGivenOut(node.outputs[0])) return std::nullopt;
    const Node& sum = graph_.node(users[0]);
    const bool scatters = sum.op == Op::kReduceScatter;
    if ((!scatters && sum.op != Op::kAllReduce) || !IsOfGroup(sum, tensor_)) return std::nullopt;
    // Rows of the first operand; the last dim of the result is the weight's.
    for (size_t d = 0; d + 1 < rule.operands[0].size(); ++d) {
      const std::optional<size_t> dim = RowsIn(rule, 0, d);
      if (!dim) continue;
      const Cut cut{*dim, scatters ? GroupSize(sum, tensor_) : 1};
      const bool here = !scatters || static_cast<size_t>(sum.attrs.Int("dim")) == *dim;
      if (here && values_.Divides(node.outputs[0], cut)) return cut;
    }
    return std::nullopt;
  }

  bool IsGivenOut(ValueId value) const {
    return std::find(given_out_.begin(), given_out_.end(), value) != given_out_.end();
  }

  bool StreamSum(const Node& node) {
    if (!IsOfGroup(node, tensor_)) return false;
    const Streamed& operand = values_[node.inputs[0]];
    if (!operand.made_so) return false;
    Cut result = operand.cut;
    if (node.op == Op::kReduceScatter &&
        static_cast<size_t>(node.attrs.Int("dim")) == operand.cut.dim) {
      if (operand.cut.parts != GroupSize(node, tensor_)) return false;
      result.parts = 1;
    }
    AddChunks(node, {operand.chunks}, result);
    return true;
  }

  // Where nothing is cut or put together for it: all operands along the rows come in chunks.
  bool StreamElements(const Node& node) {
    if (node.op == Op::kDropout || node.outputs.size() != 1) return false;
    const size_t rank = DimsOf(node.outputs[0]).size();
    const Streamed& first = values_[node.inputs[0]];
    if (!first.made_so) return false;
    const Cut cut = first.cut;
    std::vector<std::vector<ValueId>> operands;
    for (const ValueId input : node.inputs) {
      const Streamed& operand = values_[input];
      const bool same = DimsOf(input) == DimsOf(node.outputs[0]);
      if (same && !(operand.made_so && operand.in(cut))) return false;
      // A suffix of the shape.
      if (!same && DimsOf(input).size() + cut.dim >= rank) return false;
      if (!same && !operand.whole.valid()) return false;
      operands.push_back(same ? operand.chunks : std::vector<ValueId>{operand.whole});
    }
    AddChunks(node, operands, cut);
    return true;
  }

  const Graph& graph_;
  const std::vector<ir::MeshAxis>& tensor_;
  const int64_t chunks_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  ir::Builder builder_;
  StreamedValues values_;
  std::vector<ValueId> given_out_;
  // Of these, what is put together where the chunks end that are made of it.
  std::vector<ValueId> kept_;
  int64_t products_ = 0;
};

// With the sizes that they have in the stage, above 1.
std::vector<ir::MeshAxis> TensorAxesOf(const Layout& layout, int stage) {
  const mesh::Mesh mesh = StageMesh(layout, stage);
  std::vector<ir::MeshAxis> axes;
  for (const ir::MeshAxis& axis : TensorAxes(layout)) {
    if (mesh.AxisSize(axis.name) > 1) axes.push_back({axis.name, mesh.AxisSize(axis.name)});
  }
  return axes;
}

// The pieces of the step in so many chunks; those that are none of it, or have no such products,
// are left as they are.
struct StreamedPieces {
  std::vector<Graph> graphs;  // per piece; without nodes: as it is
  int64_t products = 0;
};

Result<StreamedPieces> CutPieces(const StreamCosts& costs, const Partition& partition,
                                 int64_t chunks) {
  StreamedPieces cut;
  for (const Piece& piece : partition.pieces) {
    cut.graphs.emplace_back();
    const PieceKey& key = piece.key;
    if (key.phase == ir::Phase::kUpdate || key.round == kOncePerStep) continue;
    const std::vector<ir::MeshAxis> tensor = TensorAxesOf(costs.layout, key.stage);
    if (tensor.empty()) continue;
    int64_t products = 0;
    MW_ASSIGN_OR_RETURN(Graph graph, WithStreamedProducts(*piece.graph, tensor, chunks, &products));
    if (products == 0) continue;
    cut.products += products;
    cut.graphs.back() = std::move(graph);
  }
  return cut;
}

// Of a microbatch, what differs between degrees.
double SecondsOf(const StreamCosts& costs, const Partition& partition, const StreamedPieces& cut) {
  double seconds = 0;
  for (size_t i = 0; i < cut.graphs.size(); ++i) {
    const Piece& piece = partition.pieces[i];
    if (piece.key.phase == ir::Phase::kUpdate) continue;
    const Graph& graph = cut.graphs[i].nodes.empty() ? *piece.graph : cut.graphs[i];
    const std::vector<double> node_s =
        costs.prices[static_cast<size_t>(piece.key.stage)].SecondsOfNodes(graph);
    const double in_turn_s = std::accumulate(node_s.begin(), node_s.end(), 0.0);
    seconds += in_turn_s - costs.beside * (in_turn_s - WalkLanes(graph, node_s).seconds);
  }
  return seconds;
}

}  // namespace

Result<Graph> WithStreamedProducts(const Graph& local, const std::vector<ir::MeshAxis>& tensor,
                                   int64_t chunks, int64_t* products) {
  MW_CHECK(chunks > 1) << chunks << " chunks";
  Streamer streamer(local, tensor, chunks);
  MW_ASSIGN_OR_RETURN(Graph graph, streamer.Run());
  if (products != nullptr) *products = streamer.products();
  return graph;
}

Result<StreamedProducts> StreamProducts(const StreamCosts& costs, Partition& partition) {
  StreamedProducts streamed;
  const bool by_cost = costs.chunks == 0;
  if (costs.chunks == 1 || (by_cost && costs.beside == 0)) return streamed;
  const int64_t asked[] = {costs.chunks};
  StreamedPieces best;
  best.graphs.resize(partition.pieces.size());
  double best_s = by_cost ? SecondsOf(costs, partition, best) : 0;
  for (const int64_t chunks : by_cost ? std::span<const int64_t>(kChunkDegrees) : asked) {
    MW_ASSIGN_OR_RETURN(StreamedPieces cut, CutPieces(costs, partition, chunks));
    if (cut.products == 0) continue;
    const double seconds = by_cost ? SecondsOf(costs, partition, cut) : -1;
    if (seconds >= best_s) continue;
    best_s = seconds;
    best = std::move(cut);
    streamed = {best.products, chunks, costs.beside > 0};
  }
  for (size_t i = 0; i < partition.pieces.size(); ++i) {
    if (best.graphs[i].nodes.empty()) continue;
    partition.pieces[i].graph = std::make_shared<const Graph>(std::move(best.graphs[i]));
  }
  return streamed;
}

std::string NoteOf(const StreamedProducts& streamed, int64_t asked) {
  if (streamed.products == 0) {
    return fmt::format(
        "tensor_parallel_chunks = {} cuts nothing: a tensor group gathers for no product, and sums "
        "up none, whose rows of the batch or tokens on a device it divides",
        asked);
  }
  return fmt::format("{} product{} of a microbatch go{} in {} chunks: {}", streamed.products,
                     streamed.products == 1 ? "" : "s", streamed.products == 1 ? "es" : "",
                     streamed.chunks,
                     streamed.beside ? "one is sent while another is computed"
                                     : "which only costs here, because collectives run in their "
                                       "turn (parallelism.overlap, and cores that they can have)");
}

}  // namespace meshwright::planner
