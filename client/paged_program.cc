#include "client/paged_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "ir/elementwise.h"
#include "ir/fused.h"

namespace meshwright::client {
namespace {

using ir::Op;
using ir::TensorType;

// Ops whose results for a token are those of the token alone, whatever is beside it.
bool IsOfOneToken(Op op) {
  static constexpr Op kOps[] = {Op::kFeed,          Op::kParam,     Op::kConstant,  Op::kEmbedding,
                                Op::kEinsum,        Op::kLayerNorm, Op::kRmsNorm,   Op::kRotary,
                                Op::kSlice,         Op::kPad,       Op::kConcat,    Op::kReshape,
                                Op::kTranspose,     Op::kBroadcast, Op::kReduceSum, Op::kGather,
                                Op::kPagedAttention};
  return ir::IsElementwise(op) || std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

Status CheckTokensAlone(const ir::Graph& graph) {
  for (const ir::Node& node : graph.nodes) {
    if (IsOfOneToken(node.op)) continue;
    const char* what =
        node.op == Op::kExpertSlots || node.op == Op::kDispatch || node.op == Op::kTopK
            ? "experts, whose room the tokens of a batch share"
            : "a layer that sees other tokens than attention does";
    return Unimplemented(fmt::format("the model has {} ({}): its texts cannot be kept in pages",
                                     what, ir::OpName(node.op)));
  }
  return OkStatus();
}

}  // namespace

std::string PagedProgramName(int64_t tokens) { return fmt::format("rows/{}", tokens); }

Result<ir::JobProgram> PagedProgram(const PageShape& shape, const PagedSize& size,
                                    const TrainerFunctions& functions, ir::DType dtype) {
  const std::string name = PagedProgramName(size.tokens);
  if (!functions.predict) {
    return Fail(
        InvalidArgument(fmt::format("program '{}': TrainerFunctions.predict is empty", name)));
  }
  const TensorType of_tokens{ir::DType::kI32, {shape.groups, size.tokens}};
  const std::vector<InputSpec> inputs = {
      {"tokens", of_tokens},
      {"row", of_tokens},
      {"position", of_tokens},
      {"table", {ir::DType::kI32, {shape.groups, shape.texts, shape.text_pages()}}},
      {"wanted", {ir::DType::kI32, {shape.groups, size.rows}}}};
  const auto body = [&](Builder& builder, const Batch& in) {
    builder.ReadPages({shape, in.at("table"), in.at("row"), in.at("position"), in.at("wanted")});
    builder.SetOutput("logits", functions.predict(builder, {{"tokens", in.at("tokens")}}));
    return OkStatus();
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram program, MakeProgram(name, inputs, body, {dtype}));
  MW_TRY(CheckTokensAlone(program.graph));
  return program;
}

// ---- what the layers of models do over pages ----

int64_t Builder::PositionCount(ValueId tokens) const {
  if (pages_) return pages_->shape.positions;
  const Dims of_tokens = dims(tokens);
  return of_tokens.size() == 2 ? of_tokens[1] : 0;
}

ValueId Builder::AtPositions(ValueId table, ValueId tokens) {
  if (pages_) return Lookup(table, pages_->position);
  const Dims rows = dims(table);
  const int64_t count = PositionCount(tokens);
  return !rows.empty() && count < rows[0] ? Slice(table, 0, 0, count) : table;
}

ValueId Builder::Wanted(ValueId x) {
  if (!pages_) return x;
  const Dims of_x = dims(x);
  const Dims of_wanted = dims(pages_->wanted);
  if (of_x.size() != 3 || of_wanted.size() != 2) return ValueId();  // after an error
  const Dims wide = {of_wanted[0], of_wanted[1], of_x[2]};
  const ValueId places = AddOne(Op::kBroadcast, {pages_->wanted},
                                {{"dims", std::vector<int64_t>{2}}}, {{ir::DType::kI32, wide}});
  return Gather(x, places, 1);
}

std::vector<ValueId> Builder::PagedAttention(ValueId q, ValueId k, ValueId v,
                                             const AttentionOptions& options) {
  const Dims of_k = dims(k);
  if (!options.causal || of_k.size() != 4) {
    Fail(Unimplemented("only causal attention keeps its keys in pages"));
    return {};
  }
  const PageShape& shape = pages_->shape;
  const ValueId pages =
      AddOne(Op::kParam, {},
             {{"name", fmt::format("pages/{}", paged_attentions_++)},
              {"init", "zeros"},
              {"decay", int64_t{0}},
              {"kept", int64_t{1}}},
             {TensorType{shape.dtype,
                         {shape.groups, shape.pages, 2, of_k[2], shape.page_tokens, of_k[3]}}});
  ir::Attrs attrs;
  if (options.window > 0) attrs.Set("window", options.window);
  return Add(Op::kPagedAttention, {q, k, v, pages, pages_->table, pages_->row, pages_->position},
             attrs);
}

ValueId Builder::PagedAttentionQkv(ValueId qkv) {
  const Dims of_qkv = dims(qkv);
  if (of_qkv.size() != 5) return ValueId();  // after an error
  const Dims heads = {of_qkv[0], of_qkv[1], of_qkv[3], of_qkv[4]};
  const auto part = [&](int64_t i) { return Reshape(Slice(qkv, 2, i, 1), heads); };
  const ValueId q = part(0);
  const ValueId k = part(1);
  const std::vector<ValueId> results = PagedAttention(q, k, part(2), AttentionOptions());
  return results.empty() ? ValueId() : results[0];
}

}  // namespace meshwright::client
