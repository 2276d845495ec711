#include "client/paged_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "ir/elementwise.h"
#include "ir/fused.h"
#include "ir/rewrite.h"

namespace meshwright::client {
namespace {

using ir::Op;
using ir::TensorType;

constexpr char kTokens[] = "tokens";

// Ops whose results for a token are those of the token alone, whatever is beside it. Which slot a
// token has at an expert is no such thing, but what comes back from there is, where all find room
// (client/experts.h).
bool IsOfOneToken(const ir::Node& node) {
  static constexpr Op kOps[] = {Op::kFeed,           Op::kParam,     Op::kConstant,  Op::kEmbedding,
                                Op::kEinsum,         Op::kLayerNorm, Op::kRmsNorm,   Op::kRotary,
                                Op::kSlice,          Op::kPad,       Op::kConcat,    Op::kReshape,
                                Op::kTranspose,      Op::kBroadcast, Op::kReduceSum, Op::kGather,
                                Op::kPagedAttention, Op::kSoftmax,   Op::kTopK,      Op::kOneHot,
                                Op::kDispatch,       Op::kCombine};
  if (node.op == Op::kExpertSlots) return node.attrs.Int("drop") == 0;
  if (node.op == Op::kGroupedMatmul) return node.attrs.Int("alone") == 1;
  return ir::IsElementwise(node.op) ||
         std::find(std::begin(kOps), std::end(kOps), node.op) != std::end(kOps);
}

// What does not depend on the tokens of the texts, as what an encoder makes of a source, may be of
// any op.
Status CheckTokensAlone(const ir::Graph& graph) {
  std::set<ValueId> of_tokens;
  for (const ir::Node& node : graph.nodes) {
    const bool is_tokens = node.op == Op::kFeed && node.attrs.Str("source") == kTokens;
    const bool depends =
        is_tokens || std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId input) { return of_tokens.contains(input); });
    if (!depends) continue;
    of_tokens.insert(node.outputs.begin(), node.outputs.end());
    if (IsOfOneToken(node)) continue;
    return Unimplemented(
        fmt::format("the model has a layer that sees other tokens than attention does ({}): its "
                    "texts cannot be kept in pages",
                    ir::OpName(node.op)));
  }
  return OkStatus();
}

}  // namespace

std::string PagedProgramName(const PagedSize& size) {
  return fmt::format("{}/{}", size.source.reads ? "source" : "rows", size.tokens);
}

Result<ir::JobProgram> PagedProgram(const PageShape& shape, const PagedSize& size,
                                    const TrainerFunctions& functions, ir::DType dtype) {
  const std::string name = PagedProgramName(size);
  if (!functions.predict) {
    return Fail(
        InvalidArgument(fmt::format("program '{}': TrainerFunctions.predict is empty", name)));
  }
  const TensorType of_tokens{ir::DType::kI32, {shape.groups, size.tokens}};
  std::vector<InputSpec> inputs = {
      {kTokens, of_tokens},
      {"row", of_tokens},
      {"position", of_tokens},
      {"table", {ir::DType::kI32, {shape.groups, shape.texts, shape.text_pages()}}},
      {"wanted", {ir::DType::kI32, {shape.groups, size.rows}}}};
  const std::vector<InputSpec> of_source = SourceInputs(shape, size.source, size.tokens);
  inputs.insert(inputs.end(), of_source.begin(), of_source.end());
  const auto body = [&](Builder& builder, const Batch& in) {
    builder.ReadPages({shape, in.at("table"), in.at("row"), in.at("position"), in.at("wanted")});
    Batch batch = {{kTokens, in.at(kTokens)}};
    for (const InputSpec& input : of_source) batch[input.name] = in.at(input.name);
    batch = WithSourceTable(builder, std::move(batch), size.source);
    builder.SetOutput("logits", functions.predict(builder, batch));
    return OkStatus();
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram program, MakeProgram(name, inputs, body, {dtype}));
  // What only a loss would read, as the balance of experts.
  MW_ASSIGN_OR_RETURN(program.graph, ir::DropDeadNodes(program.graph));
  MW_TRY(CheckTokensAlone(program.graph));
  return program;
}

}  // namespace meshwright::client
