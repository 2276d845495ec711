#include "planner/vocabulary_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "ir/averages.h"
#include "ir/builder.h"
#include "ir/schema.h"
#include "ir/stage_block.h"
#include "planner/renewals.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {
namespace {

using ir::Attrs;
using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;
using ir::StageBlock;

constexpr const char* kLogits = "bsd,vd->bsv";
constexpr const char* kInputGradient = "bsv,vd->bsd";

Status Refused(const std::string& why) {
  return Unimplemented(
      fmt::format("stages cannot share the vocabulary: {}; use schedule 1f1b or gpipe", why));
}

// What blocks go through with the same op: contractions, and what is done element by element.
bool WorksByBlocks(Op op) {
  switch (op) {
    case Op::kEinsum:
    case Op::kEmbedding:
    case Op::kEmbeddingGrad:
    case Op::kCrossEntropyGrad:
    case Op::kCast:
    case Op::kSum:
    case Op::kAdd:
    case Op::kScale:
    case Op::kSumSquares:
    case Op::kAdamW:
    case Op::kSgd:
      return true;
    default:
      return false;
  }
}

// The loss and what it is made of.
struct OutputLayer {
  std::optional<size_t> loss;
  ValueId logits;  // of the loss
  int64_t vocabulary = 0;
};

// A value of which each stage has a block, or a summand.
struct SplitValue {
  int dim = -1;  // in which blocks follow each other; -1: summands
  bool of_embedding = false;
  std::vector<ValueId> blocks;  // one per stage
};

class VocabularySplitter {
 public:
  // `known`: names of params that the main program has in blocks; of itself none are.
  VocabularySplitter(const Graph& graph, const Layout& layout, const VocabularyLayers& layers,
                     std::set<std::string> known)
      : graph_(graph),
        layers_(layers),
        tensor_(layout.tensor()),
        known_(std::move(known)),
        builder_(graph.name),
        map_(graph.values.size()),
        behind_output_(graph.values.size(), false) {}

  Result<Graph> Run() {
    if (known_.empty()) {
      MW_TRY(FindLoss());
    } else {
      FindKnown();
    }
    if (params_.empty()) return graph_;
    bounds_ = VocabularyBounds(layer_.vocabulary, layers_.stages, tensor_);
    FindParams();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) MW_TRY(Emit(i));
    for (const ir::NamedValue& output : graph_.outputs) MW_TRY(EmitOutput(output));
    return builder_.Finish();
  }

 private:
  // ---- what is split ----

  const Node& Producer(ValueId value) const { return graph_.producer(value); }

  // What a value is a cast of.
  ValueId Uncast(ValueId value) const {
    while (Producer(value).op == Op::kCast) value = Producer(value).inputs[0];
    return value;
  }

  Status FindLoss() {
    const std::vector<NodeId> losses = graph_.NodesOf(Op::kCrossEntropy);
    if (losses.size() != 1) {
      return Refused(fmt::format("the program has {} cross entropies, not one", losses.size()));
    }
    layer_.loss = losses[0].index();
    layer_.logits = graph_.node(losses[0]).inputs[0];
    layer_.vocabulary = graph_.type(layer_.logits).dims.back();
    const Node& product = Producer(Uncast(layer_.logits));
    const bool known = product.op == Op::kEinsum && product.attrs.Str("equation") == kLogits &&
                       Producer(Uncast(product.inputs[1])).op == Op::kParam;
    if (!known) {
      return Refused(fmt::format("logits are made by {}, not by the product of a weight [v, d]",
                                 ir::OpName(product.op)));
    }
    if (layer_.vocabulary < layers_.stages) {
      return Refused(
          fmt::format("it has {} rows for {} stages", layer_.vocabulary, layers_.stages));
    }
    params_.insert(Uncast(product.inputs[1]));
    return OkStatus();
  }

