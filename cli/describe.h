// Everything of a job on one screen.
//
//   job 3 gpt-bytes RUNNING  step 120 of 600 (20 %)
//     owner      ann@alpha
//     time       submitted 2026-11-27 05:30:22, started 0.7 s later, runs for 42 s; 2m48s left
//     loss       2.3120, 57.2 ms a step, 36,100 tokens/s
//     layout     data=2 tensor=1 pipeline=1 ...
//     devices    2 of 2 workers, 62.14 MiB of 19.00 GiB on the fullest
//     ...
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "client/client.h"

namespace meshwright::cli {

struct JobStory {
  client::JobInfo info;
  ir::JobRequest request;           // what was asked for; without programs: not known any more
  std::vector<std::string> events;  // all of them, oldest first
};

// Keys whose value is not the default, by their names, from the resolved configuration of a job.
// What follows from another key is left out. Errors: it is no job file of this version.
Result<std::vector<std::pair<std::string, std::string>>> ChangedKeys(
    const std::string& config_text);

// most_events: so many of the last.
std::string FormatDescription(const JobStory& story, int64_t most_events, int64_t now_unix_ms,
                              bool color);
std::string DescriptionJson(const JobStory& story, int64_t most_events, int64_t now_unix_ms);

}  // namespace meshwright::cli
