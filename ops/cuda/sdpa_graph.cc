#include "ops/cuda/sdpa_graph.h"

#include <cmath>
#include <limits>
#include <utility>

namespace meshwright::ops::cuda {
namespace {

class GraphBuilder {
 public:
  explicit GraphBuilder(const SdpaShape& shape)
      : shape_(shape), scale_(Add({.name = SdpaName::kScale})) {}

  void AddForward() {
    const int q = Tokens(SdpaName::kQ, shape_.heads, shape_.q);
    const int v = Tokens(SdpaName::kV, shape_.kv_heads, shape_.kv);
    const int s = MaskedScores(q, Columns(SdpaName::kK));
    const int largest = Apply(GraphOp::kMax, {s}, Row());
    const int exponentials =
        Apply(GraphOp::kExp, {Apply(GraphOp::kSubtract, {s, largest}, Scores())}, Scores());
    const int sum = Apply(GraphOp::kSum, {exponentials}, Row());
    Apply(GraphOp::kAdd, {largest, Apply(GraphOp::kLog, {sum}, Row())}, Lse());
    const int p = Apply(GraphOp::kDivide, {exponentials, sum}, Scores(shape_.dtype));
    Apply(GraphOp::kMatmul, {p, v}, Tokens(SdpaName::kO, shape_.heads, shape_.o));
  }

  // A graph without memory for sums of dq makes cuDNN keep ds in its workspace and compute dq in a
  // product of its own: in a fixed order, where its other way adds with atomics.
  void AddGradient() {
    const int q = Tokens(SdpaName::kQ, shape_.heads, shape_.q);
    const int k = Columns(SdpaName::kK);
    const int d_o = Tokens(SdpaName::kOGrad, shape_.heads, shape_.o);
    const int one = Add({.name = SdpaName::kOne});
    const int products =
        Apply(GraphOp::kMultiply, {d_o, Tokens(SdpaName::kO, shape_.heads, shape_.o)}, Elements());
    // cuDNN expects factors of dropout here, too.
    const int product =
        Apply(GraphOp::kMultiply, {Apply(GraphOp::kSum, {products}, Row()), one}, Row());
    const int s = Apply(GraphOp::kSubtract, {MaskedScores(q, k), Lse()}, Scores());
    const int p = Apply(GraphOp::kExp, {s}, Scores());
    AddOverQueries(p, d_o, SdpaName::kVGrad);
    int ds = Apply(GraphOp::kMatmul, {d_o, Columns(SdpaName::kV)}, Scores());
    ds = Apply(GraphOp::kMultiply, {ds, one}, Scores());
    ds = Apply(GraphOp::kSubtract, {ds, product}, Scores());
    ds = Apply(GraphOp::kMultiply, {ds, p}, Scores());
    ds = Apply(GraphOp::kMultiply, {ds, scale_}, Scores());
    AddOverQueries(ds, q, SdpaName::kKGrad);
    const int k_rows =
        Apply(GraphOp::kReshape, {k}, Tokens(SdpaName::kInner, shape_.kv_heads, shape_.kv));
    Apply(GraphOp::kMatmul, {ds, k_rows}, Tokens(SdpaName::kQGrad, shape_.heads, shape_.q));
  }

  SdpaGraph Take() && { return std::move(graph_); }

 private:
  int Add(const GraphTensor& tensor) {
    graph_.tensors.push_back(tensor);
    return static_cast<int>(graph_.tensors.size()) - 1;
  }
  int Apply(GraphOp op, std::vector<int> operands, int result) {
    graph_.nodes.push_back({op, std::move(operands), result});
    return result;
  }

