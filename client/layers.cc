#include "client/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "client/paged_layers.h"
#include "client/scored_attention.h"
#include "ir/adapters.h"
#include "ir/rotary.h"

namespace meshwright::client {

using ir::Op;
using ir::TensorType;

Builder::Builder(std::string name, ir::DType dtype) : ir::Builder(std::move(name)), dtype_(dtype) {}

bool Builder::Usable(ValueId x) const { return status().ok() && x.index() < graph().values.size(); }

Dims Builder::dims(ValueId x) const { return Usable(x) ? type(x).dims : Dims(); }

void Builder::ClaimName(const std::string& name) {
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) {
    Fail(InvalidArgument(fmt::format(
        "the name '{}' is used twice in graph \"{}\"; weights and dropouts need unique names", name,
        graph().name)));
  }
  names_.push_back(name);
}

namespace {

void SetStored(const StoredForm& form, ir::Attrs& attrs) {
  attrs.Set("stored_name", form.name);
  if (!form.perm.empty()) attrs.Set("stored_perm", form.perm);
  if (form.rows == 0) return;
  attrs.Set("stored_rows", form.rows);
  attrs.Set("stored_row", form.row);
  attrs.Set("stored_dim", form.dim);
}

}  // namespace

ValueId Builder::Param(const std::string& name, Dims dims, const ParamOptions& options) {
  ClaimName(name);
  const int decay = options.decay >= 0 ? options.decay : (dims.size() >= 2 ? 1 : 0);
  ir::Attrs attrs = {{"name", name},
                     {"init", options.init},
                     {"decay", static_cast<int64_t>(decay)},
                     {"export_name", options.export_name.empty() ? name : options.export_name}};
  if (options.init == "normal") {
    attrs.Set("mean", 0.0);
    attrs.Set("std", options.std_dev);
  }
  if (!options.export_perm.empty()) attrs.Set("export_perm", options.export_perm);
  if (!options.export_shape.empty()) attrs.Set("export_shape", options.export_shape);
  if (options.export_rows > 0) {
    attrs.Set("export_row", options.export_row);
    attrs.Set("export_rows", options.export_rows);
    if (options.export_dim > 0) attrs.Set("export_dim", options.export_dim);
    if (options.export_step > 1) attrs.Set("export_step", options.export_step);
  }
  if (!options.stored.name.empty()) SetStored(options.stored, attrs);
  if (options.sign_rate >= 0) attrs.Set("sign_rate", options.sign_rate);
  if (options.drawn) attrs.Set(ir::kDrawnAttr, int64_t{1});
  if (!options.beside.empty()) {
    attrs.Set(ir::kBesideAttr, options.beside);
    attrs.Set(ir::kBesideDimsAttr, options.beside_dims);
  }
  return AddOne(Op::kParam, {}, std::move(attrs), {TensorType{dtype_, std::move(dims)}});
}

ValueId Builder::Linear(ValueId x, const std::string& name, int64_t out,
                        const LinearOptions& options) {
  const Dims in = dims(x);
  if (in.empty()) {
    Fail(InvalidArgument(
        fmt::format("linear '{}': needs an operand [..., in], got a scalar", name)));
    return ValueId();
  }
  if (in.size() > 8) {
    Fail(InvalidArgument(fmt::format("linear '{}': rank {} is above 8", name, in.size())));
    return ValueId();
  }
  const ValueId weight = Param(name + ".weight", {in.back(), out}, {.std_dev = options.std_dev});
  const std::string rows = std::string("abcdefgh").substr(0, in.size() - 1);
  const ValueId y = Einsum(fmt::format("{0}y,yz->{0}z", rows), x, weight);
  return options.bias ? AddTo(y, Param(name + ".bias", {out}, {.init = "zeros"})) : y;
}

ValueId Builder::LayerNorm(ValueId x, const std::string& name, double epsilon) {
  const Dims in = dims(x);
  const Dims width = in.empty() ? Dims() : Dims{in.back()};
  const ValueId weight = Param(name + ".weight", width, {.init = "ones"});
  const ValueId bias = Param(name + ".bias", width, {.init = "zeros"});
  return AddOne(Op::kLayerNorm, {x, weight, bias}, {{"eps", epsilon}});
}

ValueId Builder::RmsNorm(ValueId x, const std::string& name, double epsilon) {
  const Dims in = dims(x);
  const Dims width = in.empty() ? Dims() : Dims{in.back()};
  const ValueId weight = Param(name + ".weight", width, {.init = "ones"});
  return AddOne(Op::kRmsNorm, {x, weight}, {{"eps", epsilon}});
}

ValueId Builder::Embedding(ValueId ids, const std::string& name, int64_t rows, int64_t width) {
  return Lookup(Param(name + ".weight", {rows, width}), ids);
}

ValueId Builder::Lookup(ValueId table, ValueId ids) { return AddOne(Op::kEmbedding, {table, ids}); }

