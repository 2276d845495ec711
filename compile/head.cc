// The head and its loss as one node: logits exist for a block of tokens only.
//
//   logits = einsum(x, w); loss, count, lse = cross_entropy(logits, labels)
//   dlogits = cross_entropy_grad(logits, labels, lse, dloss)
//   dx = einsum(dlogits, w); dw = einsum(x, dlogits)
// (in mixed precision with a cast of dlogits) becomes head_loss_grad in the backward phase, and
// without its gradient (evaluation) head_loss. Computing the gradient with the loss needs one
// product less than computing the logits twice.
#include <algorithm>
#include <optional>
#include <string>

#include "compile/compile.h"
#include "ir/builder.h"
#include "ir/rewrite.h"

namespace meshwright::compile {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

// Every block reads the weight and adds to its gradient: with fewer tokens that costs more than
// memory does.
constexpr int64_t kBlockBytes = int64_t{56} << 20;
constexpr int64_t kMostBlockBytes = int64_t{1} << 30;
constexpr int64_t kBlockGrain = 16;

constexpr const char* kLogits = "bsd,vd->bsv";
constexpr const char* kInputGradient = "bsv,vd->bsd";
constexpr const char* kWeightGradient = "bsd,bsv->vd";

struct Head {
  size_t logits = 0, loss = 0;
  std::optional<size_t> dlogits, dx, dw;  // all or none
  std::optional<size_t> cast;             // of dlogits
};

class HeadFinder {
 public:
  explicit HeadFinder(const Graph& graph) : graph_(graph), users_(graph.Users()) {}

  // The head of the loss at node `loss`, when nothing else needs its parts.
  std::optional<Head> At(size_t loss) const {
    const Node& node = graph_.nodes[loss];
    Head head;
    head.loss = loss;
    head.logits = ProducerOf(node.inputs[0]);
    const Node& logits = graph_.nodes[head.logits];
    if (!IsProduct(logits, kLogits) || IsOutput(logits.outputs[0]) || IsOutput(node.outputs[2])) {
      return std::nullopt;
    }
    // As head_loss keeps them.
    if (graph_.type(logits.outputs[0]).dtype != graph_.type(node.outputs[0]).dtype) {
      return std::nullopt;
    }
    const std::vector<size_t> readers = Readers(logits.outputs[0]);
    if (readers.size() == 1) {
      return Readers(node.outputs[2]).empty() ? std::optional(head) : std::nullopt;
    }
    if (readers.size() != 2 || !FindGradient(head, readers[1])) return std::nullopt;
    return head;
  }

 private:
  size_t ProducerOf(ValueId id) const { return graph_.value(id).producer.index(); }

  bool IsProduct(const Node& node, const std::string& equation) const {
    return node.op == Op::kEinsum && node.attrs.Str("equation") == equation;
  }

  bool IsOutput(ValueId id) const {
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](const ir::NamedValue& output) { return output.value == id; });
  }

  std::vector<size_t> Readers(ValueId id) const {
    std::vector<size_t> readers;
    for (NodeId user : users_[id]) {
      readers.push_back(user.index());
    }
    return readers;
  }

  bool FindGradient(Head& head, size_t dlogits) const {
    const Node& loss = graph_.nodes[head.loss];
    const Node& grad = graph_.nodes[dlogits];
    const ValueId x = graph_.nodes[head.logits].inputs[0];
    const ValueId w = graph_.nodes[head.logits].inputs[1];
    if (grad.op != Op::kCrossEntropyGrad || IsOutput(grad.outputs[0])) return false;
    if (grad.attrs != loss.attrs) return false;
    if (grad.inputs[1] != loss.inputs[1] || grad.inputs[2] != loss.outputs[2]) return false;
    if (Readers(loss.outputs[2]) != std::vector<size_t>{dlogits}) return false;
    if (!OnlyUpdateReads(loss.outputs[0]) || !OnlyUpdateReads(loss.outputs[1])) return false;
    ValueId gradient = grad.outputs[0];
    if (const std::vector<size_t> readers = Readers(gradient);
        readers.size() == 1 && graph_.nodes[readers[0]].op == Op::kCast) {
      head.cast = readers[0];
      gradient = graph_.nodes[readers[0]].outputs[0];
      if (IsOutput(gradient)) return false;
    }
    for (const size_t reader : Readers(gradient)) {
      const Node& product = graph_.nodes[reader];
      if (IsProduct(product, kInputGradient) && product.inputs[1] == w) head.dx = reader;
      if (IsProduct(product, kWeightGradient) && product.inputs[0] == x) head.dw = reader;
    }
    head.dlogits = dlogits;
    return head.dx && head.dw && Readers(gradient).size() == 2;
  }

  // The loss is then computed in the backward phase.
  bool OnlyUpdateReads(ValueId id) const {
    const std::vector<size_t> readers = Readers(id);
    return std::all_of(readers.begin(), readers.end(), [&](size_t reader) {
      return graph_.nodes[reader].phase == ir::Phase::kUpdate;
    });
  }

  const Graph& graph_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
};

