// The graph builder as a model author wants it: layers that own their weights, and formulas on
// values.
//
// client::Builder is an ir::Builder plus (1) the float type of the model, (2) methods named after
// layers. A layer makes its params under the name it is given ("h.0.mlp.fc" -> "h.0.mlp.fc.weight",
// "h.0.mlp.fc.bias"); names are unique in a graph. Errors stick as in ir::Builder: after the first
// one every method returns an invalid id and Finish() returns the error, so model code needs no
// checks.
//
// Shapes use b batch, s sequence, d hidden, v vocabulary, h heads, g kv heads, e head size; "..."
// is any leading dims. Thread rule: one thread. Ownership: Finish() moves the graph out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "client/paged_rows.h"
#include "ir/builder.h"
#include "ir/dtype.h"
#include "ir/graph.h"

namespace meshwright::client {

using ir::Dims;

// A form of a weight in files: see ParamOptions.
struct StoredForm {
  std::string name = {};  // empty: there is none
  std::vector<int64_t> perm = {};
  int64_t rows = 0;
  int64_t row = 0;
  int64_t dim = 0;
};

// A trained weight. Weights of rank >= 2 decay unless said otherwise; vectors do not.
struct ParamOptions {
  std::string init = "normal";            // "normal" | "zeros" | "ones"
  double std_dev = 0.02;                  // of "normal"
  int decay = -1;                         // 0 | 1 | -1: by rank
  std::string export_name = {};           // in model.safetensors; empty: the param's name
  std::vector<int64_t> export_perm = {};  // dims of the exported tensor; empty: as they are
  Dims export_shape = {};                 // after export_perm; empty: as it is
  // The exported tensor has so many rows in `export_dim`, of which this param is each
  // `export_step`-th from `export_row` on; others of that export_name have the rest. 0: the tensor
  // is this param alone. "{}" in export_name: each place of the first dim is a tensor of its own.
  int64_t export_rows = 0;
  int64_t export_row = 0;
  int64_t export_dim = 0;
  int64_t export_step = 1;
  // Another form in which files may have it, by the same rules; it is read and not written.
  StoredForm stored = {};
  // Renewed against the sign of its gradient by this in each step, whatever the optimizer is, and
  // no part of the gradient's norm. Below 0: as the other params.
  double sign_rate = -1;
  bool drawn = false;  // it keeps what it is initialised with where a file of weights lacks it
  // Of devices that share weights it is split as that param is: for each dim one of that param's,
  // or -1. That param comes before it. Empty: by itself.
  std::string beside = {};
  std::vector<int64_t> beside_dims = {};
};

// Of tokens i32[b, s]: the document that each is of, counted in its row, and its position there.
struct PackedDocuments {
  ValueId segments;
  ValueId positions;
};

struct LinearOptions {
  bool bias = true;
  double std_dev = 0.02;
};

struct AttentionDropout {
  double rate = 0;
  std::string name = {};  // seeds the mask, unique in the graph; needed when rate > 0
};

// How queries see keys.
struct AttentionOptions {
  bool causal = true;  // a query sees the keys up to its own position
  // Added to the scaled scores: [b or 1, h or 1, s_q, s_k] in the type of q; invalid: none. It is
  // differentiated, too.
  ValueId bias = {};
  AttentionDropout dropout = {};
  ValueId segments = {};   // i32[b, s]: tokens see those of their own segment only; invalid: one
  ValueId seen_keys = {};  // bool [b, s_k]: keys that queries may see, no padding; invalid: all
  int64_t window = 0;      // keys that a causal query sees: itself and those before it; 0: all
  // [h]: a logit of each head that takes its part of the softmax and has no value, so that a head
  // need not look anywhere; invalid: none. Not with a bias. Source: gpt-oss 2025.
  ValueId sinks = {};
  double scale = 0;  // of the scores; 0: 1 / sqrt(e)
  // A scaled score s becomes cap * tanh(s / cap), before the bias and what hides keys; 0: it stays.
  // Source: Gemma 2 2024.
  double score_cap = 0;
};

// Windows over images [b, height, width, channels].
struct WindowOptions {
  std::vector<int64_t> strides = {1, 1};
  std::vector<int64_t> padding = {0, 0, 0, 0};  // top, left, bottom, right
};

struct TopValues {
  ValueId values;  // [..., k], largest first
  ValueId ids;     // i32[..., k], their places in the last dim
};

// What a loss function returns: the sum over the tokens that count, and how many they are. The
// trained objective is the quotient over the global batch, however it is split.
struct Loss {
  ValueId loss_sum;  // []
  ValueId count;     // []
};

class Builder : public ir::Builder {
 public:
  explicit Builder(std::string name, ir::DType dtype = ir::DType::kF32);

  ir::DType dtype() const { return dtype_; }
  // The dims of a value; empty after an error.
  Dims dims(ValueId x) const;

