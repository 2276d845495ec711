#include "ir/fused.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/elementwise.h"
#include "ir/text_lexer.h"

namespace meshwright::ir {
namespace {

std::string FormatStep(const FusedStep& step) {
  const std::string attrs = FormatAttrs(step.attrs);
  return fmt::format("{}({}){}{}", OpName(step.op), fmt::join(step.operands, ","),
                     attrs.empty() ? "" : " ", attrs);
}

Result<FusedStep> ParseStep(std::string_view text) {
  Lexer lexer(text);
  FusedStep step;
  MW_ASSIGN_OR_RETURN(const std::string name, lexer.Word());
  MW_ASSIGN_OR_RETURN(step.op, ParseOp(name));
  MW_TRY(lexer.Expect("("));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> operands, lexer.IntList());
  for (const int64_t operand : operands) {
    if (operand < 0 || operand > INT32_MAX) return Fail(lexer.Error("operand out of range"));
    step.operands.push_back(static_cast<int>(operand));
  }
  MW_TRY(lexer.Expect(")"));
  MW_TRY(ParseAttrs(lexer, step.attrs));
  if (!lexer.AtEnd()) return Fail(lexer.Error("expected the end of the step"));
  if (!MayBeFused(step.op)) {
    return Fail(InvalidArgument(fmt::format("{} cannot be a step of fused", name)));
  }
  return step;
}

Result<ValueId> ValueAt(const Graph& graph, int64_t index) {
  if (index >= 0 && static_cast<size_t>(index) < graph.values.size()) {
    return ValueId(static_cast<int32_t>(index));
  }
  return Fail(InvalidArgument(fmt::format("value {} of a fused body is not defined yet: it has {}",
                                          index, graph.values.size())));
}

}  // namespace

bool IsElementwise(Op op) {
  return FormulaOf(op) != nullptr || op == Op::kCast || op == Op::kSum || op == Op::kDropout;
}

bool IsColumnSum(const Node& node) {
  if (node.op != Op::kReduceSum) return false;
  const std::vector<int64_t> dims = node.attrs.Ints("dims");
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != static_cast<int64_t>(i)) return false;
  }
  return !dims.empty();
}

bool MayBeFused(Op op) {
  switch (op) {
    case Op::kReduceSum:
    case Op::kEinsum:
    case Op::kLayerNorm:
    case Op::kLayerNormGrad:
    case Op::kRmsNorm:
    case Op::kRmsNormGrad:
      return true;
    default:
      return IsElementwise(op);
  }
}

void SetFusedBody(const FusedBody& body, Attrs& attrs) {
  MW_CHECK(!body.steps.empty() && body.steps.size() <= kMaxFusedSteps && !body.results.empty())
      << "a fused node of " << body.steps.size() << " steps and " << body.results.size()
      << " results";
  std::vector<std::string> steps;
  for (const FusedStep& step : body.steps) steps.push_back(FormatStep(step));
  attrs.Set("body", std::move(steps));
  attrs.Set("results", std::vector<int64_t>(body.results.begin(), body.results.end()));
}

Result<FusedBody> ParseFusedBody(const Attrs& attrs) {
  FusedBody body;
  for (const std::string& text : attrs.Strs("body")) {
    MW_ASSIGN_OR_RETURN(FusedStep step, ParseStep(text));
    body.steps.push_back(std::move(step));
  }
  for (const int64_t result : attrs.Ints("results")) {
    if (result < 0 || result > INT32_MAX) {
      return Fail(InvalidArgument(fmt::format("fused: result {} is not a value", result)));
    }
    body.results.push_back(static_cast<int>(result));
  }
  if (body.steps.empty() || body.results.empty()) {
    return Fail(InvalidArgument("fused needs 'body' and 'results'"));
  }
  if (body.steps.size() > kMaxFusedSteps) {
    return Fail(InvalidArgument(
        fmt::format("fused has {} steps, at most {}", body.steps.size(), kMaxFusedSteps)));
  }
  return body;
}

Result<Graph> ExpandFused(const Attrs& attrs, std::span<const TensorType> operands) {
  MW_ASSIGN_OR_RETURN(const FusedBody body, ParseFusedBody(attrs));
  Builder builder("fused");
  for (size_t i = 0; i < operands.size(); ++i) {
    builder.AddOne(Op::kInput, {}, {{"name", std::to_string(i)}}, {operands[i]});
  }
  for (const FusedStep& step : body.steps) {
    std::vector<ValueId> inputs;
    for (const int operand : step.operands) {
      MW_ASSIGN_OR_RETURN(const ValueId input, ValueAt(builder.graph(), operand));
      inputs.push_back(input);
    }
    builder.Add(step.op, std::move(inputs), step.attrs);
    MW_TRY(builder.status().WithContext(FormatStep(step)));
  }
  for (size_t i = 0; i < body.results.size(); ++i) {
    MW_ASSIGN_OR_RETURN(const ValueId result, ValueAt(builder.graph(), body.results[i]));
    builder.SetOutput(std::to_string(i), result);
  }
  return builder.Finish();
}

}  // namespace meshwright::ir
