// Why a job's step takes as long as it does: each part of it beside the plan's forecast, and what
// neighbouring plans would change, by forecast.
//
// Neighbours differ from the job's own plan in one thing: twice or half the microbatches, another
// schedule, nothing recomputed, one device group doubled and another halved, or everything left to
// the search; what else the job leaves open is decided anew. Their forecasts are of the same cost
// model as the plan's, so that the two compare, and of the profile that steps have shown, where it
// is known.
//
// Thread rule: pure functions but for the deadline's clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "report/step_spans.h"

namespace meshwright::report {

// A change of one pin of the layout, or of several.
struct Neighbour {
  std::string text;  // "parallelism.pipeline_parallel_microbatches = 8"
  ir::ParallelSpec parallel;
};
// Those that differ from the layout of the plan. At most a dozen.
std::vector<Neighbour> NeighboursOf(const ir::JobRequest& job, const planner::Layout& layout);

struct Advice {
  std::string text;
  std::string layout;
  double step_s = 0;  // forecast
  int64_t memory_bytes = 0;
};
struct AdviceOptions {
  int64_t timeout_ms = 8'000;  // of all neighbours together
  size_t most = 3;
  std::function<bool()> gone = nullptr;  // true: nobody wants it any longer; it ends soon
};
// Those whose forecast is faster than `plan_s`, the fastest first.
std::vector<Advice> FindAdvice(const ir::JobRequest& job, const planner::Layout& layout,
                               const mesh::Topology& topology, double plan_s,
                               const AdviceOptions& options, const Clock& clock);

struct WhyFigures {
  std::string job;
  ir::StepRange steps;  // from 0; shown from 1
  StepParts forecast;
  MeasuredParts measured;
  double checkpoint_s = 0;  // that devices stood still for saves, per step between them
  int64_t saves = 0;        // that it is from
  std::vector<Advice> advice;
  std::string layout = {};     // of the plan
  double advice_from_s = 0;    // its forecast, that advice is compared with
  std::string profile_note;    // of the devices, or empty
  int64_t clock_error_ns = 0;  // the largest of two hosts' errors together; 0: there is one host
};

// About ten lines.
std::string FormatWhy(const WhyFigures& figures);
std::string WhyJson(const WhyFigures& figures);

}  // namespace meshwright::report
