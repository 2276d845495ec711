// Before a job is submitted: its programs by the static verifier, and its own layout at a small
// size on emulated devices against one device.
//
// The small job (rehearsal/small_job.h) runs two steps and a validation, in f64, on as many threads
// as its layout has ranks, by the kernels that workers run, fused as they are. The one device it is
// held against runs the graph as it is written, by the kernels of ops/reference/. Both start from
// the same weights and read the same tokens, which a seed makes. After the first step gradients are
// held against one another: they are what the optimizer remembers of it.
//
// Thread rule: one call at a time needs the machine for itself; it starts a thread per rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "config/job_config.h"
#include "rehearsal/compare.h"
#include "rehearsal/small_job.h"
#include "search/find_layout.h"

namespace meshwright::rehearsal {

inline constexpr int kMostRanks = 256;  // threads of one process

struct RehearsalOptions {
  uint64_t seed = 1;
  int max_ranks = 64;
  double tolerance = 1e-10;  // of the largest entry of a tensor
  // A test's: what becomes of the small plan behind the planner's back.
  std::function<void(planner::Plan&)> tamper = {};
};

// What the static verifier went through.
struct ProgramsCheck {
  int64_t programs = 0;
  int64_t instructions = 0;
  int64_t messages = 0;  // SENDs
  bool one_per_stage = false;
};

// What a layout may do beside its degrees, and whether the small job did it, too.
struct RehearsedWay {
  std::string key;     // of [parallelism]
  std::string of_job;  // "4 chunks"
  bool rehearsed = false;
  std::string why_not;  // where it is not
};

struct Rehearsal {
  std::string layout;
  int64_t ranks = 0;
  ProgramsCheck programs;  // of the job itself
  std::vector<SmallSize> sizes;
  std::string small_model;  // its summary
  int64_t rows = 0;         // of a small step
  int64_t tokens = 0;       // of a small row
  std::vector<RehearsedWay> ways;
  std::vector<Check> checks;
  std::string broken;  // why the small job could not be compared to its end; empty: it was
  double tolerance = 0;
  double seconds = 0;
  bool equal() const;
};

// Errors: kInvalidArgument, kInternal: as ir::VerifyPrograms, naming program and instruction.
Result<ProgramsCheck> CheckPrograms(const planner::Plan& plan);

// Chunks of rows and of products, and collectives beside what computes, of the job's plan and of
// the small one.
std::vector<RehearsedWay> RehearsedWays(const planner::Plan& of_job, const planner::Plan& small);

// `found`: the plan of the job that `config` describes. A plan whose small run fails, or whose
// replicas come apart, is an answer that is not equal. Errors: those of CheckPrograms;
// kInvalidArgument: the layout has more ranks than may be emulated, naming what would fit;
// kResourceExhausted: the small job takes too much memory; kUnimplemented: nothing is trained.
Result<Rehearsal> Rehearse(const config::JobConfig& config, const config::PreparedJob& prepared,
                           const search::FoundPlan& found, const RehearsalOptions& options,
                           const Clock& clock);

// A table for people, and what differs where.
std::string FormatRehearsal(const std::string& job, const Rehearsal& rehearsal);
std::string RehearsalJson(const std::string& job, const Rehearsal& rehearsal);

}  // namespace meshwright::rehearsal
