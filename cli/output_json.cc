// -o json: stable field names, one object per job, worker or step.
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/output.h"

namespace meshwright::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json ToJson(const client::JobInfo& job) {
  return {{"id", job.id},
          {"name", job.name},
          {"state", client::JobStateName(job.state)},
          {"reason", job.reason},
          {"message", job.message},
          {"steps_done", job.steps_done},
          {"steps", job.steps},
          {"loss", Number(job.loss)},
          {"layout", job.layout},
          {"directory", job.directory},
          {"checkpoint_step", job.checkpoint_step < 0 ? Json(nullptr) : Json(job.checkpoint_step)},
          {"checkpoint_folder", job.checkpoint_folder.path},
          {"submitted_unix_ms", job.submitted_unix_ms},
          {"started_unix_ms", job.started_unix_ms},
          {"ended_unix_ms", job.ended_unix_ms}};
}

Json ToJson(const client::WorkerInfo& worker) {
  return {{"name", worker.name},
          {"host", worker.host},
          {"state", worker.state},
          {"devices", worker.devices},
          {"busy_devices", worker.busy_devices},
          {"memory_bytes", worker.memory_bytes},
          {"threads_per_device", worker.threads_per_device},
          {"host_cores", worker.host_cores},
          {"device_kind", worker.device_kind},
          {"device_name", worker.device_name},
          {"device_profile", worker.device_profile},
          {"address", worker.address},
          {"metrics_address", worker.metrics_address},
          {"last_seen_s", Number(worker.last_seen_s)}};
}

template <typename T>
Json ToArray(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(ToJson(value));
  return array;
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string JobJson(const client::JobInfo& job) { return Dump(ToJson(job), -1); }

std::string StepJson(const client::StepMetrics& step) {
  return Dump({{"step", step.step},
               {"loss", Number(step.loss)},
               {"grad_norm", Number(step.grad_norm)},
               {"lr", Number(step.lr)},
               {"tokens", Number(step.tokens)},
               {"seconds", Number(step.seconds)},
               {"validation_loss", Number(step.validation_loss)}},
              -1);
}

std::string LogJson(const std::string& line) { return Dump({{"line", line}}, -1); }

std::string JobsJson(const std::vector<client::JobInfo>& jobs) {
  return Dump(ToArray(jobs), 2) + "\n";
}

std::string StatusJson(const std::vector<client::WorkerInfo>& workers,
                       const std::vector<client::JobInfo>& jobs) {
  return Dump({{"workers", ToArray(workers)}, {"jobs", ToArray(jobs)}}, 2) + "\n";
}

}  // namespace meshwright::cli
