// Experts: slots of tokens, dispatch to them and back, products of one matrix per expert.
//
// A row of the batch is routed by itself, so that neither rows nor microbatches nor replicas change
// what is kept of a token. Slots stand in groups of neighbouring experts; the experts of a group
// have a run each, one behind the other (ops/expert_runs.h). Beside what ir/op.h says,
// grouped_matmul may be {alone:int(0|1)}, as an einsum may.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

constexpr int64_t kMostExperts = 1 << 16;
constexpr int64_t kMostSlots = INT32_MAX;

// Choices have one dim more where the tokens of a row lie on several hosts.
constexpr int kOnHosts = 4;

// [b, s, k] of i32, or [b, h, s, k].
Status RequirePerChoice(const OpCall& call, size_t operand) {
  if (call.operands[operand].rank() != kOnHosts) MW_TRY(call.RequireRank(operand, 3));
  if (call.operands[operand].dtype == DType::kI32) return OkStatus();
  return call.Error(fmt::format("operand {} must be i32[rows, [hosts], tokens, choices]", operand));
}

int64_t HostsOf(const Dims& choices) {
  return choices.size() == static_cast<size_t>(kOnHosts) ? choices[1] : 1;
}

Status RequireAlike(const OpCall& call, size_t x, size_t at, size_t dims);

// Operand `x` must be [b, [h], s, d], or [b, [h], s, k], for the choices `at`.
Status RequireOfTokens(const OpCall& call, size_t x, size_t at) {
  const int rank = call.operands[at].rank();
  MW_TRY(call.RequireRank(x, rank));
  return RequireAlike(call, x, at, static_cast<size_t>(rank - 1));
}
Status RequireOfChoices(const OpCall& call, size_t x, size_t at) {
  MW_TRY(call.RequireFloat(x));
  MW_TRY(RequireOfTokens(call, x, at));
  return RequireAlike(call, x, at, call.operands[at].dims.size());
}

// Operand `x` must be as long as `at` in the first `dims` dims.
Status RequireAlike(const OpCall& call, size_t x, size_t at, size_t dims) {
  const Dims& a = call.operands[x].dims;
  const Dims& b = call.operands[at].dims;
  if (std::equal(a.begin(), a.begin() + static_cast<ptrdiff_t>(dims), b.begin())) {
    return OkStatus();
  }
  return call.Error(fmt::format("operands {} and {} must agree in {} dims", x, at, dims));
}

// Of slots, where a token goes that is sent once to each host.
TypesOr InferHostPlaces(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireRank(0, 3));
  MW_TRY(RequirePerChoice(call, 0));
  MW_ASSIGN_OR_RETURN(const int64_t groups, call.IntIn("groups", 1, kMostExperts));
  MW_ASSIGN_OR_RETURN(const int64_t hosts, call.IntIn("hosts", 1, groups));
  if (groups % hosts != 0) return Fail(call.Error("hosts must divide groups"));
  MW_TRY(call.IntIn("capacity", 1, kMostSlots / groups));
  MW_ASSIGN_OR_RETURN(const int64_t places, call.IntIn("host_capacity", 1, kMostSlots / hosts));
  const Dims& dims = call.operands[0].dims;
  return std::vector<TensorType>{{DType::kI32, {dims[0], dims[1], hosts}},
                                 {DType::kI32, {dims[0], hosts, places, dims[2]}},
                                 {DType::kI32, {dims[0], hosts}}};
}

// Scores, of the shape of the choices, say which choices of an expert have room first.
TypesOr InferExpertSlots(const OpCall& call) {
  if (call.attrs.Has("hosts")) return InferHostPlaces(call);
  MW_TRY(call.RequireOperandsOrOneMore(1));
  MW_TRY(RequirePerChoice(call, 0));
  if (call.operands.size() > 1) {
    MW_TRY(call.RequireFloat(1));
    MW_TRY(call.RequireRank(1, 3));
    MW_TRY(RequireAlike(call, 1, 0, 3));
  }
  MW_ASSIGN_OR_RETURN(const int64_t experts, call.IntIn("experts", 1, kMostExperts));
  MW_ASSIGN_OR_RETURN(const int64_t groups, call.IntIn("groups", 1, experts));
  if (experts % groups != 0) return Fail(call.Error("groups must divide experts"));
  MW_TRY(call.IntIn("capacity", 1, kMostSlots / groups));
  const Dims& dims = call.operands[0].dims;
  const TensorType per_expert{DType::kI32, {dims[0], experts}};
  return std::vector<TensorType>{call.operands[0], per_expert, per_expert};
}

