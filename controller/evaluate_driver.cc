#include "controller/evaluate_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/launches.h"
#include "controller/report_values.h"

namespace meshwright::controller {

EvaluateDriver::EvaluateDriver(const ir::JobProgram& program, int64_t batches)
    : program_(program.name), batches_(batches) {
  for (const ir::NamedValue& output : program.graph.outputs) {
    if (output.reduction == ir::Reduction::kMean) means_.insert(output.name);
  }
}

std::optional<PlannedLaunch> EvaluateDriver::Next() {
  if (!std::exchange(initialised_, true)) return PlannedLaunch{ir::kInitProgram, 0, 1};
  if (next_batch_ >= batches_) return std::nullopt;
  const int64_t count = std::min(batches_ - next_batch_, LaunchSchedule::kMaxBatchesPerLaunch);
  const PlannedLaunch launch{program_, next_batch_, count};
  MW_CHECK(count >= 1) << "a launch of " << count << " batches";
  next_batch_ += count;
  return launch;
}

DriverNews EvaluateDriver::On(const PlannedLaunch& launch,
                              const std::vector<proto::StepReport>& reports) {
  DriverNews news;
  if (launch.program != program_) return news;
  for (const proto::StepReport& report : reports) {
    for (const auto& [name, value] : report.values) values_[name] += value;
    seconds_ += report.seconds;
  }
  news.steps_done = launch.first_step + launch.count;
  if (*news.steps_done < batches_) return news;
  for (auto& [name, value] : values_) {
    if (means_.contains(name)) value /= static_cast<double>(batches_);
  }
  proto::StepMetrics metrics;
  metrics.step = batches_ - 1;
  metrics.loss = ValueOr(values_, "loss_sum", kNoNumber) / ValueOr(values_, "count", kNoNumber);
  metrics.grad_norm = kNoNumber;
  metrics.lr = kNoNumber;
  metrics.tokens = ValueOr(values_, "count", 0);
  metrics.seconds = seconds_;
  metrics.validation_loss = metrics.loss;
  metrics.values = values_;
  news.loss = metrics.loss;
  std::string line =
      fmt::format("evaluated '{}' over {} batches in {:.2f} s:", program_, batches_, seconds_);
  for (const auto& [name, value] : values_) {
    line += fmt::format(" {}={:.6g}{}", name, value, means_.contains(name) ? " (mean)" : "");
  }
  news.log_lines.push_back(std::move(line));
  news.steps.push_back(std::move(metrics));
  return news;
}

}  // namespace meshwright::controller
