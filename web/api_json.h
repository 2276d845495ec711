// What /api/v1 answers, and what the stream tells, as JSON: objects of report/views_json.h, and the
// ones that only the page has. web/pages/openapi.json says what each field means.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/store.h"
#include "proto/views.h"
#include "web/cluster.h"
#include "web/curves.h"
#include "web/history.h"

namespace meshwright::web {

// {"workers":{"READY":2},"jobs":{"RUNNING":1},"devices":4,"busy_devices":2}
std::string TotalsJson(const ClusterState& state);
std::string JobsJson(const std::vector<proto::JobInfo>& jobs);
std::string WorkersJson(const std::vector<proto::WorkerInfo>& workers);

// A worker as a tile of the page: [name, state, devices, busy_devices, host, note].
std::string WorkerTileJson(const proto::WorkerInfo& worker);
std::string WorkerTilesJson(const std::vector<proto::WorkerInfo>& workers);

struct JobDetail {
  proto::JobInfo info;
  controller::JobStory story;
};
// A job with "runs", "recoveries", "devices", "device_memory_bytes" and "device_budget_bytes".
std::string JobDetailJson(const JobDetail& job);
// A worker with "note"; "jobs", one for each of its devices; "runs": what devices have been given.
std::string WorkerDetailJson(const proto::WorkerInfo& worker, const std::vector<int64_t>& jobs,
                             const std::vector<controller::DeviceRun>& runs);

// {"columns":["step",...],"rows":[[0,...],...]}
std::string CurveJson(const Curves::View& view);
std::string StepsJson(int64_t job, const std::vector<proto::StepMetrics>& steps);
std::string HistoryJson(const std::vector<Sample>& samples);
std::string EventsJson(const std::vector<controller::EventRecord>& events);

// {"lines":["..."]} of a text, but for a first line that is cut.
std::string LinesJson(const std::string& text, bool first_is_cut);

std::string WorkerLogJson(const controller::LogAnswer& log);

struct OverviewParts {
  std::string role;
  std::string version;
  bool tokens = false;  // that the page wants
  const ClusterState* state = nullptr;
  const std::vector<controller::EventRecord>* events = nullptr;
  size_t most_jobs = 0;  // the newest
};
std::string OverviewJson(const OverviewParts& parts);

// {"name":"value"}, in this order.
std::string SettingsJson(const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace meshwright::web