TypesOr InferDispatch(const OpCall& call) {
  if (call.operands.size() != 2) MW_TRY(call.RequireOperands(3));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(RequirePerChoice(call, 1));
  MW_TRY(RequireOfTokens(call, 0, 1));
  if (call.operands.size() == 3) MW_TRY(RequireOfChoices(call, 2, 1));
  MW_ASSIGN_OR_RETURN(const int64_t groups, call.IntIn("groups", 1, kMostExperts));
  const int64_t hosts = HostsOf(call.operands[1].dims);
  MW_ASSIGN_OR_RETURN(const int64_t capacity,
                      call.IntIn("capacity", 1, kMostSlots / groups / hosts));
  const TensorType& x = call.operands[0];
  return std::vector<TensorType>{{x.dtype, {x.dims[0], hosts * groups, capacity, x.dims.back()}}};
}

// y [b, G, C, d] is operand `y`, slot [b, [h], s, k] operand `slot`.
Status CheckSlots(const OpCall& call, size_t y, size_t slot) {
  MW_TRY(call.RequireFloat(y));
  MW_TRY(call.RequireRank(y, 4));
  MW_TRY(RequirePerChoice(call, slot));
  if (call.operands[y].dims[1] % HostsOf(call.operands[slot].dims) != 0) {
    return call.Error("hosts must divide the groups of slots");
  }
  return RequireAlike(call, y, slot, 1);
}

// What a slot is of for the choices: [b, [h], s, width].
Dims OfTokens(const Dims& choices, int64_t width) {
  Dims dims = choices;
  dims.back() = width;
  return dims;
}

TypesOr InferCombine(const OpCall& call) {
  if (call.operands.size() != 2) MW_TRY(call.RequireOperands(3));
  MW_TRY(CheckSlots(call, 0, 1));
  const TensorType& y = call.operands[0];
  if (call.operands.size() == 3) MW_TRY(RequireOfChoices(call, 2, 1));
  return std::vector<TensorType>{{y.dtype, OfTokens(call.operands[1].dims, y.dims[3])}};
}

TypesOr InferCombineGradWeights(const OpCall& call) {
  MW_TRY(call.RequireOperands(3));
  MW_TRY(CheckSlots(call, 1, 2));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(RequireOfTokens(call, 0, 2));
  if (call.operands[0].dims.back() != call.operands[1].dims[3]) {
    return Fail(call.Error("dy and y must have one width"));
  }
  MW_ASSIGN_OR_RETURN(const DType dtype, call.ResultDType(call.operands[0].dtype));
  return std::vector<TensorType>{{dtype, call.operands[2].dims}};
}

// x [b, G, C, d] and counts [b, E]: as many experts in each group.
Status CheckRuns(const OpCall& call, size_t x, size_t counts) {
  MW_TRY(call.RequireFloat(x));
  MW_TRY(call.RequireRank(x, 4));
  MW_TRY(call.RequireRank(counts, 2));
  if (call.operands[counts].dtype != DType::kI32) return call.Error("counts must be i32");
  MW_TRY(RequireAlike(call, x, counts, 1));
  if (call.operands[counts].dims[1] % call.operands[x].dims[1] != 0) {
    return call.Error("groups must divide experts");
  }
  return OkStatus();
}

TypesOr InferGroupedMatmul(const OpCall& call) {
  MW_TRY(call.RequireOperands(3));
  MW_TRY(CheckRuns(call, 0, 1));
  MW_TRY(call.RequireRank(2, 3));
  const TensorType& x = call.operands[0];
  const TensorType& w = call.operands[2];
  const bool transposed = call.attrs.Int("transposed") != 0;
  if (w.dtype != x.dtype || w.dims[0] != call.operands[1].dims[1] ||
      w.dims[transposed ? 2 : 1] != x.dims[3]) {
    return Fail(call.Error("weights must be [experts, d, f], or transposed [experts, f, d]"));
  }
  TensorType result = x;
  result.dims[3] = w.dims[transposed ? 1 : 2];
  return std::vector<TensorType>{result};
}

