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
#include <string>
#include <vector>

#include "base/ids.h"
#include "ir/builder.h"
#include "ir/dtype.h"
#include "ir/graph.h"

namespace meshwright::client {

using ir::Dims;

// A trained weight. Weights of rank >= 2 decay unless said otherwise; vectors do not.
struct ParamOptions {
  std::string init = "normal";            // "normal" | "zeros" | "ones"
  double std_dev = 0.02;                  // of "normal"
  int decay = -1;                         // 0 | 1 | -1: by rank
  std::string export_name = {};           // in model.safetensors; empty: the param's name
  std::vector<int64_t> export_perm = {};  // dims of the exported tensor; empty: as they are
  Dims export_shape = {};                 // after export_perm; empty: as it is
};

struct LinearOptions {
  bool bias = true;
  double std_dev = 0.02;
};

struct AttentionDropout {
  double rate = 0;
  std::string name = {};  // seeds the mask, unique in the graph; needed when rate > 0
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

  // Formulas. AddTo and MulBy accept a second operand whose shape is a suffix of the first's (a
  // bias).
  ValueId AddTo(ValueId x, ValueId y);
  ValueId MulBy(ValueId x, ValueId y);
  ValueId Sub(ValueId x, ValueId y);
  ValueId Scale(ValueId x, double factor);
  ValueId Gelu(ValueId x);
  ValueId Silu(ValueId x);
  ValueId Einsum(const std::string& equation, ValueId a, ValueId b);
  ValueId Slice(ValueId x, int dim, int64_t start, int64_t size);
  ValueId Reshape(ValueId x, Dims dims);
  ValueId Transpose(ValueId x, std::vector<int64_t> perm);
  ValueId ReduceSum(ValueId x, std::vector<int64_t> dims);
  // Rotary positions on [b,s,h,e], pairs (i, i + e/2).
  ValueId Rotary(ValueId x, double base = 10000);
  // i32[..., s]: the number of the document of each token, when `separator` ends documents.
  ValueId Segments(ValueId tokens, int64_t separator);
  // Causal attention: q [b,s,h,e], k and v [b,s,g,e] -> [b,s,h,e]; g divides h. Dropout acts on the
  // probabilities. With segments [b,s] tokens attend to those of their own segment only.
  ValueId Attention(ValueId q, ValueId k, ValueId v, const AttentionDropout& dropout = {},
                    ValueId segments = {});
  // The same for the three slices of one projection: qkv [b,s,3,h,e] -> [b,s,h,e].
  ValueId AttentionQkv(ValueId qkv, const AttentionDropout& dropout = {}, ValueId segments = {});
  // logits [..., v], labels i32[...]; labels equal to ignore_index do not count.
  Loss CrossEntropy(ValueId logits, ValueId labels, int64_t ignore_index = -100);

 private:
  bool Usable(ValueId x) const;
  ir::Attrs AttentionAttrs(const AttentionDropout& dropout);

  ir::DType dtype_;
  std::vector<std::string> names_;  // of params and dropouts
  void ClaimName(const std::string& name);
};

// Trained values of a graph, in the order of their params: what a model "has".
int64_t CountParams(const ir::Graph& graph);

}  // namespace meshwright::client
