// Sources: nodes without operands.
#include <fmt/format.h>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TypesOr InferDeclaredSource(const OpCall& call) {
  MW_TRY(call.RequireOperands(0));
  MW_TRY(call.RequireDeclared(1));
  MW_TRY(call.RequireShardedRank(call.declared[0].rank()));
  return std::vector<TensorType>{call.declared[0]};
}

TypesOr InferFloatSource(const OpCall& call) {
  MW_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferDeclaredSource(call));
  if (!IsFloating(types[0].dtype)) {
    return Fail(call.Error(fmt::format("must be floating point, is {}", types[0].ToString())));
  }
  return types;
}

Status CheckInit(const OpCall& call) {
  const std::string init = call.attrs.Str("init", "zeros");
  for (const char* known : {"normal", "uniform", "zeros", "ones"}) {
    if (init == known) return OkStatus();
  }
  return call.Error(fmt::format("\"{}\" has init \"{}\"; known: normal, uniform, zeros, ones",
                                call.attrs.Str("name"), init));
}

TypesOr InferNamed(const OpCall& call) {
  if (call.attrs.Str("name").empty()) return Fail(call.Error("needs a non-empty 'name'"));
  if (call.op == Op::kParam) MW_TRY(CheckInit(call));
  return call.op == Op::kInput ? InferDeclaredSource(call) : InferFloatSource(call);
}

TypesOr InferFeed(const OpCall& call) {
  if (call.attrs.Str("source").empty()) return Fail(call.Error("needs a non-empty 'source'"));
  MW_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferDeclaredSource(call));
  if (call.attrs.Int("batch", 1) != 0 && types[0].rank() == 0) {
    return Fail(call.Error(fmt::format(
        "is {}, which has no rows; give it a first dim for the batch, or the attribute batch=0",
        types[0].ToString())));
  }
  return types;
}

FactorRule SourceRule(const NodeTypes& node) { return SuffixRule(node).Finish(); }

GradsOr NoInputs(GradCall&) { return std::vector<ValueId>{}; }

}  // namespace

bool IsBatchFeed(const Node& feed) { return feed.attrs.Int("batch", 1) != 0; }

void AddSourceSchemas(SchemaTable& table) {
  Row(table, Op::kParam) = {InferNamed, SourceRule, NoFlops, NoFlops, NoInputs};
  Row(table, Op::kInput) = {InferNamed, SourceRule, NoFlops, NoFlops, NoInputs};
  Row(table, Op::kFeed) = {InferFeed, SourceRule, NoFlops, nullptr, NoInputs};
  Row(table, Op::kConstant) = {InferFloatSource, SourceRule, NoFlops, nullptr, NoInputs};
  Row(table, Op::kRandomNormal) = {InferNamed, SourceRule, nullptr, nullptr, NoInputs};
  for (const Op op : {Op::kFeed, Op::kRandomNormal}) Row(table, op).position = Positioned{true, 0};
}

}  // namespace meshwright::ir