TypesOr InferGroupedMatmulGrad(const OpCall& call) {
  MW_TRY(call.RequireOperandsOrOneMore(3));
  MW_TRY(CheckRuns(call, 0, 1));
  MW_TRY(CheckRuns(call, 2, 1));
  MW_TRY(RequireAlike(call, 0, 2, 3));
  const TensorType& x = call.operands[0];
  const TensorType& dy = call.operands[2];
  MW_ASSIGN_OR_RETURN(const DType dtype, call.ResultDType(dy.dtype));
  const TensorType result{dtype, {call.operands[1].dims[1], x.dims[3], dy.dims[3]}};
  MW_TRY(call.RequireAccumulator(3, result));
  return std::vector<TensorType>{result};
}

// ---- Factors ------------------------------------------------------------------------------------

FactorRule HostPlacesRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& within = node.results[1].dims;
  const FactorIndex b = rule.Add(within[0]);
  const FactorIndex s = rule.AddWhole(node.operands[0].dims[1]);
  const FactorIndex k = rule.AddWhole(within[3]);
  const FactorIndex hosts = rule.AddWhole(within[1]);
  rule.Operand(0, {b, s, k});
  rule.Result(0, {b, s, hosts});
  rule.Result(1, {b, hosts, rule.AddWhole(within[2]), k});
  rule.Result(2, {b, hosts});
  return rule.Finish();
}

// Which slot a token gets depends on all tokens of its row.
FactorRule ExpertSlotsRule(const NodeTypes& node) {
  if (node.attrs.Has("hosts")) return HostPlacesRule(node);
  RuleBuilder rule(node);
  const Dims& dims = node.operands[0].dims;
  const FactorIndex b = rule.Add(dims[0]);
  const std::vector<FactorIndex> choices = {b, rule.AddWhole(dims[1]), rule.AddWhole(dims[2])};
  for (size_t i = 0; i < node.operands.size(); ++i) rule.Operand(i, choices);
  rule.Result(0, choices);
  const FactorIndex experts = rule.AddWhole(node.results[1].dims[1]);
  for (size_t r = 1; r < 3; ++r) rule.Result(r, {b, experts});
  return rule.Finish();
}

// Of [b, s, k], [b, s, d] and [b, G, C, d]; with hosts of [b, h, s, k], [b, h, s, d] and [b, h G,
// C, d].
struct SlotFactors {
  FactorIndex b, s, k, d, g, c;
  std::vector<FactorIndex> hosts;  // none or one
  SlotFactors(RuleBuilder& rule, const Dims& choices, const Dims& slots)
      : b(rule.Add(choices[0])),
        s(rule.Add(choices[choices.size() - 2], FactorKind::kSequence)),
        k(rule.AddWhole(choices.back())),
        d(rule.Add(slots[3])),
        g(rule.Add(slots[1] / HostsOf(choices))),
        c(rule.AddWhole(slots[2])) {
    if (choices.size() == static_cast<size_t>(kOnHosts)) hosts.push_back(rule.Add(choices[1]));
  }
  TensorFactors OfChoices() const { return PerToken(k); }
  TensorFactors OfTokens() const { return PerToken(d); }
  TensorFactors OfSlots() const {
    DimFactors groups = hosts;
    groups.push_back(g);
    return {{b}, groups, {c}, {d}};
  }

 private:
  TensorFactors PerToken(FactorIndex last) const {
    TensorFactors dims = {{b}, {s}, {last}};
    if (!hosts.empty()) dims.insert(dims.begin() + 1, hosts);
    return dims;
  }
};

FactorRule DispatchRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const SlotFactors of(rule, node.operands[1].dims, node.results[0].dims);
  rule.OperandDims(0, of.OfTokens());
  for (size_t i = 1; i < node.operands.size(); ++i) rule.OperandDims(i, of.OfChoices());
  rule.ResultDims(0, of.OfSlots());
  rule.Linear(0);
  return rule.Finish();
}