ValueId Builder::Dropout(ValueId x, double rate, const std::string& name) {
  if (rate == 0) return x;
  ClaimName(name);
  return AddOne(Op::kDropout, {x}, {{"rate", rate}, {"name", name}});
}

ValueId Builder::Rotary(ValueId x, double base) { return Turned(x, {{"base", base}}); }

ValueId Builder::Rotary(ValueId x, const std::vector<double>& frequencies) {
  return Turned(x, {{"frequencies", ir::FormatFrequencies(frequencies)}});
}

ValueId Builder::Turned(ValueId x, ir::Attrs attrs) {
  attrs.Set("inverse", int64_t{0});
  std::vector<ValueId> operands = {x};
  if (pages_) operands.push_back(pages_->position);
  return AddOne(Op::kRotary, std::move(operands), std::move(attrs));
}

ir::Attrs Builder::AttentionAttrs(const AttentionDropout& dropout, bool causal) {
  ir::Attrs attrs = {{"causal", causal ? int64_t{1} : int64_t{0}}};
  if (dropout.rate != 0) {
    ClaimName(dropout.name);
    attrs.Set("dropout", dropout.rate);
    attrs.Set("name", dropout.name);
  }
  return attrs;
}

ValueId Builder::Segments(ValueId tokens, int64_t separator) {
  if (pages_) {
    Fail(
        Unimplemented("rows of several documents cannot be kept in pages; set document_separator "
                      "to -1"));
  }
  return AddOne(Op::kSegments, {tokens}, {{"separator", separator}});
}

ValueId Builder::Attention(ValueId q, ValueId k, ValueId v, const AttentionDropout& dropout,
                           ValueId segments) {
  AttentionOptions options;
  options.dropout = dropout;
  options.segments = segments;
  return Attention(q, k, v, options);
}

ValueId Builder::Attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& options) {
  const Dims of_q = dims(q);
  const Dims of_k = dims(k);
  const bool one_length = of_q.size() == 4 && of_k.size() == 4 && of_q[1] == of_k[1];
  const bool shows_all = !options.bias.valid() && !options.seen_keys.valid() && one_length;
  if (pages_ && !shows_all) {
    Fail(Unimplemented(
        "attention with a bias or hidden keys, or of another length than its keys, does not keep "
        "its keys in pages"));
    return ValueId();
  }
  if (!pages_ && (!shows_all || options.score_cap > 0)) {
    if (!options.sinks.valid()) return ScoredAttention(*this, q, k, v, options);
    Fail(InvalidArgument(
        "attention with a bias, hidden keys or capped scores, or of another length than its keys, "
        "has no sinks"));
    return ValueId();
  }
  // The op's own scale is 1 / sqrt(e).
  if (options.scale > 0) {
    q = Scale(q, options.scale * std::sqrt(static_cast<double>(of_q[3])));
  }
  const auto whole = [&] {
    std::vector<ValueId> operands = {q, k, v};
    if (options.segments.valid()) operands.push_back(options.segments);
    ir::Attrs attrs = AttentionAttrs(options.dropout, options.causal);
    if (options.window > 0) attrs.Set("window", options.window);
    return Add(Op::kAttention, std::move(operands), attrs);
  };
  const std::vector<ValueId> results = pages_ ? PagedAttention(*this, q, k, v, options) : whole();
  if (results.size() < 2) return ValueId();
  if (!options.sinks.valid()) return results[0];
  // What the keys have of the softmax: exp(lse) / (exp(lse) + exp(sink)).
  const ValueId share = Sigmoid(Sub(Transpose(results[1], {0, 2, 1}), options.sinks));
  return MulBy(results[0], Reshape(share, {of_q[0], of_q[1], of_q[2], 1}));
}

ValueId Builder::AttentionQkv(ValueId qkv, const AttentionDropout& dropout, ValueId segments) {
  if (pages_) return PagedAttentionQkv(*this, qkv);
  std::vector<ValueId> operands = {qkv};
  if (segments.valid()) operands.push_back(segments);
  return AddOne(Op::kAttentionQkv, std::move(operands), AttentionAttrs(dropout, true));
}

Loss Builder::CrossEntropy(ValueId logits, ValueId labels, int64_t ignore_index) {
  const std::vector<ValueId> results =
      Add(Op::kCrossEntropy, {logits, labels}, {{"ignore_index", ignore_index}});
  return results.size() < 2 ? Loss() : Loss{results[0], results[1]};
}

int64_t CountParams(const ir::Graph& graph) {
  int64_t count = 0;
  for (NodeId id : graph.NodesOf(Op::kParam)) {
    if (graph.node(id).attrs.Int("kept") != 0) continue;
    count += graph.type(graph.node(id).outputs[0]).elements();
  }
  return count;
}

}  // namespace meshwright::client