  // Weights and layers.
  ValueId Param(const std::string& name, Dims dims, const ParamOptions& options = {});
  // [..., in] -> [..., out]; weight [in, out], bias [out].
  ValueId Linear(ValueId x, const std::string& name, int64_t out,
                 const LinearOptions& options = {});
  ValueId LayerNorm(ValueId x, const std::string& name, double epsilon = 1e-5);
  ValueId RmsNorm(ValueId x, const std::string& name, double epsilon = 1e-5);
  // ids i32[...] -> [..., width]; table [rows, width].
  ValueId Embedding(ValueId ids, const std::string& name, int64_t rows, int64_t width);
  // Rows of a table made by Param: ids i32[...] -> [..., d].
  ValueId Lookup(ValueId table, ValueId ids);
  // x unchanged when rate is 0. `name` seeds the mask and is unique in the graph.
  ValueId Dropout(ValueId x, double rate, const std::string& name);

  // Formulas of two values. Shapes are fitted as in NumPy: they are compared from the last dim on,
  // and a dim of 1, or one that is missing, repeats. One float type, or i32 for sums, products, the
  // larger, the smaller and comparisons.
  ValueId AddTo(ValueId x, ValueId y);
  ValueId MulBy(ValueId x, ValueId y);
  ValueId Sub(ValueId x, ValueId y);
  ValueId Div(ValueId x, ValueId y);
  ValueId Pow(ValueId x, ValueId y);
  ValueId Maximum(ValueId x, ValueId y);
  ValueId Minimum(ValueId x, ValueId y);
  // Comparisons: -> bool.
  ValueId Equal(ValueId x, ValueId y);
  ValueId NotEqual(ValueId x, ValueId y);
  ValueId Less(ValueId x, ValueId y);
  ValueId LessEqual(ValueId x, ValueId y);
  ValueId Greater(ValueId x, ValueId y);
  ValueId GreaterEqual(ValueId x, ValueId y);
  // Of bool.
  ValueId And(ValueId x, ValueId y);
  ValueId Or(ValueId x, ValueId y);
  ValueId Not(ValueId x);
  // x where `condition` (bool), else y; of any type.
  ValueId Where(ValueId condition, ValueId x, ValueId y);

  // Formulas of one value.
  ValueId Scale(ValueId x, double factor);
  ValueId Shift(ValueId x, double value);  // x + value
  ValueId Neg(ValueId x);
  ValueId Abs(ValueId x);
  ValueId Sign(ValueId x);  // 0 of 0; no gradient passes
  ValueId Exp(ValueId x);
  ValueId Log(ValueId x);
  ValueId Sqrt(ValueId x);
  ValueId Rsqrt(ValueId x);
  ValueId Square(ValueId x);
  ValueId Erf(ValueId x);
  ValueId Relu(ValueId x);
  ValueId Tanh(ValueId x);
  ValueId Sigmoid(ValueId x);
  ValueId Softplus(ValueId x);
  ValueId Gelu(ValueId x);     // the tanh form
  ValueId GeluErf(ValueId x);  // the exact one
  ValueId Silu(ValueId x);
  ValueId Cast(ValueId x, ir::DType to);
  // x as a constant: gradients do not pass.
  ValueId StopGradient(ValueId x);
  // A tensor of the model's float type filled with `value`.
  ValueId Fill(Dims dims, double value);

  // Structure. A negative dim counts from the end.
  ValueId Einsum(const std::string& equation, ValueId a, ValueId b);
  ValueId Slice(ValueId x, int dim, int64_t start, int64_t size);
  ValueId Pad(ValueId x, int dim, int64_t before, int64_t after);  // zeros around
  ValueId Concat(std::vector<ValueId> parts, int dim);
  ValueId Reshape(ValueId x, Dims dims);
  ValueId Transpose(ValueId x, std::vector<int64_t> perm);
  ValueId BroadcastTo(ValueId x, Dims dims);  // as NumPy does

  // Reductions over `dims`, which go, or stay as 1 when `keep_dims`.
  ValueId ReduceSum(ValueId x, std::vector<int64_t> dims, bool keep_dims = false);
  ValueId ReduceMean(ValueId x, std::vector<int64_t> dims, bool keep_dims = false);
  ValueId ReduceMax(ValueId x, std::vector<int64_t> dims, bool keep_dims = false);
  ValueId ReduceMin(ValueId x, std::vector<int64_t> dims, bool keep_dims = false);

  // Over the last dim.
  ValueId Softmax(ValueId x);
  ValueId LogSoftmax(ValueId x);
  ValueId LogSumExp(ValueId x);  // [..., v] -> [...]

