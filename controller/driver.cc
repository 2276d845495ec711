#include "controller/driver.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "controller/evaluate_driver.h"
#include "controller/launches.h"
#include "controller/report_values.h"
#include "controller/train_driver.h"
#include "data/counts.h"

namespace meshwright::controller {
namespace {

// Fills the state, then waits for calls (controller/client_desk.h) until its client is gone.
class ClientDriver final : public Driver {
 public:
  std::optional<PlannedLaunch> Next() override {
    if (std::exchange(initialised_, true)) return std::nullopt;
    return PlannedLaunch{ir::kInitProgram, 0, 1};
  }
  bool done() const override { return initialised_ && closed_; }
  DriverNews On(const PlannedLaunch& launch,
                const std::vector<proto::StepReport>& reports) override {
    DriverNews news;
    if (launch.program != ir::kStepProgram) return news;
    for (const proto::StepReport& report : reports) {
      news.steps.push_back(MetricsOf(report));
      news.loss = news.steps.back().loss;
      news.steps_done = report.step + 1;
    }
    return news;
  }
  void Close() override { closed_ = true; }

 private:
  bool initialised_ = false;
  bool closed_ = false;
};

// The names of the sets that a validation reads in turns; none: it is one.
std::vector<std::string> ValidationSetsOf(const ir::DataSpec& data) {
  std::vector<std::string> names;
  for (const ir::DataStream& stream : data.streams) {
    for (const ir::DataPart& part : stream.validation_parts) names.push_back(part.name);
  }
  return names;
}

int64_t EvaluationBatches(const ir::JobRequest& job) {
  if (job.driver.batches > 0) return job.driver.batches;
  const auto sets = static_cast<int64_t>(ValidationSetsOf(job.data).size());
  return job.train.validation_batches * std::max<int64_t>(1, sets);
}

std::set<std::string> MeansOf(const ir::JobRequest& job) {
  std::set<std::string> means;
  if (job.trained() == nullptr) return means;
  for (const ir::NamedValue& output : job.trained()->graph.outputs) {
    if (output.reduction == ir::Reduction::kMean) means.insert(output.name);
  }
  return means;
}

}  // namespace

const char* SaveCauseName(SaveCause cause) {
  static constexpr std::array<const char*, kSaveCauseCount> kNames = {
      "interval", "time",    "end",   "pause", "drain",
      "cancel",   "failure", "asked", "best",  "best-end"};
  return kNames[static_cast<size_t>(cause)];
}

bool TakesSnapshots(const ir::JobRequest& job) {
  return job.driver.kind == ir::DriverKind::kTrain && job.fault_tolerance.enable &&
         job.fault_tolerance.snapshot_every != 0;
}

std::unique_ptr<Driver> MakeDriver(const ir::JobRequest& job, const ir::StartPoint& start,
                                   int64_t told_steps, std::optional<proto::StepMetrics> held,
                                   const std::optional<JudgedSoFar>& stands) {
  switch (job.driver.kind) {
    case ir::DriverKind::kTrain: {
      auto driver = std::make_unique<TrainDriver>(
          job.train, data::HasValidation(job.data, job.train.sequence), job.checkpoint, start,
          told_steps, ValidationSetsOf(job.data));
      driver->Average(MeansOf(job));
      if (std::optional<Judge> judge = Judge::Of(job)) {
        if (stands) judge->Remember(*stands);
        driver->JudgeBy(*std::move(judge));
      }
      if (TakesSnapshots(job)) {
        driver->TakeSnapshots(
            {job.fault_tolerance.snapshot_every, std::max<int64_t>(0, start.step)});
      }
      if (held && held->step + 1 == start.step) driver->Hold(*std::move(held));
      return driver;
    }
    case ir::DriverKind::kEvaluate:
      return std::make_unique<EvaluateDriver>(*job.FindProgram(job.driver.program),
                                              EvaluationBatches(job));
    case ir::DriverKind::kClient:
      return std::make_unique<ClientDriver>();
  }
  return nullptr;
}

int64_t StepsOf(const ir::JobRequest& job) {
  switch (job.driver.kind) {
    case ir::DriverKind::kTrain:
      return job.train.steps;
    case ir::DriverKind::kEvaluate:
      return EvaluationBatches(job);
    case ir::DriverKind::kClient:
      return 0;
  }
  return 0;
}

}  // namespace meshwright::controller
