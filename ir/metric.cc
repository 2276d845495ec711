#include "ir/metric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "ir/job.h"

namespace meshwright::ir {
namespace {

constexpr std::string_view kMax = "max:";
constexpr int64_t kMostPatience = 1'000'000'000'000;

// What a validation of the job tells.
std::vector<std::string> MetricsOf(const JobRequest& job) {
  std::vector<std::string> names = {kValidationLoss};
  for (const DataStream& stream : job.data.streams) {
    for (const DataPart& part : stream.validation_parts) {
      names.push_back(kValidationPrefix + part.name);
    }
  }
  if (job.trained() == nullptr) return names;
  for (const NamedValue& output : job.trained()->graph.outputs) {
    const bool own = output.name != "loss_sum" && output.name != "count";
    if (own && job.trained()->graph.type(output.value).rank() == 0) {
      names.push_back(kValidationPrefix + output.name);
    }
  }
  return names;
}

}  // namespace

Metric ParseMetric(std::string_view text) {
  const bool more = text.starts_with(kMax);
  return {std::string(more ? text.substr(kMax.size()) : text), more};
}

Status CheckMetric(const JobRequest& job, const char* field, std::string_view metric) {
  if (job.driver.kind != DriverKind::kTrain || job.train.validation_batches == 0) {
    return InvalidField(field, "needs a job that trains and validates (validation.batches)");
  }
  const std::vector<std::string> known = MetricsOf(job);
  const std::string name = ParseMetric(metric).name;
  if (std::find(known.begin(), known.end(), name) != known.end()) return OkStatus();
  return InvalidField(field, fmt::format("is '{}'; this job has {}, each also with \"max:\" before "
                                         "it",
                                         metric, fmt::join(known, ", ")));
}

Status CheckEarlyStop(const JobRequest& job) {
  const int64_t patience = job.train.early_stop_patience;
  if (patience < 0 || patience > kMostPatience) {
    return InvalidField("train.early_stop_patience",
                        fmt::format("is {}; it counts validations", patience));
  }
  if (patience == 0) return OkStatus();
  if (job.train.validate_every == 0) {
    return InvalidField("train.early_stop_patience",
                        "needs validations during the run (validation.interval)");
  }
  return CheckMetric(job, "train.early_stop_metric", job.train.early_stop_metric);
}

}  // namespace meshwright::ir