  // Choice.
  TopValues TopK(ValueId x, int64_t k);  // of the last dim; equal ones by their place
  ValueId ArgMax(ValueId x, int dim);    // i32, without `dim`; the first of equal ones
  // The elements of x at ids (i32) along `dim`; else ids has x's shape.
  ValueId Gather(ValueId x, ValueId ids, int dim);
  ValueId OneHot(ValueId ids, int64_t size);  // i32[...] -> [..., size] of the model's float type
  ValueId Iota(int64_t count);                // i32[count]: 0, 1, 2, ...

  // Numbers in the shape of x that are new in every step and the same on every layout. `name` seeds
  // them and is unique in the graph.
  ValueId Uniform(ValueId x, const std::string& name);  // in [0, 1)
  ValueId Normal(ValueId x, const std::string& name);
  ValueId Bernoulli(ValueId probability, const std::string& name);  // bool
  ValueId Categorical(ValueId logits, const std::string& name);     // [..., v] -> i32[...]

  // Images [b, height, width, channels].
  // -> [b, h', w', out]; weight [height, width, channels, out], bias [out].
  ValueId Conv2d(ValueId x, const std::string& name, std::vector<int64_t> window, int64_t out,
                 const WindowOptions& options = {}, const LinearOptions& weights = {});
  ValueId MaxPool(ValueId x, std::vector<int64_t> window, const WindowOptions& options = {});
  // Padding counts as zeros.
  ValueId AvgPool(ValueId x, std::vector<int64_t> window, const WindowOptions& options = {});

  // The gradients of the scalar `loss` with respect to values of the graph, which become part of
  // it: a loss of what they lead to can be trained. Attention that is one op, convolution and fused
  // ops cannot be differentiated twice.
  std::vector<ValueId> Grad(ValueId loss, const std::vector<ValueId>& wrt);

  // Rotary positions on [b,s,h,e], pairs (i, i + e/2).
  ValueId Rotary(ValueId x, double base = 10000);
  // The same by angles of one's own: radians from a position to the next one, of each pair.
  ValueId Rotary(ValueId x, const std::vector<double>& frequencies);
  // i32[..., s]: the number of the document of each token, when `separator` ends documents.
  ValueId Segments(ValueId tokens, int64_t separator);
  // Causal attention: q [b,s,h,e], k and v [b,s,g,e] -> [b,s,h,e]; g divides h. Dropout acts on the
  // probabilities. With segments [b,s] tokens attend to those of their own segment only.
  ValueId Attention(ValueId q, ValueId k, ValueId v, const AttentionDropout& dropout = {},
                    ValueId segments = {});
  // The same, causal or not, with a bias, capped scores, hidden keys, and between sequences of two
  // lengths: k and v [b,s_k,g,e]. One op where there is one length and none of the others; else
  // products around a softmax, which keep all scores [b, h, s_q, s_k] and can be differentiated
  // twice. Between two lengths they know no segments and no causal order.
  ValueId Attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& options);
  // The same for the three slices of one projection: qkv [b,s,3,h,e] -> [b,s,h,e].
  ValueId AttentionQkv(ValueId qkv, const AttentionDropout& dropout = {}, ValueId segments = {});

  // From here on tokens [b, s] are those that `rows` says (client/paged_program.h): attention keeps
  // and reads the pages of their texts, positions are told, products are alone (ir/op.h).
  void ReadPages(const PagedRows& rows) { pages_ = rows; }
  const std::optional<PagedRows>& pages() const { return pages_; }
  // From here on rows [b, s] hold several documents each: attention and positions do not cross
  // them (client/paged_layers.h).
  void ReadDocuments(const PackedDocuments& documents) { documents_ = documents; }
  const std::optional<PackedDocuments>& documents() const { return documents_; }

  // logits [..., v], labels i32[...]; labels equal to ignore_index do not count.
  Loss CrossEntropy(ValueId logits, ValueId labels, int64_t ignore_index = -100);

 private:
  bool Usable(ValueId x) const;
  ValueId Turned(ValueId x, ir::Attrs attrs);
  ir::Attrs AttentionAttrs(const AttentionDropout& dropout, bool causal);
  ValueId Binary(ir::Op op, ValueId x, ValueId y);
  ValueId Noise(ValueId x, const std::string& name, const char* kind);
  // Dims counted from the front, increasing.
  std::vector<int64_t> DimsFrom(ValueId x, std::vector<int64_t> dims) const;
  ValueId Reduce(ir::Op op, ValueId x, std::vector<int64_t> dims, bool keep_dims);

  ir::DType dtype_;
  std::vector<std::string> names_;  // of params and dropouts
  std::optional<PagedRows> pages_;  // none: tokens are whole texts
  std::optional<PackedDocuments> documents_;
  void ClaimName(const std::string& name);
};

// Trained values of a graph, in the order of their params: what a model "has".
int64_t CountParams(const ir::Graph& graph);

}  // namespace meshwright::client
