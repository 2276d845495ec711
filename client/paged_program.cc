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

}  // namespace meshwright::client
