// A run as spans of OpenTelemetry, for the systems that people look at requests in: the job, how
// long it waited, and its steps, in the JSON of OTLP/HTTP.
//
//   trace  the job: its id is made of the job's number, name and beginning, so that it is the same
//          whenever it is written
//   spans  "job NAME" > "queued", "step" (meshwright.step from 1, .loss, .tokens, ...)
// A line is one request, of at most kSpansOfLine spans: a collector reads the file as it is
// (otlpjsonfile), or takes each line at /v1/traces.
//
// The controller keeps no time of a step: as in event files a step ends when the job began plus the
// seconds of its steps so far.
//
// Thread rule: pure. Source: OpenTelemetry Protocol 1.1, "JSON Protobuf Encoding".
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/client.h"
#include "report/run_records.h"

namespace meshwright::report {

inline constexpr size_t kSpansOfLine = 500;

std::string OtlpOf(const RunFacts& facts, const std::vector<client::StepMetrics>& steps);

}  // namespace meshwright::report
