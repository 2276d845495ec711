// A plan as text at its full length: every param, the order of each stage. FormatPlan
// (planner/plan.h) folds what is equal, for a screen.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/plan.h"

namespace meshwright::planner {

// As FormatPlan, with nothing folded.
std::string FormatWholePlan(const Plan& plan, bool with_programs, const std::string& reasons = "");

// "0-2,5" of 0, 1, 2 and 5; numbers that follow each other are a range.
std::string FormatRanges(std::span<const int64_t> numbers);

// A row of the table of params.
struct ParamRow {
  std::string name;    // "transformer.h.{0-11}.ln_1.{weight,bias}"
  std::string stages;  // "0-3", "0,3"
  std::string sharding;
  friend bool operator==(const ParamRow&, const ParamRow&) = default;
};

// A row for each param.
std::vector<ParamRow> ParamRows(const Plan& plan);
// A row for params that differ only in the number of their layer, and in the stage that follows
// from it; and of these one for names that differ only in the last part. In the order of the first
// of each.
std::vector<ParamRow> FoldedParamRows(const Plan& plan);

}  // namespace meshwright::planner
