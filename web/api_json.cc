#include "web/api_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/views_json.h"

namespace meshwright::web {
namespace {

using Object = nlohmann::ordered_json;
using report::JsonText;
using report::NumberOrNull;

// All of them.
Object JobObjects(const std::vector<proto::JobInfo>& jobs) {
  Object array = Object::array();
  for (const proto::JobInfo& job : jobs) array.push_back(report::JobObject(job));
  return array;
}

// The first `most`. Ended sessions of tools, of which there may be any number, do not take the room
// of jobs.
Object JobObjects(const std::vector<proto::JobInfo>& jobs, size_t most) {
  constexpr size_t kMostSessions = 50;
  Object array = Object::array();
  size_t sessions = 0;
  for (const proto::JobInfo& job : jobs) {
    if (array.size() == most) break;
    const bool session = !job.tool.empty() && proto::IsTerminal(job.state);
    if (session && ++sessions > kMostSessions) continue;
    array.push_back(report::JobObject(job));
  }
  return array;
}

Object TotalsObject(const ClusterState& state) {
  std::map<std::string, int64_t> workers;
  std::map<std::string, int64_t> jobs;
  int64_t devices = 0;
  int64_t busy = 0;
  for (const proto::WorkerInfo& worker : state.workers) {
    ++workers[worker.state];
    if (worker.state == "LOST" || worker.state == "LEFT") continue;
    devices += worker.devices;
    busy += worker.busy_devices;
  }
  for (const proto::JobInfo& job : state.jobs) ++jobs[proto::JobStateName(job.state)];
  return {{"workers", workers}, {"jobs", jobs}, {"devices", devices}, {"busy_devices", busy}};
}

Object TileObject(const proto::WorkerInfo& worker) {
  return Object::array(
      {worker.name, worker.state, worker.devices, worker.busy_devices, worker.host, worker.note});
}

Object TileObjects(const std::vector<proto::WorkerInfo>& workers) {
  Object array = Object::array();
  for (const proto::WorkerInfo& worker : workers) array.push_back(TileObject(worker));
  return array;
}

Object EventObjects(const std::vector<controller::EventRecord>& events) {
  Object array = Object::array();
  for (const controller::EventRecord& event : events) {
    array.push_back({{"unix_ms", event.unix_ms}, {"job", event.job}, {"text", event.text}});
  }
  return array;
}

}  // namespace

std::string TotalsJson(const ClusterState& state) { return JsonText(TotalsObject(state)); }

std::string JobsJson(const std::vector<proto::JobInfo>& jobs) { return JsonText(JobObjects(jobs)); }

std::string WorkersJson(const std::vector<proto::WorkerInfo>& workers) {
  Object array = Object::array();
  for (const proto::WorkerInfo& worker : workers) array.push_back(report::WorkerObject(worker));
  return JsonText(array);
}

std::string WorkerTileJson(const proto::WorkerInfo& worker) { return JsonText(TileObject(worker)); }

std::string WorkerTilesJson(const std::vector<proto::WorkerInfo>& workers) {
  return JsonText(TileObjects(workers));
}

std::string JobDetailJson(const JobDetail& job) {
  Object object = report::JobObject(job.info);
  object["runs"] = job.story.runs;
  object["recoveries"] = job.story.recoveries;
  Object devices = Object::array();
  for (const controller::RankPlace& rank : job.story.ranks) {
    devices.push_back(Object::array({rank.worker, rank.local_device}));
  }
  object["devices"] = devices;
  object["device_memory_bytes"] = job.info.device_memory_bytes;
  object["device_budget_bytes"] = job.info.device_budget_bytes;
  return JsonText(object);
}

std::string WorkerDetailJson(const proto::WorkerInfo& worker, const std::vector<int64_t>& jobs,
                             const std::vector<controller::DeviceRun>& runs) {
  Object object = report::WorkerObject(worker);
  object["note"] = worker.note;
  object["jobs"] = jobs;
  object["runs"] = Object::array();
  for (const controller::DeviceRun& run : runs) {
    object["runs"].push_back({{"device", run.device},
                              {"job", run.job.value()},
                              {"rank", run.rank},
                              {"stage", run.stage},
                              {"programs", run.programs}});
  }
  return JsonText(object);
}

std::string CurveJson(const Curves::View& view) {
  Object rows = Object::array();
  for (const CurvePoint& point : view.points) {
    rows.push_back(Object::array(
        {point.step, point.steps, NumberOrNull(point.loss), NumberOrNull(point.least_loss),
         NumberOrNull(point.most_loss), NumberOrNull(point.grad_norm), NumberOrNull(point.lr),
         point.tokens, point.seconds, NumberOrNull(point.validation_loss)}));
  }
  return JsonText({{"columns",
                    {"step", "steps", "loss", "least_loss", "most_loss", "grad_norm", "lr",
                     "tokens", "seconds", "validation_loss"}},
                   {"rows", rows},
                   {"last_step", view.last_step}});
}

std::string StepsJson(int64_t job, const std::vector<proto::StepMetrics>& steps) {
  Object array = Object::array();
  for (const proto::StepMetrics& step : steps) array.push_back(report::StepObject(step));
  return JsonText({{"job", job}, {"steps", array}});
}

std::string HistoryJson(const std::vector<Sample>& samples) {
  Object columns = Object::array({"unix_ms"});
  for (const char* name : kGaugeNames) columns.push_back(name);
  Object rows = Object::array();
  for (const Sample& sample : samples) {
    Object row = Object::array({sample.unix_ms});
    for (const double value : sample.values) {
      row.push_back(NumberOrNull(std::round(value * 1000) / 1000));
    }
    rows.push_back(std::move(row));
  }
  return JsonText({{"columns", columns}, {"rows", rows}});
}

std::string EventsJson(const std::vector<controller::EventRecord>& events) {
  return JsonText(EventObjects(events));
}

std::string LinesJson(const std::string& text, bool first_is_cut) {
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (first_is_cut && !lines.empty()) lines.erase(lines.begin());
  return JsonText({{"lines", lines}});
}

std::string WorkerLogJson(const controller::LogAnswer& log) {
  std::vector<std::string> lines = Split(log.piece.text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return JsonText({{"lines", lines},
                   {"next", log.piece.next},
                   {"end", log.piece.end},
                   {"live", log.live},
                   {"note", log.note}});
}

std::string OverviewJson(const OverviewParts& parts) {
  return JsonText({{"cluster_id", parts.state->cluster_id},
                   {"term", parts.state->term},
                   {"version", parts.version},
                   {"role", parts.role},
                   {"tokens", parts.tokens},
                   {"totals", TotalsObject(*parts.state)},
                   {"workers", TileObjects(parts.state->workers)},
                   {"jobs", JobObjects(parts.state->jobs, parts.most_jobs)},
                   {"events", EventObjects(*parts.events)}});
}

std::string SettingsJson(const std::vector<std::pair<std::string, std::string>>& settings) {
  Object object = Object::object();
  for (const auto& [name, value] : settings) object[name] = value;
  return JsonText(object);
}

}  // namespace meshwright::web
