#include "tests/virtual/run_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace meshwright::testing {

std::string LayoutCase::ToString() const {
  return fmt::format("data={} tensor={} pipeline={} microbatches={}", data, tensor, pipeline,
                     microbatches);
}

ir::JobRequest WithLayout(ir::JobRequest job, const LayoutCase& layout) {
  job.parallel.data = layout.data;
  job.parallel.tensor = layout.tensor;
  job.parallel.pipeline = layout.pipeline;
  job.parallel.microbatches = layout.microbatches;
  return job;
}

Result<RunResult> RunJob(const ir::JobRequest& job, int devices, int vocabulary,
                         int64_t memory_bytes) {
  SyntheticTokens tokens(vocabulary);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::Start(job, devices, &tokens, ops::Backend::kCpu, memory_bytes));
  return RunOn(*cluster);
}

Result<RunResult> RunOn(VirtualCluster& cluster) {
  MW_ASSIGN_OR_RETURN(const std::vector<worker::StepReport> reports, cluster.Train(0, kRunSteps));
  RunResult result;
  for (const worker::StepReport& report : reports) {
    result.losses.push_back(report.values.at("loss"));
    result.norms.push_back(report.values.at("grad_norm"));
  }
  MW_ASSIGN_OR_RETURN(result.validation, cluster.Validate(2));
  MW_ASSIGN_OR_RETURN(result.tensors, cluster.Gather());
  result.plan = cluster.plan();
  return result;
}

void ExpectEqual(const RunResult& expected, const RunResult& actual, double tolerance,
                 const std::string& layout) {
  for (int i = 0; i < kRunSteps; ++i) {
    const auto step = static_cast<size_t>(i);
    EXPECT_NEAR(actual.losses[step] / expected.losses[step], 1.0, tolerance)
        << layout << " loss of step " << i;
    EXPECT_NEAR(actual.norms[step] / expected.norms[step], 1.0, tolerance)
        << layout << " grad norm of step " << i;
  }
  EXPECT_NEAR(actual.validation / expected.validation, 1.0, tolerance) << layout;
  std::string where;
  EXPECT_LE(LargestDifference(expected.tensors, actual.tensors, &where), tolerance)
      << layout << " " << where;
}

}  // namespace meshwright::testing
