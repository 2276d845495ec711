// Recorded steps for people: as a Chrome trace, in the rows and under the names of a forecast's
// (report/forecast_trace.h), and as a table of what took longest.
//
// In a RUN's event lie its nodes; a message is tied to its receipt by a flow; checkpoints have a
// process of their own. Steps are numbered from 1, as the lines of a job are. "otherData" says what
// each host's clock was ahead and to what error.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "report/recorded_run.h"
#include "report/step_spans.h"

namespace meshwright::report {

// Viewers of JSON become slow above that.
inline constexpr size_t kMostTraceBytes = size_t{64} << 20;

// REQUIRES steps. Errors: kResourceExhausted: above kMostTraceBytes; fewer steps at once.
Result<std::string> StepTrace(const planner::Plan& plan, const RecordedRun& run,
                              const std::vector<RecordedStep>& steps, const std::string& job);

// The longest `most` names with calls, seconds as measured and by forecast.
std::string FormatLongest(const std::vector<NamedSeconds>& names,
                          const std::vector<RecordedStep>& steps, size_t most = 25);
// All of them, as JSON.
std::string LongestJson(const std::vector<NamedSeconds>& names,
                        const std::vector<RecordedStep>& steps);

}  // namespace meshwright::report