  // Of a program that runs forward.
  void FindKnown() {
    for (const NodeId id : graph_.NodesOf(Op::kParam)) {
      const Node& param = graph_.node(id);
      if (!known_.contains(param.attrs.Str("name"))) continue;
      params_.insert(param.outputs[0]);
      layer_.vocabulary = graph_.type(param.outputs[0]).dims[0];
    }
    for (const NodeId id : graph_.NodesOf(Op::kCrossEntropy)) {
      const ValueId logits = graph_.node(id).inputs[0];
      const Node& product = Producer(Uncast(logits));
      const bool of_blocks =
          product.op == Op::kEinsum && params_.contains(Uncast(product.inputs.back()));
      if (!of_blocks) continue;
      layer_.loss = id.index();
      layer_.logits = logits;
    }
  }

  // The output layer's weight, tables of embeddings with as many rows, and their optimizer state.
  void FindParams() {
    for (const NodeId id : graph_.NodesOf(Op::kEmbedding)) {
      const ValueId table = Uncast(graph_.node(id).inputs[0]);
      const bool of_words = graph_.type(table).dims[0] == layer_.vocabulary;
      if (!of_words || Producer(table).op != Op::kParam) continue;
      params_.insert(table);
      words_.insert(graph_.node(id).inputs[1]);
    }
    for (const Node& node : graph_.nodes) {
      if ((node.op != Op::kAdamW && node.op != Op::kSgd) || !params_.contains(node.inputs[0])) {
        continue;
      }
      for (const ValueId input : node.inputs) {
        if (Producer(input).op == Op::kParam) params_.insert(input);
      }
    }
    for (const Mean& mean : MeansOf(graph_)) {
      if (params_.contains(mean.of_value)) params_.insert(mean.value);
    }
  }

  int64_t First(int stage) const { return bounds_[static_cast<size_t>(stage)]; }
  int64_t Rows(int stage) const { return First(stage + 1) - First(stage); }
  StageBlock BlockAt(int dim, int stage) const { return {dim, First(stage), layer_.vocabulary}; }

  std::string BlockName(const std::string& name, int stage) const {
    return fmt::format("{}[{}:{}]", name, First(stage), First(stage + 1));
  }

  // ---- emitting ----

