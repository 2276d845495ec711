// What a job's newest recorded steps show, beside its plan's forecast: for its metrics.
//
// Thread rule: a value.
#pragma once

#include <map>
#include <string>

#include "base/ids.h"

namespace meshwright::controller {

// Seconds of a step; by part as report/step_spans.h names them.
struct StepFigures {
  JobId job{0};
  double forecast_s = 0;
  double measured_s = 0;
  std::map<std::string, double> forecast_parts;
  std::map<std::string, double> measured_parts;
};

}  // namespace meshwright::controller
