#include "planner/split_check.h"

#include <algorithm>

#include "base/check.h"

namespace meshwright::planner {
namespace {

// Whole beats "does not divide" beats "gathered" beats "fits".
SplitCheck::Answer Worse(const SplitCheck::Answer& a, const SplitCheck::Answer& b) {
  SplitCheck::Answer worse = a.verdict >= b.verdict ? a : b;
  worse.is_vocabulary = a.is_vocabulary || b.is_vocabulary;
  return worse;
}

}  // namespace

bool IsMinor(const ir::FactorRule& rule, ir::FactorIndex factor) {
  MW_CHECK(factor >= 0 && static_cast<size_t>(factor) < rule.factors.size())
      << "factor " << factor << " of " << rule.factors.size();
  const auto in = [&](const ir::TensorFactors& tensor) {
    return std::any_of(tensor.begin(), tensor.end(), [&](const ir::DimFactors& dim) {
      return !dim.empty() && std::find(dim.begin() + 1, dim.end(), factor) != dim.end();
    });
  };
  return std::any_of(rule.operands.begin(), rule.operands.end(), in) ||
         std::any_of(rule.results.begin(), rule.results.end(), in);
}

SplitCheck::Answer SplitCheck::Check(ValueId value, int dim, int64_t parts) {
  MW_CHECK(parts >= 1 && dim >= 0 && dim < graph_.type(value).rank())
      << parts << " parts of dim " << dim << " of " << graph_.type(value).ToString();
  Answer answer;
  const int64_t size = graph_.type(value).dims[static_cast<size_t>(dim)];
  if (size % parts != 0) answer = {kDoesNotDivide, size, false};
  for (NodeId id : users_[value]) {
    const ir::Node& user = graph_.node(id);
    if (user.phase != ir::Phase::kForward) continue;
    for (size_t i = 0; i < user.inputs.size(); ++i) {
      if (user.inputs[i] == value) answer = Worse(answer, CheckUser(user, i, dim, parts));
    }
  }
  return answer;
}

SplitCheck::Answer SplitCheck::CheckUser(const ir::Node& user, size_t operand, int dim,
                                         int64_t parts) {
  const Result<ir::FactorRule> rule = ir::RuleOf(graph_, user);
  if (!rule.has_value()) return {kNeededWhole, 0, false};
  const ir::DimFactors& factors = rule->operands[operand][static_cast<size_t>(dim)];
  if (factors.empty()) return {kFits, 0, false};
  const ir::Factor& factor = rule->factors[static_cast<size_t>(factors[0])];
  if (factor.kind == ir::FactorKind::kWhole || factor.kind == ir::FactorKind::kSequence)
    return {kNeededWhole, 0, false};
  Answer answer;
  if (factor.size % parts != 0) answer = {kDoesNotDivide, factor.size, false};
  if (factor.kind == ir::FactorKind::kReduced) {
    const bool loss = user.op == ir::Op::kCrossEntropy || user.op == ir::Op::kLogSumExp ||
                      user.op == ir::Op::kPick;
    answer.is_vocabulary = loss;
    return answer;
  }
  if (IsMinor(*rule, factors[0])) return Worse(answer, {kGathered, 0, false});
  for (size_t r = 0; r < rule->results.size(); ++r) {
    for (size_t d = 0; d < rule->results[r].size(); ++d) {
      const ir::DimFactors& result = rule->results[r][d];
      if (result.empty() || result[0] != factors[0]) continue;
      answer = Worse(answer, Check(user.outputs[r], static_cast<int>(d), parts));
    }
  }
  return answer;
}

}  // namespace meshwright::planner