  Status Emit(size_t index) {
    const Node& node = graph_.nodes[index];
    builder_.SetLayer(node.layer);
    builder_.SetPhase(node.phase);
    const bool reads_blocks =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
          const auto it = splits_.find(input);
          return it != splits_.end() && it->second.dim >= 0;
        });
    if (node.op == Op::kParam && params_.contains(node.outputs[0])) {
      EmitParam(node);
    } else if (layer_.loss == index) {
      MW_TRY(EmitLoss(node));
    } else if (IsHiddenGradient(node)) {
      EmitHiddenGradient(node);
    } else if ((reads_blocks && !JoinsBlocks(node)) || IsTableGradient(node)) {
      MW_TRY(EmitBlocks(node));
    } else {
      MW_TRY(EmitWhole(node));
    }
    return builder_.status();
  }

  // Forward alone, what cannot work by blocks of logits has them whole.
  bool JoinsBlocks(const Node& node) const { return !known_.empty() && !WorksByBlocks(node.op); }

  // What follows from logits or loss is computed with the loss.
  void SetPlaceOfWhole(const Node& node) {
    const bool behind = node.phase != Phase::kUpdate &&
                        std::any_of(node.inputs.begin(), node.inputs.end(),
                                    [&](ValueId input) { return behind_output_[input]; });
    builder_.SetLayer(behind ? layers_.Loss() : node.layer);
    builder_.SetPhase(node.phase);
    if (!behind) return;
    for (const ValueId output : node.outputs) behind_output_[output] = true;
  }

  std::vector<ir::TensorType> TypesOf(const Node& node) const {
    std::vector<ir::TensorType> types;
    for (const ValueId output : node.outputs) types.push_back(graph_.type(output));
    return types;
  }

  Status EmitWhole(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      const auto it = splits_.find(input);
      if (it == splits_.end()) {
        inputs.push_back(map_[input]);
      } else if (it->second.dim >= 0) {
        MW_TRY(Join(input, node));
        inputs.push_back(map_[input]);
      } else if (node.op == Op::kSum) {
        inputs.insert(inputs.end(), it->second.blocks.begin(), it->second.blocks.end());
      } else {
        inputs.push_back(SumOf(input));
      }
    }
    SetPlaceOfWhole(node);
    const std::vector<ValueId> outputs =
        builder_.Add(node.op, std::move(inputs), node.attrs, TypesOf(node));
    for (size_t i = 0; i < outputs.size(); ++i) map_[node.outputs[i]] = outputs[i];
    return OkStatus();
  }

  // Puts blocks of logits together on the last stage.
  Status Join(ValueId value, const Node& reader) {
    if (map_[value].valid()) return OkStatus();
    const SplitValue& split = splits_.at(value);
    if (Producer(Uncast(value)).op == Op::kParam || split.of_embedding) return NotByBlocks(reader);
    builder_.SetLayer(layers_.Loss());
    builder_.SetPhase(Phase::kForward);
    for (int stage = 0; stage < layers_.stages; ++stage) {
      const ValueId block = builder_.AddOne(Op::kPad, {split.blocks[static_cast<size_t>(stage)]},
                                            {{"dim", int64_t{split.dim}},
                                             {"before", First(stage)},
                                             {"after", layer_.vocabulary - First(stage + 1)}});
      map_[value] = stage == 0 ? block : builder_.AddOne(Op::kAdd, {map_[value], block});
    }
    behind_output_[value] = true;
    return OkStatus();
  }

  // Of summands, where the value was made whole before.
  ValueId SumOf(ValueId value) {
    if (map_[value].valid()) return map_[value];
    const Node& node = Producer(value);
    builder_.SetLayer(node.layer);
    builder_.SetPhase(node.phase);
    map_[value] = builder_.AddOne(Op::kSum, splits_.at(value).blocks);
    return map_[value];
  }

  void EmitParam(const Node& node) {
    SplitValue split{0, false, {}};
    const std::string name = node.attrs.Str("name");
    for (int stage = 0; stage < layers_.stages; ++stage) {
      Attrs attrs = node.attrs;
      attrs.Set("name", BlockName(name, stage));
      attrs.Set("block_of", name);
      const std::string of = attrs.Str(ir::kAverageOfAttr);
      if (!of.empty()) attrs.Set(ir::kAverageOfAttr, BlockName(of, stage));
      BlockAt(0, stage).ToAttrs(attrs);
      ir::TensorType type = graph_.type(node.outputs[0]);
      type.dims[0] = Rows(stage);
      split.blocks.push_back(builder_.AddOne(Op::kParam, {}, std::move(attrs), {type}));
    }
    splits_[node.outputs[0]] = std::move(split);
  }

  Status EmitOutput(const ir::NamedValue& output) {
    const auto it = splits_.find(output.value);
    if (it == splits_.end()) {
      builder_.SetOutput(output.name, map_[output.value], output.reduction);
      return OkStatus();
    }
    if (it->second.dim < 0) {
      builder_.SetOutput(output.name, SumOf(output.value), output.reduction);
      return OkStatus();
    }
    if (!output.name.starts_with("grad/") && !output.name.starts_with("update/")) {
      return Refused(fmt::format("the output \"{}\" is the vocabulary", output.name));
    }
    for (int stage = 0; stage < layers_.stages; ++stage) {
      builder_.SetOutput(BlockName(output.name, stage),
                         it->second.blocks[static_cast<size_t>(stage)], output.reduction);
    }
    return OkStatus();
  }

  // ---- nodes that work by blocks ----

  // Its operands are whole, its result is rows of the table.
  bool IsTableGradient(const Node& node) const {
    return node.op == Op::kEmbeddingGrad && words_.contains(node.inputs[0]) &&
           node.attrs.Int("rows") == layer_.vocabulary;
  }

  // The factor that is the vocabulary. Errors: an operand has it whole, or is split elsewhere.
  Result<ir::FactorIndex> FactorOf(const Node& node, const ir::FactorRule& rule) const {
    if (IsTableGradient(node)) return rule.results[0][0][0];
    std::optional<ir::FactorIndex> factor;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto it = splits_.find(node.inputs[i]);
      if (it == splits_.end() || it->second.dim < 0) continue;
      const ir::DimFactors& dim = rule.operands[i][static_cast<size_t>(it->second.dim)];
      if (dim.size() != 1 || (factor && *factor != dim[0])) return Fail(NotByBlocks(node));
      factor = dim[0];
    }
    if (!factor) return Fail(NotByBlocks(node));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (splits_.contains(node.inputs[i])) continue;
      if (DimOf(rule.operands[i], *factor) >= 0) return Fail(NotByBlocks(node));
    }
    return *factor;
  }

  static int DimOf(const ir::TensorFactors& tensor, ir::FactorIndex factor) {
    for (size_t d = 0; d < tensor.size(); ++d) {
      if (std::find(tensor[d].begin(), tensor[d].end(), factor) != tensor[d].end()) {
        return static_cast<int>(d);
      }
    }
    return -1;
  }

  Status NotByBlocks(const Node& node) const {
    return Refused(
        fmt::format("{} of layer {} reads the vocabulary whole", ir::OpName(node.op), node.layer));
  }

  Status EmitBlocks(const Node& node) {
    if (!WorksByBlocks(node.op)) return NotByBlocks(node);
    MW_ASSIGN_OR_RETURN(const ir::FactorRule rule, ir::RuleOf(graph_, node));
    MW_ASSIGN_OR_RETURN(const ir::FactorIndex factor, FactorOf(node, rule));
    std::vector<SplitValue> results(node.outputs.size());
    for (size_t r = 0; r < results.size(); ++r) {
      results[r].dim = DimOf(rule.results[r], factor);
      results[r].of_embedding = IsOfEmbedding(node);
      const bool sums = rule.result_partial[r] == ir::PartialKind::kSum;
      if (results[r].dim < 0 && !sums) return NotByBlocks(node);
    }
    for (int stage = 0; stage < layers_.stages; ++stage) {
      SetPlace(node, results[0].of_embedding, stage);
      std::vector<ir::TensorType> types = TypesOf(node);
      for (size_t r = 0; r < types.size(); ++r) {
        if (results[r].dim >= 0) types[r].dims[static_cast<size_t>(results[r].dim)] = Rows(stage);
      }
      const std::vector<ValueId> outputs =
          builder_.Add(node.op, InputsAt(node, stage), AttrsAt(node, rule, factor, stage), types);
      MW_TRY(builder_.status());
      for (size_t r = 0; r < results.size(); ++r) results[r].blocks.push_back(outputs[r]);
    }
    for (size_t r = 0; r < results.size(); ++r) splits_[node.outputs[r]] = std::move(results[r]);
    return OkStatus();
  }

  bool IsOfEmbedding(const Node& node) const {
    if (node.op == Op::kEmbedding || node.op == Op::kEmbeddingGrad) return true;
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      const auto it = splits_.find(input);
      return it != splits_.end() && it->second.of_embedding;
    });
  }

  void SetPlace(const Node& node, bool of_embedding, int stage) {
    const int layer = of_embedding ? layers_.Embedding(stage) : layers_.Output(stage);
    builder_.SetLayer(node.phase == Phase::kUpdate ? node.layer : layer);
    builder_.SetPhase(node.phase);
  }

  std::vector<ValueId> InputsAt(const Node& node, int stage) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(At(input, stage));
    return inputs;
  }

  // The block of a stage, or the whole of what is not split.
  ValueId At(ValueId value, int stage) {
    const auto it = splits_.find(value);
    if (it == splits_.end()) return map_[value];
    if (it->second.dim >= 0) return it->second.blocks[static_cast<size_t>(stage)];
    const int layer = builder_.layer();
    const Phase phase = builder_.phase();
    const ValueId sum = SumOf(value);
    builder_.SetLayer(layer);
    builder_.SetPhase(phase);
    return sum;
  }

  Attrs AttrsAt(const Node& node, const ir::FactorRule& rule, ir::FactorIndex factor,
                int stage) const {
    Attrs attrs = node.attrs;
    if (const std::optional<ir::Positioned> placed = ir::PositionsOf(node)) {
      const auto& tensors = placed->is_result ? rule.results : rule.operands;
      const int dim = DimOf(tensors[placed->index], factor);
      if (dim >= 0) BlockAt(dim, stage).ToAttrs(attrs);
    }
    if (node.op == Op::kEmbeddingGrad) attrs.Set("rows", Rows(stage));
    return attrs;
  }

  // ---- the output layer ----

  Attrs Ignored() const {
    const Attrs& loss = graph_.nodes[*layer_.loss].attrs;
    Attrs attrs;
    attrs.Set("ignore_index", loss.Int("ignore_index", ir::kDefaultIgnoreIndex));
    return attrs;
  }

  Status EmitLoss(const Node& node) {
    const auto logits = splits_.find(node.inputs[0]);
    if (logits == splits_.end() || logits->second.dim < 0) return NotByBlocks(node);
    const ValueId labels = At(node.inputs[1], 0);
    const int dim = graph_.type(node.inputs[0]).rank() - 1;
    std::vector<ValueId> picked;
    for (int stage = 0; stage < layers_.stages; ++stage) {
      builder_.SetLayer(layers_.Output(stage));
      const ValueId block = logits->second.blocks[static_cast<size_t>(stage)];
      block_lse_.push_back(builder_.AddOne(Op::kLogSumExp, {block}));
      Attrs attrs = Ignored();
      BlockAt(dim, stage).ToAttrs(attrs);
      picked.push_back(builder_.AddOne(Op::kPick, {block, labels}, std::move(attrs)));
    }
    builder_.SetLayer(layers_.Loss());
    const ValueId lse = LogSumExpOf(block_lse_);
    const ValueId sum = builder_.AddOne(Op::kSum, picked);
    const std::vector<ValueId> nll = builder_.Add(Op::kNll, {lse, sum, labels}, Ignored());
    MW_TRY(builder_.status());
    MW_CHECK(nll.size() == 2) << "nll gives a sum and a count";
    map_[node.outputs[0]] = nll[0];
    map_[node.outputs[1]] = nll[1];
    map_[node.outputs[2]] = lse;
    for (const ValueId output : node.outputs) behind_output_[output] = true;
    return OkStatus();
  }

  ValueId LogSumExpOf(const std::vector<ValueId>& parts) {
    ValueId most = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      most = builder_.AddOne(Op::kMaximum, {most, parts[i]});
    }
    std::vector<ValueId> shares;
    for (const ValueId part : parts) {
      shares.push_back(builder_.AddOne(Op::kExp, {builder_.AddOne(Op::kSub, {part, most})}));
    }
    const ValueId total = builder_.AddOne(Op::kSum, shares);
    return builder_.AddOne(Op::kAdd, {most, builder_.AddOne(Op::kLog, {total})});
  }

  // dX = dZ W of the loss's logits.
  bool IsHiddenGradient(const Node& node) const {
    if (node.op != Op::kEinsum || node.phase != Phase::kBackward ||
        node.attrs.Str("equation") != kInputGradient || !splits_.contains(node.inputs[1])) {
      return false;
    }
    return IsLogitGradient(Producer(Uncast(node.inputs[0])));
  }

  bool IsLogitGradient(const Node& node) const {
    return layer_.loss && node.op == Op::kCrossEntropyGrad && node.inputs[0] == layer_.logits &&
           node.inputs[2] == graph_.nodes[*layer_.loss].outputs[2];
  }

  void EmitHiddenGradient(const Node& node) {
    const Node& gradient = Producer(Uncast(node.inputs[0]));
    const ir::TensorType& type = graph_.type(node.outputs[0]);
    const ir::DType wide = graph_.type(gradient.inputs[2]).dtype;
    const ir::TensorType rows{wide, type.dims};
    std::vector<ValueId> terms;
    std::vector<ValueId> label_rows;
    for (int stage = 0; stage < layers_.stages; ++stage) {
      builder_.SetLayer(layers_.Output(stage));
      builder_.SetPhase(Phase::kForward);
      const ValueId product = ProductOf(node, gradient, stage);
      Attrs attrs = Ignored();
      BlockAt(0, stage).ToAttrs(attrs);
      label_rows.push_back(builder_.AddOne(
          Op::kEmbedding, {At(node.inputs[1], stage), map_[gradient.inputs[1]]}, attrs));
      builder_.SetLayer(layers_.Loss());
      builder_.SetPhase(Phase::kBackward);
      terms.push_back(builder_.AddOne(
          Op::kMul, {InDType(product, wide), BroadcastLast(ShareOf(gradient, stage), rows)}));
    }
    const ValueId products = builder_.AddOne(Op::kSum, terms);
    const ValueId labels = builder_.AddOne(
        Op::kMulScalar,
        {InDType(builder_.AddOne(Op::kSum, label_rows), wide), map_[gradient.inputs[3]]});
    map_[node.outputs[0]] = InDType(builder_.AddOne(Op::kSub, {products, labels}), type.dtype);
  }

  // A_k = exp(Z_k - l_k) W_k.
  ValueId ProductOf(const Node& node, const Node& gradient, int stage) {
    const ValueId lse = block_lse_[static_cast<size_t>(stage)];
    const ValueId logits = InDType(At(gradient.inputs[0], stage), builder_.type(lse).dtype);
    if (!builder_.status().ok()) return {};
    const ir::TensorType type = builder_.type(logits);
    const ValueId shares =
        builder_.AddOne(Op::kExp, {builder_.AddOne(Op::kSub, {logits, BroadcastLast(lse, type)})});
    const ir::DType dtype = graph_.type(node.inputs[0]).dtype;
    return builder_.AddOne(Op::kEinsum, {InDType(shares, dtype), At(node.inputs[1], stage)},
                           node.attrs, TypesOf(node));
  }

  // exp(l_k - L) times the gradient of the loss, and 0 where the label is ignored: the gradient of
  // a cross entropy over a vocabulary of one, behind all labels.
  ValueId ShareOf(const Node& gradient, int stage) {
    const ValueId lse = block_lse_[static_cast<size_t>(stage)];
    if (!builder_.status().ok()) return {};
    const ir::TensorType rows = builder_.type(lse);
    ir::TensorType column = rows;
    column.dims.push_back(1);
    Attrs attrs = Ignored();
    StageBlock{rows.rank(), layer_.vocabulary, layer_.vocabulary + 1}.ToAttrs(attrs);
    const ValueId share = builder_.AddOne(
        Op::kCrossEntropyGrad,
        {builder_.AddOne(Op::kReshape, {lse}, {}, {column}), map_[gradient.inputs[1]],
         map_[gradient.inputs[2]], map_[gradient.inputs[3]]},
        attrs);
    return builder_.AddOne(Op::kReshape, {share}, {}, {rows});
  }

  ValueId BroadcastLast(ValueId value, ir::TensorType type) {
    const int64_t last = type.rank() - 1;
    return builder_.AddOne(Op::kBroadcast, {value}, {{"dims", std::vector<int64_t>{last}}},
                           {std::move(type)});
  }

  ValueId InDType(ValueId value, ir::DType dtype) {
    if (!builder_.status().ok() || builder_.type(value).dtype == dtype) return value;
    return builder_.AddOne(Op::kCast, {value}, {{"dtype", std::string(ir::DTypeName(dtype))}});
  }

  const Graph& graph_;
  const VocabularyLayers layers_;
  const int64_t tensor_;
  const std::set<std::string> known_;
  OutputLayer layer_;
  std::vector<int64_t> bounds_;
  std::set<ValueId> params_;
  std::set<ValueId> words_;  // ids that embeddings look up
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;         // of what is whole
  IdVector<ValueId, bool> behind_output_;  // follow from the logits
  std::map<ValueId, SplitValue> splits_;
  std::vector<ValueId> block_lse_;  // l_k
};

}  // namespace

Result<Graph> SplitVocabulary(Graph graph, const Layout& layout, int model_layers) {
  if (!SharesVocabulary(layout)) return graph;
  const VocabularyLayers layers{model_layers, static_cast<int>(layout.pipeline)};
  return VocabularySplitter(graph, layout, layers, {}).Run();
}

Result<Graph> SplitVocabularyLike(const Graph& main, Graph graph, const Layout& layout,
                                  int model_layers) {
  if (!SharesVocabulary(layout)) return graph;
  std::set<std::string> known;
  for (const NodeId id : main.NodesOf(Op::kParam)) {
    const Node& param = main.node(id);
    if (param.attrs.Has("block_of")) known.insert(param.attrs.Str("block_of"));
  }
  const VocabularyLayers layers{model_layers, static_cast<int>(layout.pipeline)};
  return VocabularySplitter(graph, layout, layers, std::move(known)).Run();
}

}  // namespace meshwright::planner