FactorRule CombineRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const SlotFactors of(rule, node.operands[1].dims, node.operands[0].dims);
  rule.OperandDims(0, of.OfSlots());
  for (size_t i = 1; i < node.operands.size(); ++i) rule.OperandDims(i, of.OfChoices());
  rule.ResultDims(0, of.OfTokens());
  rule.Linear(0);
  return rule.Finish();
}

FactorRule CombineGradWeightsRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const SlotFactors of(rule, node.operands[2].dims, node.operands[1].dims);
  rule.OperandDims(0, of.OfTokens());
  rule.OperandDims(1, of.OfSlots());
  rule.OperandDims(2, of.OfChoices());
  rule.ResultDims(0, of.OfChoices());
  rule.Linear(0);
  return rule.Finish();
}

// Of [b, G, C, d], [b, E], [E, d, f] and [b, G, C, f]; the E experts are those of G groups.
struct RunFactors {
  FactorIndex b, g, e, c, d, f;
  RunFactors(RuleBuilder& rule, const Dims& x, int64_t experts, int64_t width,
             FactorKind rows = FactorKind::kParallel)
      : b(rule.Add(x[0], rows)),
        g(rule.Add(x[1])),
        e(rule.AddWhole(experts / x[1])),
        c(rule.AddWhole(x[2])),
        d(rule.Add(x[3])),
        f(rule.Add(width)) {}
  TensorFactors OfSlots(FactorIndex width) const { return {{b}, {g}, {c}, {width}}; }
  TensorFactors OfCounts() const { return {{b}, {g, e}}; }
  TensorFactors OfWeights(bool transposed) const {
    return transposed ? TensorFactors{{g, e}, {f}, {d}} : TensorFactors{{g, e}, {d}, {f}};
  }
};

FactorRule GroupedMatmulRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const RunFactors of(rule, node.operands[0].dims, node.operands[1].dims[1],
                      node.results[0].dims[3]);
  rule.OperandDims(0, of.OfSlots(of.d));
  rule.OperandDims(1, of.OfCounts());
  rule.OperandDims(2, of.OfWeights(node.attrs.Int("transposed") != 0));
  rule.ResultDims(0, of.OfSlots(of.f));
  return rule.Finish();
}

FactorRule GroupedMatmulGradRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const bool accumulates = node.operands.size() > 3;
  const RunFactors of(rule, node.operands[0].dims, node.operands[1].dims[1],
                      node.operands[2].dims[3],
                      accumulates ? FactorKind::kWhole : FactorKind::kParallel);
  rule.OperandDims(0, of.OfSlots(of.d));
  rule.OperandDims(1, of.OfCounts());
  rule.OperandDims(2, of.OfSlots(of.f));
  if (accumulates) rule.OperandDims(3, of.OfWeights(false));
  rule.ResultDims(0, of.OfWeights(false));
  return rule.Finish();
}

// ---- Costs --------------------------------------------------------------------------------------

// Rows of slots that are used on average: {rows} of each row of the batch, in {groups} groups.
double UsedRows(const NodeTypes& node, size_t slots) {
  const Dims& dims = node.operands[slots].dims;
  const auto all = static_cast<double>(dims[0] * dims[1] * dims[2]);
  const double rows = static_cast<double>(dims[0] * node.attrs.Int("rows")) *
                      static_cast<double>(dims[1]) /
                      static_cast<double>(std::max<int64_t>(1, node.attrs.Int("groups")));
  return rows > 0 ? std::min(all, rows) : all;
}

double GroupedMatmulFlops(const NodeTypes& node) {
  const auto pairs = static_cast<double>(node.operands[0].dims[3] * node.results[0].dims[3]);
  return 2.0 * UsedRows(node, 0) * pairs;
}
double GroupedMatmulGradFlops(const NodeTypes& node) {
  const auto pairs = static_cast<double>(node.operands[0].dims[3] * node.operands[2].dims[3]);
  return 2.0 * UsedRows(node, 0) * pairs;
}
double CombineFlops(const NodeTypes& node) {
  return 2.0 * static_cast<double>(node.operands[1].elements() * node.results[0].dims.back());
}
double CombineGradWeightsFlops(const NodeTypes& node) {
  return 2.0 * static_cast<double>(node.operands[2].elements() * node.operands[0].dims.back());
}

