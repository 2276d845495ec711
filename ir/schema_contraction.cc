// einsum: the contraction of two operands, which may be added to a third.
#include <fmt/format.h>

#include <map>
#include <set>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

struct Equation {
  std::string a, b, result;
};

// "bsk,kn->bsn" into its three label strings; false when it has another form.
bool SplitEquation(const std::string& text, Equation& equation) {
  const size_t comma = text.find(',');
  const size_t arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) return false;
  equation = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
              text.substr(arrow + 2)};
  for (const std::string* labels : {&equation.a, &equation.b, &equation.result}) {
    std::set<char> seen;
    for (char label : *labels) {
      const bool letter = (label >= 'a' && label <= 'z') || (label >= 'A' && label <= 'Z');
      if (!letter || !seen.insert(label).second) return false;
    }
  }
  return true;
}

Equation EquationOf(const Attrs& attrs) {
  Equation equation;
  SplitEquation(attrs.Str("equation"), equation);
  return equation;
}

TypesOr InferEinsum(const OpCall& call) {
  MW_TRY(call.RequireOperandsOrOneMore(2));
  MW_TRY(call.RequireFloat(0));
  const std::string text = call.attrs.Str("equation");
  Equation eq;
  if (!SplitEquation(text, eq)) {
    return Fail(call.Error(
        fmt::format("equation '{}' must be like 'bsk,kn->bsn', each label once per tensor", text)));
  }
  if (call.operands[0].dtype != call.operands[1].dtype) {
    return Fail(call.Error("operands must have one dtype"));
  }
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < 2; ++i) {
    const std::string& labels = i == 0 ? eq.a : eq.b;
    const std::string& other = i == 0 ? eq.b : eq.a;
    MW_TRY(call.RequireRank(i, static_cast<int>(labels.size())));
    for (size_t k = 0; k < labels.size(); ++k) {
      const int64_t extent = call.operands[i].dims[k];
      const auto [it, fresh] = extents.emplace(labels[k], extent);
      if (!fresh && it->second != extent) {
        return Fail(call.Error(fmt::format("equation '{}': label '{}' is {} and {}", text,
                                           labels[k], it->second, extent)));
      }
      if (other.find(labels[k]) == std::string::npos &&
          eq.result.find(labels[k]) == std::string::npos) {
        return Fail(call.Error(fmt::format(
            "equation '{}': label '{}' is in one operand only; use reduce_sum", text, labels[k])));
      }
    }
  }
  MW_ASSIGN_OR_RETURN(const DType dtype, call.ResultDType(call.operands[0].dtype));
  TensorType result{dtype, {}};
  for (char label : eq.result) {
    const auto it = extents.find(label);
    if (it == extents.end()) {
      return Fail(
          call.Error(fmt::format("equation '{}': label '{}' is in no operand", text, label)));
    }
    result.dims.push_back(it->second);
  }
  MW_TRY(call.RequireAccumulator(2, result));
  return std::vector<TensorType>{result};
}

FactorRule EinsumRule(const NodeTypes& node) {
  const Equation eq = EquationOf(node.attrs);
  const bool accumulates = node.operands.size() > 2;
  RuleBuilder rule(node);
  std::map<char, FactorIndex> factors;
  const auto lay_out = [&](const std::string& labels, const Dims& dims) {
    std::vector<FactorIndex> list;
    for (size_t i = 0; i < labels.size(); ++i) {
      const bool whole = accumulates && eq.result.find(labels[i]) == std::string::npos;
      if (!factors.count(labels[i])) {
        factors[labels[i]] = whole ? rule.AddWhole(dims[i]) : rule.Add(dims[i]);
      }
      list.push_back(factors[labels[i]]);
    }
    return list;
  };
  rule.Operand(0, lay_out(eq.a, node.operands[0].dims));
  rule.Operand(1, lay_out(eq.b, node.operands[1].dims));
  rule.Result(0, lay_out(eq.result, node.results[0].dims));
  if (accumulates) {
    rule.Operand(2, lay_out(eq.result, node.operands[2].dims));
  } else {
    rule.AllLinear();
  }
  return rule.Finish();
}

// One multiply-add per point of the iteration space.
double EinsumFlops(const NodeTypes& node) {
  const Equation eq = EquationOf(node.attrs);
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < eq.a.size(); ++i) extents[eq.a[i]] = node.operands[0].dims[i];
  for (size_t i = 0; i < eq.b.size(); ++i) extents[eq.b[i]] = node.operands[1].dims[i];
  double points = 1;
  for (const auto& [label, extent] : extents) points *= static_cast<double>(extent);
  return 2 * points;
}

// The gradient of one operand is the einsum of the other with dy, labels exchanged. Every label of
// an operand is in the other operand or in the result, so the exchanged equation is valid again.
GradsOr EinsumGrad(GradCall& call) {
  if (call.node.inputs.size() > 2) {
    return Fail(Unimplemented("einsum into an accumulator has no gradient"));
  }
  const Equation eq = EquationOf(call.node.attrs);
  Builder& b = call.builder;
  const std::string to_a = fmt::format("{},{}->{}", eq.result, eq.b, eq.a);
  const std::string to_b = fmt::format("{},{}->{}", eq.a, eq.result, eq.b);
  const ValueId dy = call.InDType(call.grads[0], call.in_type(0).dtype);
  const ValueId da = b.AddOne(Op::kEinsum, {dy, call.in(1)}, {{"equation", to_a}});
  const ValueId db = b.AddOne(Op::kEinsum, {call.in(0), dy}, {{"equation", to_b}});
  return std::vector<ValueId>{da, db};
}

}  // namespace

void AddContractionSchemas(SchemaTable& table) {
  Row(table, Op::kEinsum) = {InferEinsum, EinsumRule, EinsumFlops, nullptr, EinsumGrad};
  Row(table, Op::kEinsum).accumulator = Accumulator{0, 2};
}

}  // namespace meshwright::ir