  // [batch, heads, sequence, head size]
  int Tokens(SdpaName name, int64_t heads, const SdpaStrides& of) {
    return Add({{shape_.batch, heads, shape_.sequence, shape_.head_size},
                {of.batch, of.head, of.position, 1},
                shape_.dtype,
                name});
  }
  // [batch, kv heads, head size, sequence]
  int Columns(SdpaName name) {
    const SdpaStrides& of = shape_.kv;
    return Add({{shape_.batch, shape_.kv_heads, shape_.head_size, shape_.sequence},
                {of.batch, of.head, 1, of.position},
                shape_.dtype,
                name});
  }
  // [batch, heads, sequence, sequence]
  int Scores(ir::DType type = ir::DType::kF32) {
    const int64_t s = shape_.sequence;
    return Add({{shape_.batch, shape_.heads, s, s}, {shape_.heads * s * s, s * s, s, 1}, type});
  }
  int SwappedScores() {
    const int64_t s = shape_.sequence;
    return Add(
        {{shape_.batch, shape_.heads, s, s}, {shape_.heads * s * s, s * s, 1, s}, shape_.dtype});
  }
  // [batch, heads, sequence, head size], f32.
  int Elements() {
    const int64_t s = shape_.sequence, e = shape_.head_size, h = shape_.heads;
    return Add({{shape_.batch, h, s, e}, {h * s * e, s * e, h * e, 1}});
  }
  // [batch, heads, sequence, 1]
  int Row() {
    const int64_t s = shape_.sequence;
    return Add({{shape_.batch, shape_.heads, s, 1}, {shape_.heads * s, s, 1, 1}});
  }
  int Lse() {
    return Add({{shape_.batch, shape_.heads, shape_.sequence, 1},
                {shape_.lse_batch, shape_.sequence, 1, 1},
                ir::DType::kF32,
                SdpaName::kLse});
  }

  int MaskedScores(int q, int k) {
    int s = Apply(GraphOp::kMatmul, {q, k}, Scores());
    s = Apply(GraphOp::kMultiply, {s, scale_}, Scores());
    if (!shape_.causal) return s;
    const int row = Apply(GraphOp::kRowIndex, {s}, Scores(ir::DType::kI32));
    const int column = Apply(GraphOp::kColumnIndex, {s}, Scores(ir::DType::kI32));
    const int seen = Apply(GraphOp::kNotLess, {row, column}, Scores(ir::DType::kBool));
    return Apply(GraphOp::kSelect, {s, Add({.name = SdpaName::kHidden}), seen}, Scores());
  }

  // result = weights^T x, summed up over the query heads of each kv head.
  void AddOverQueries(int weights, int x, SdpaName name) {
    const int swapped = Apply(GraphOp::kReshape, {weights}, SwappedScores());
    const int result = Tokens(name, shape_.kv_heads, shape_.kv);
    if (shape_.heads == shape_.kv_heads) {
      Apply(GraphOp::kMatmul, {swapped, x}, result);
      return;
    }
    const int64_t s = shape_.sequence, e = shape_.head_size;
    const SdpaStrides dense{shape_.heads * s * e, e, s * e};
    const int by_head =
        Apply(GraphOp::kMatmul, {swapped, x}, Tokens(SdpaName::kInner, shape_.heads, dense));
    Apply(GraphOp::kSum, {by_head}, result);
  }

  const SdpaShape& shape_;
  SdpaGraph graph_;
  const int scale_;  // used twice, and one value to cuDNN
};

}  // namespace

SdpaGraph MakeSdpaGraph(const SdpaShape& shape) {
  GraphBuilder builder(shape);
  if (shape.gradient) {
    builder.AddGradient();
  } else {
    builder.AddForward();
  }
  return std::move(builder).Take();
}

float ValueOf(SdpaName name, const SdpaShape& shape) {
  switch (name) {
    case SdpaName::kScale:
      return 1.0f / std::sqrt(static_cast<float>(shape.head_size));
    case SdpaName::kHidden:
      // Finite: kernels that correct earlier exponentials would subtract infinities.
      return std::numeric_limits<float>::lowest();
    default:
      return 1.0f;
  }
}

void* PlaceOf(SdpaName name, const SdpaMemory& memory) {
  switch (name) {
    case SdpaName::kQ:
      return const_cast<void*>(memory.q);
    case SdpaName::kK:
      return const_cast<void*>(memory.k);
    case SdpaName::kV:
      return const_cast<void*>(memory.v);
    case SdpaName::kO:
      return memory.o;
    case SdpaName::kLse:
      return memory.lse;
    case SdpaName::kOGrad:
      return const_cast<void*>(memory.d_o);
    case SdpaName::kQGrad:
      return memory.dq;
    case SdpaName::kKGrad:
      return memory.dk;
    case SdpaName::kVGrad:
      return memory.dv;
    default:
      return nullptr;
  }
}

}  // namespace meshwright::ops::cuda
