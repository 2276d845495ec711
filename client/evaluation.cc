#include "client/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meshwright::client {
namespace {

constexpr const char* kPredict = "predict";
constexpr const char* kEvaluate = "evaluate";

// What both have: the weights, on one replica of what the job was pinned to.
Result<ir::JobRequest> OnWeightsOf(const proto::JobDescription& of, int64_t id, const char* what) {
  if (of.weights.sha256.empty()) {
    return Fail(FailedPrecondition(fmt::format(
        "job {0} left no weights (checkpoint.last_save writes them at a good end); where it has "
        "checkpoints, `meshwright submit --resume {0}` goes on from the newest and ends with some",
        id)));
  }
  ir::JobRequest job;
  job.name = fmt::format("{} of job {}", what, id);
  job.data = of.job.data;
  job.init_weights = {.blob = of.weights};
  job.train = of.job.train;
  job.parallel.tensor = std::max<int64_t>(1, of.job.parallel.tensor);
  job.parallel.pipeline = std::max<int64_t>(1, of.job.parallel.pipeline);
  job.parallel.device = of.job.parallel.device;
  job.save_weights = false;
  return job;
}

}  // namespace

Result<ir::JobRequest> EvaluationOf(const proto::JobDescription& of, int64_t id, int64_t batches) {
  const ir::JobProgram* const trained = of.job.trained();
  if (trained == nullptr || of.job.driver.kind != ir::DriverKind::kTrain) {
    return Fail(FailedPrecondition(
        fmt::format("job {} did not train on data: there is nothing to evaluate it on", id)));
  }
  MW_ASSIGN_OR_RETURN(ir::JobRequest job, OnWeightsOf(of, id, "evaluation"));
  job.programs = {{kEvaluate, trained->graph, trained->inputs, false}};
  job.driver = {ir::DriverKind::kEvaluate, kEvaluate, batches, 0};
  return job;
}

Result<ir::JobRequest> PredictionOf(const proto::JobDescription& of, int64_t id) {
  const ir::JobProgram* const program = of.job.FindProgram(kPredict);
  if (program == nullptr) {
    return Fail(FailedPrecondition(
        fmt::format("job {} has no program '{}': its model cannot be asked", id, kPredict)));
  }
  MW_ASSIGN_OR_RETURN(ir::JobRequest job, OnWeightsOf(of, id, "prediction"));
  job.data.blob = {};
  job.data.streams.clear();
  job.train.global_batch = 1;
  job.programs = {*program};
  job.driver = {ir::DriverKind::kClient, "", 0, 0};
  return job;
}

Result<ir::JobRequest> PredictionOf(ir::JobRequest of, const std::string& name) {
  const ir::JobProgram* const program = of.FindProgram(kPredict);
  if (program == nullptr) {
    return Fail(FailedPrecondition(fmt::format("{} has no program '{}'", name, kPredict)));
  }
  of.name = name;
  of.data.blob = {};
  of.data.streams.clear();
  of.train.global_batch = 1;
  of.save_weights = false;
  of.checkpoint = {};
  of.programs = {ir::JobProgram(*program)};
  of.driver = {ir::DriverKind::kClient, "", 0, 0};
  return of;
}

}  // namespace meshwright::client
