// A chat template, parsed.
//
// Thread rule: immutable once parsed; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/template_value.h"

namespace meshwright::tokenizer {

struct Expression;
using ExpressionRef = std::unique_ptr<const Expression>;
struct Statement;
using StatementRef = std::unique_ptr<const Statement>;
using Body = std::vector<StatementRef>;

struct TemplateFilter;
struct TemplateTest;

enum class ExpressionKind : uint8_t {
  kConstant,  // value
  kName,      // name
  kList,      // parts
  kTuple,     // parts
  kDict,      // parts: keys and values in turn
  kMember,    // parts[0].name
  kItem,      // parts[0][parts[1]]
  kSlice,     // parts[0][parts[1] : parts[2] : parts[3]], null where it is left out
  kCall,      // parts[0](parts[1..], named)
  kFilter,    // parts[0] | filter(parts[1..], named); null parts[0]: of a block
  kTest,      // parts[0] is test(parts[1..], named)
  kNot,
  kNegative,
  kPositive,
  kBinary,  // parts[0] name parts[1]
  kConcat,  // parts, as one text
  kAnd,
  kOr,
  kCompare,      // parts[0] operators[0] parts[1] operators[1] ..
  kConditional,  // parts[1] if parts[0] else parts[2], which may be null
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 1;
  std::string name;
  Value value;
  std::vector<ExpressionRef> parts;
  std::vector<std::pair<std::string, ExpressionRef>> named;
  std::vector<std::string> operators;
  const TemplateFilter* filter = nullptr;
  const TemplateTest* test = nullptr;
};

enum class StatementKind : uint8_t {
  kData,        // text
  kOutput,      // expression
  kIf,          // expression, body, otherwise
  kFor,         // targets in expression if condition, body, otherwise
  kSet,         // targets = expression
  kSetBlock,    // targets = body, through the filters of expression
  kMacro,       // name(targets, defaults), body
  kFilter,      // body through the filters of expression
  kGeneration,  // body, which is what an assistant says
  kBreak,
  kContinue,
};

// What is assigned to: a name, or a member of a namespace.
struct Target {
  std::string name;
  std::string member;  // "" for the name itself
};

struct Statement {
  StatementKind kind = StatementKind::kData;
  int line = 1;
  std::string text;
  std::vector<Target> targets;  // several: what is assigned has as many items
  bool unpacks = false;         // "a," has one target and unpacks
  ExpressionRef expression;
  ExpressionRef condition;
  Body body;
  Body otherwise;
  std::vector<ExpressionRef> defaults;  // of the last parameters of a macro
};

}  // namespace meshwright::tokenizer
