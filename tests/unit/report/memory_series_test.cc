// What devices hold over a forecast step, against the plan's memory.
#include "report/memory_series.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

PlannedJob MustPlan(int stages, int microbatches) {
  auto planned = PlanSmallJob(
      {"parallelism.data_parallel_replicate_degree=1", "parallelism.tensor_parallel_degree=1",
       fmt::format("parallelism.pipeline_parallel_degree={}", stages),
       fmt::format("parallelism.pipeline_parallel_microbatches={}", microbatches),
       "parallelism.pipeline_parallel_schedule=\"1f1b\""},
      mesh::Topology::Local(stages));
  EXPECT_TRUE(planned.has_value()) << planned.error().message();
  return *std::move(planned);
}

TEST(MemoryOverTime, PeaksAtThePlansMemory) {
  const PlannedJob pipeline = MustPlan(2, 4);
  const auto all = MemoryOverTime(pipeline.plan().Main(), pipeline.forecast.simulation);
  ASSERT_EQ(all.size(), 2U);
  for (size_t p = 0; p < 2; ++p) {
    const MemorySeries& series = all[p];
    ASSERT_FALSE(series.empty());
    int64_t peak = 0;
    double last_s = 0;
    for (const MemorySample& sample : series) {
      EXPECT_GE(sample.time_s, last_s);
      last_s = sample.time_s;
      peak = std::max(peak, TotalOf(sample.bytes));
      for (const int64_t bytes : sample.bytes) EXPECT_GE(bytes, 0);
    }
    const planner::DeviceMemory& planned = pipeline.plan().memory[p];
    int64_t planned_bytes = 0;
    for (const auto& [kind, bytes] : planned.bytes) planned_bytes += bytes;
    EXPECT_LE(peak, planned_bytes);
    EXPECT_GE(static_cast<double>(peak), 0.9 * static_cast<double>(planned_bytes));
    // What outlives the step is there from its begin to its end.
    const auto weights = static_cast<size_t>(ir::MemoryKind::kWeights);
    EXPECT_GE(series.front().bytes[weights], planned.bytes.at(ir::MemoryKind::kWeights));
    EXPECT_EQ(series.back().bytes[weights], planned.bytes.at(ir::MemoryKind::kWeights));
  }
}

// A record has them, a forecast has not.
TEST(MemoryOverTime, RunsOfTheHostTakeNothingOfTheDevice) {
  auto planned = PlanSmallJob(
      {"parallelism.data_parallel_replicate_degree=1", "parallelism.tensor_parallel_degree=1",
       "parallelism.pipeline_parallel_degree=1", "parallelism.optimizer_memory=\"host\"",
       "parallelism.host_update_percent=100"},
      mesh::Topology::Local(1));
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  const ir::Program& program = planned->plan().Main()[0];
  planner::Simulation simulation = planned->forecast.simulation;
  const size_t samples = MemoryOverTime(planned->plan().Main(), simulation)[0].size();
  const double end_s = simulation.spans.back().end_s;
  int of_host = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (!ir::RunsOnHost(program, program.instructions[i])) continue;
    ++of_host;
    simulation.spans.push_back({0, static_cast<int>(i), end_s, end_s});
  }
  EXPECT_GT(of_host, 0);
  EXPECT_EQ(MemoryOverTime(planned->plan().Main(), simulation)[0].size(), samples);
}

// Of many programs, worked out by several threads.
TEST(MemoryOverTime, IsThatOfEachProgram) {
  const PlannedJob pipeline = MustPlan(4, 8);
  const auto all = MemoryOverTime(pipeline.plan().Main(), pipeline.forecast.simulation);
  ASSERT_EQ(all.size(), 4U);
  for (size_t p = 0; p < 4; ++p) {
    const std::vector<RunMemory> runs = MemoryOfRuns(pipeline.plan().Main()[p]);
    ASSERT_EQ(all[p].size(), 2 * runs.size()) << p;
    for (size_t r = 0; r < runs.size(); ++r) {
      EXPECT_EQ(all[p][2 * r].bytes, runs[r].peak) << p << " " << r;
      EXPECT_EQ(all[p][2 * r + 1].bytes, runs[r].after) << p << " " << r;
    }
  }
}

}  // namespace
}  // namespace meshwright::report