// At most half of the tokens, and of about kBlockBytes or the least that is asked for; blocks of
// about the same size.
int64_t BlockTokens(int64_t tokens, const ir::TensorType& logits, int64_t least) {
  const int64_t row_bytes = logits.dims.back() * ir::DTypeBytes(logits.dtype);
  const int64_t half = (tokens + 1) / 2;
  const int64_t wanted =
      std::max(kBlockBytes / row_bytes, std::min(least, kMostBlockBytes / row_bytes));
  const int64_t most = std::min(half, std::max<int64_t>(1, wanted));
  const int64_t blocks = (tokens + most - 1) / most;
  const int64_t block = (tokens + blocks - 1) / blocks;
  const int64_t even = (block + kBlockGrain - 1) / kBlockGrain * kBlockGrain;
  return even <= half ? even : half;
}

class HeadRewriter {
 public:
  HeadRewriter(const Graph& graph, int64_t splits, int64_t least_block_tokens)
      : graph_(graph),
        splits_(splits),
        least_block_tokens_(least_block_tokens),
        builder_(graph.name),
        map_(graph.values.size()) {}

  Result<Graph> Run() {
    const HeadFinder finder(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].op != Op::kCrossEntropy) continue;
      if (const auto head = finder.At(n)) heads_.push_back(*head);
    }
    if (heads_.empty()) return graph_;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      builder_.SetLayer(node.layer);
      builder_.SetPhase(node.phase);
      if (!EmitPart(n)) ir::CopyNode(builder_, graph_, node, map_);
    }
    for (const ir::NamedValue& output : graph_.outputs) {
      builder_.SetOutput(output.name, Mapped(output.value));
    }
    return builder_.Finish();
  }

 private:
  ValueId& Mapped(ValueId id) { return map_[id]; }

  // Whether node n is a part of a head: emitted by its last part, or nothing at all.
  bool EmitPart(size_t n) {
    for (const Head& head : heads_) {
      if (n == head.logits || head.dx == n || head.dw == n || head.cast == n) return true;
      if (n == head.loss) {
        if (!head.dlogits) EmitLoss(head);
        return true;
      }
      if (head.dlogits == n) {
        EmitGradient(head);
        return true;
      }
    }
    return false;
  }

  void EmitLoss(const Head& head) {
    const Node& loss = graph_.nodes[head.loss];
    const std::vector<ValueId> results = builder_.Add(Op::kHeadLoss, Operands(head), AttrsOf(head));
    for (size_t i = 0; i < 2; ++i) Mapped(loss.outputs[i]) = results[i];
  }

  void EmitGradient(const Head& head) {
    const Node& loss = graph_.nodes[head.loss];
    std::vector<ValueId> operands = Operands(head);
    operands.push_back(Mapped(graph_.nodes[*head.dlogits].inputs[3]));
    const std::vector<ValueId> results = builder_.Add(Op::kHeadLossGrad, operands, AttrsOf(head));
    for (size_t i = 0; i < 2; ++i) Mapped(loss.outputs[i]) = results[i];
    MapResult(graph_.nodes[*head.dx].outputs[0], results[2]);
    MapResult(graph_.nodes[*head.dw].outputs[0], results[3]);
  }

  // The value in the type that its readers expect.
  void MapResult(ValueId old, ValueId result) {
    const ir::DType dtype = graph_.type(old).dtype;
    Mapped(old) = result;
    if (!builder_.status().ok() || builder_.type(result).dtype == dtype) return;
    Mapped(old) =
        builder_.AddOne(Op::kCast, {result}, {{"dtype", std::string(ir::DTypeName(dtype))}});
  }

  // x, w, labels.
  std::vector<ValueId> Operands(const Head& head) {
    const Node& logits = graph_.nodes[head.logits];
    return {Mapped(logits.inputs[0]), Mapped(logits.inputs[1]),
            Mapped(graph_.nodes[head.loss].inputs[1])};
  }

  ir::Attrs AttrsOf(const Head& head) const {
    const Node& loss = graph_.nodes[head.loss];
    ir::Attrs attrs;
    if (loss.attrs.Has("ignore_index")) attrs.Set("ignore_index", loss.attrs.Int("ignore_index"));
    const int64_t tokens = graph_.type(loss.inputs[1]).elements() / splits_;
    const ir::TensorType& logits = graph_.type(graph_.nodes[head.logits].outputs[0]);
    attrs.Set("block_tokens",
              BlockTokens(std::max<int64_t>(1, tokens), logits, least_block_tokens_));
    return attrs;
  }

  const Graph& graph_;
  const int64_t splits_;
  const int64_t least_block_tokens_;
  std::vector<Head> heads_;
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;
};

}  // namespace

Result<Graph> FuseHead(const Graph& graph, int64_t splits, int64_t least_block_tokens) {
  return HeadRewriter(graph, splits, least_block_tokens).Run();
}

}  // namespace meshwright::compile
