// Scalars of a report by name.
//
// Thread rule: pure functions.
#pragma once

#include <limits>
#include <map>
#include <string>

#include "proto/messages.h"

namespace meshwright::controller {

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

double ValueOr(const std::map<std::string, double>& values, const std::string& name,
               double fallback);

// The record of a training step. What every step reports has a field of its own, the rest is the
// job's.
proto::StepMetrics MetricsOf(const proto::StepReport& report);

}  // namespace meshwright::controller
