// RunRecord: what is on disk of a job's newest run, so that the next controller can take it up.
//
// It is written with the generation of the run's mesh, once, before anyone is told of it; nothing
// of it changes while the run goes on. What changes with every launch is known to the workers that
// carry it out. Thread rule: values, pure functions.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "controller/events.h"
#include "controller/run.h"
#include "ir/checkpoint_spec.h"

namespace meshwright::controller {

struct RunRecord {
  int number = 0;  // within its job
  MeshGeneration gen{0};
  std::string kind;              // of its devices
  std::vector<RankPlace> ranks;  // by rank of the plan
  ir::StartPoint start;
  PlannedJob plan;
  std::set<std::string> keepers = {};  // workers beside its own that have copies of its snapshots
  std::optional<SeatedPlan> larger = {};  // that the job returns to
};

// Text of one line.
std::string FormatRunRecord(const RunRecord& run);
// Errors: kDataLoss: it is none, or ranks and plan do not fit.
Result<RunRecord> ParseRunRecord(const std::string& text);

}  // namespace meshwright::controller
