#include "report/views_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace meshwright::report {

using ViewObject = nlohmann::ordered_json;

ViewObject NumberOrNull(double value) {
  return std::isfinite(value) ? ViewObject(value) : ViewObject(nullptr);
}

ViewObject JobObject(const client::JobInfo& job) {
  return {{"id", job.id},
          {"name", job.name},
          {"tool", job.tool},
          {"state", client::JobStateName(job.state)},
          {"reason", job.reason},
          {"message", job.message},
          {"steps_done", job.steps_done},
          {"steps", job.steps},
          {"loss", NumberOrNull(job.loss)},
          {"layout", job.layout},
          {"directory", job.directory},
          {"checkpoint_step",
           job.checkpoint_step < 0 ? ViewObject(nullptr) : ViewObject(job.checkpoint_step)},
          {"checkpoint_folder", job.checkpoint_folder.path},
          {"submitted_unix_ms", job.submitted_unix_ms},
          {"started_unix_ms", job.started_unix_ms},
          {"ended_unix_ms", job.ended_unix_ms}};
}

ViewObject WorkerObject(const client::WorkerInfo& worker) {
  return {{"name", worker.name},
          {"host", worker.host},
          {"state", worker.state},
          {"devices", worker.devices},
          {"busy_devices", worker.busy_devices},
          {"memory_bytes", worker.memory_bytes},
          {"threads_per_device", worker.threads_per_device},
          {"host_cores", worker.host_cores},
          {"host_memory_bytes", worker.host_memory_bytes},
          {"disk_bytes", worker.disk_bytes},
          {"device_kind", worker.device_kind},
          {"device_name", worker.device_name},
          {"device_profile", worker.device_profile},
          {"address", worker.address},
          {"metrics_address", worker.metrics_address},
          {"last_seen_s", NumberOrNull(worker.last_seen_s)}};
}

ViewObject StepObject(const client::StepMetrics& step) {
  ViewObject object = {{"step", step.step},
                       {"loss", NumberOrNull(step.loss)},
                       {"grad_norm", NumberOrNull(step.grad_norm)},
                       {"lr", NumberOrNull(step.lr)},
                       {"tokens", NumberOrNull(step.tokens)},
                       {"seconds", NumberOrNull(step.seconds)},
                       {"validation_loss", NumberOrNull(step.validation_loss)}};
  for (const auto& [name, value] : step.values) object["values"][name] = NumberOrNull(value);
  return object;
}

std::string JsonText(const ViewObject& object, int indent) {
  return object.dump(indent, ' ', false, ViewObject::error_handler_t::replace);
}

}  // namespace meshwright::report