// ---- Gradients ----------------------------------------------------------------------------------

// Each row of x went to its slots: dx adds them up.
GradsOr DispatchGrad(GradCall& call) {
  MW_CHECK(call.grads.size() == 1) << "dispatch has one result";
  if (call.node.inputs.size() > 2) {
    return Fail(Unimplemented("dispatch with weights has no gradient"));
  }
  return std::vector<ValueId>{call.builder.AddOne(Op::kCombine, {call.grads[0], call.in(1)}),
                              ValueId()};
}

GradsOr CombineGrad(GradCall& call) {
  MW_CHECK(call.grads.size() == 1) << "combine has one result";
  std::vector<ValueId> grads(call.node.inputs.size());
  const TensorType y = call.in_type(0);
  std::vector<ValueId> operands = {call.grads[0], call.in(1)};
  if (grads.size() > 2) operands.push_back(call.in(2));
  if (call.Wants(0)) {
    const int64_t hosts = HostsOf(call.in_type(1).dims);
    grads[0] = call.builder.AddOne(Op::kDispatch, operands,
                                   {{"groups", y.dims[1] / hosts}, {"capacity", y.dims[2]}});
  }
  if (grads.size() > 2 && call.Wants(2)) {
    // Weights may be f32 where what they weigh is of 16 bits.
    Attrs attrs;
    const DType dtype = call.in_type(2).dtype;
    if (dtype != call.builder.type(call.grads[0]).dtype) {
      attrs.Set("dtype", std::string(DTypeName(dtype)));
    }
    grads[2] = call.builder.AddOne(Op::kCombineGradWeights, {call.grads[0], call.in(0), call.in(1)},
                                   attrs);
  }
  return grads;
}

GradsOr GroupedMatmulGradient(GradCall& call) {
  MW_CHECK(call.grads.size() == 1) << "grouped_matmul has one result";
  std::vector<ValueId> grads(3);
  const bool transposed = call.node.attrs.Int("transposed") != 0;
  Attrs attrs = call.node.attrs;
  if (call.Wants(0)) {
    attrs.Set("transposed", int64_t{transposed ? 0 : 1});
    grads[0] =
        call.builder.AddOne(Op::kGroupedMatmul, {call.grads[0], call.in(1), call.in(2)}, attrs);
  }
  if (call.Wants(2)) {
    attrs.Set("transposed", int64_t{0});
    const ValueId x = transposed ? call.grads[0] : call.in(0);
    const ValueId dy = transposed ? call.in(0) : call.grads[0];
    grads[2] = call.builder.AddOne(Op::kGroupedMatmulGrad, {x, call.in(1), dy}, attrs);
  }
  return grads;
}

}  // namespace

void AddExpertSchemas(SchemaTable& table) {
  Row(table, Op::kExpertSlots) = {InferExpertSlots, ExpertSlotsRule, NoFlops, nullptr, nullptr, 3};
  Row(table, Op::kDispatch) = {InferDispatch, DispatchRule, NoFlops, nullptr, DispatchGrad};
  Row(table, Op::kDispatch).position = Positioned{true, 0, 1};
  Row(table, Op::kCombine) = {InferCombine, CombineRule, CombineFlops, nullptr, CombineGrad};
  Row(table, Op::kCombine).position = Positioned{false, 0, 1};
  Row(table, Op::kCombineGradWeights) = {InferCombineGradWeights, CombineGradWeightsRule,
                                         CombineGradWeightsFlops};
  Row(table, Op::kCombineGradWeights).position = Positioned{false, 1, 1};
  Row(table, Op::kGroupedMatmul) = {InferGroupedMatmul, GroupedMatmulRule, GroupedMatmulFlops,
                                    nullptr, GroupedMatmulGradient};
  Row(table, Op::kGroupedMatmulGrad) = {InferGroupedMatmulGrad, GroupedMatmulGradRule,
                                        GroupedMatmulGradFlops};
  Row(table, Op::kGroupedMatmulGrad).accumulator = Accumulator{0, 3};
}

}  // namespace meshwright::ir
