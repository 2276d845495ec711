// Runs side by side: their losses at equal steps and at equal tokens, how fast they are, by how
// many devices, and which keys of their configurations differ.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "report/run_records.h"

namespace meshwright::report {

struct ComparedRun {
  std::string label;  // "job 3 gpt", or the folder of a file
  std::string state;  // "RUNNING"; empty: not known
  RunFacts facts;
  std::vector<client::StepMetrics> steps;
};

// The steps of a metrics.jsonl, of the controller or of `records`, or of a metrics.csv, which its
// first line tells. What is no step is left out, and
// so is a last line that is still being written. Errors: kInvalidArgument: there is no step in it.
Result<std::vector<client::StepMetrics>> ParseSteps(std::string_view text, const std::string& path);

// NaN where there is nothing to say.
struct RunFigures {
  int64_t steps = 0;
  double tokens = 0;
  double seconds = 0;
  double last_loss = 0;
  double best_loss = 0;
  int64_t best_step = -1;  // 0-based
  double last_validation = 0;
  double best_validation = 0;
  double median_step_s = 0;
  double tokens_per_s = 0;
  double tokens_per_s_and_device = 0;  // NaN: the devices are not known
};
RunFigures FiguresOf(const ComparedRun& run);

// What a quantity of all runs is at the same place: a step (1-based) or so many tokens.
struct LossesAt {
  double place = 0;
  std::vector<double> losses;  // by run
};
// At most `most` places, evenly up to where the shortest run is.
std::vector<LossesAt> LossesAtSteps(const std::vector<ComparedRun>& runs, size_t most);
std::vector<LossesAt> LossesAtTokens(const std::vector<ComparedRun>& runs, size_t most);

struct ChangedKey {
  std::string key;                  // "optimizer.lr"
  std::vector<std::string> values;  // by run, as TOML has them; "": the run lacks the key
};
// Of runs whose configuration is known, by key; others have "". Keys that only name a run or its
// files (job.name, job.description) are no change.
std::vector<ChangedKey> ChangedKeys(const std::vector<ComparedRun>& runs);

// REQUIRES: two runs or more, each with steps.
std::string FormatComparison(const std::vector<ComparedRun>& runs);
std::string ComparisonJson(const std::vector<ComparedRun>& runs);
// An SVG document: loss over steps, and over tokens; validation as points.
std::string DrawCurves(const std::vector<ComparedRun>& runs);

}  // namespace meshwright::report
