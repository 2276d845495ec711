// A simulation as a trace, to the letter.
#include "report/forecast_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace meshwright::report {
namespace {

using ::testing::HasSubstr;

// A program of one RUN of a graph that is only a name.
ir::Program OneRun(int device, int stage, std::string graph_name, int microbatch) {
  auto graph = std::make_shared<ir::Graph>();
  graph->name = std::move(graph_name);
  ir::Program program;
  program.device = DeviceIndex(device);
  program.stage = StageIndex(stage);
  program.executables.push_back({std::move(graph)});
  ir::Instruction& run = program.instructions.emplace_back();
  run.executable = ExecutableIndex(0);
  run.microbatch = microbatch;
  return program;
}

class ChromeTrace : public ::testing::Test {
 protected:
  ChromeTrace() { simulation_.spans = {{0, 0, 0, 1.5e-3}, {5, 0, 1.5e-3, 3e-3}}; }

  const std::vector<ir::Program> programs_ = {OneRun(0, 0, "s0/f", 0), OneRun(5, 1, "s1/\"b\\", 3)};
  planner::Simulation simulation_;
};

TEST_F(ChromeTrace, NamesStagesAndDevicesAndTimesRunsInMicroseconds) {
  EXPECT_EQ(
      ToChromeTrace(programs_, simulation_),
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      R"({"name":"process_name","ph":"M","pid":0,"args":{"name":"stage 0"}},)"
      "\n"
      R"({"name":"process_sort_index","ph":"M","pid":0,"args":{"sort_index":0}},)"
      "\n"
      R"({"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"device 0"}},)"
      "\n"
      R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"stage 1"}},)"
      "\n"
      R"({"name":"process_sort_index","ph":"M","pid":1,"args":{"sort_index":1}},)"
      "\n"
      R"({"name":"thread_name","ph":"M","pid":1,"tid":5,"args":{"name":"device 5"}},)"
      "\n"
      R"({"name":"s0/f mb=0","cat":"forward","ph":"X","pid":0,"tid":0,"ts":0.000,"dur":1500.000,)"
      R"("args":{"microbatch":0,"instruction":0}},)"
      "\n"
      R"({"name":"s1/\"b\\ mb=3","cat":"update","ph":"X","pid":1,"tid":5,"ts":1500.000,)"
      R"("dur":1500.000,"args":{"microbatch":3,"instruction":0}})"
      "\n"
      "]}\n");
}

TEST_F(ChromeTrace, HasMemoryAsCounters) {
  BytesByKind bytes = {};
  bytes[static_cast<size_t>(ir::MemoryKind::kWeights)] = 3 << 20;
  MemoriesOverTime memory;
  memory[static_cast<size_t>(ir::Space::kDevice)] = {{}, {{1.5e-3, bytes}}};
  const std::string trace = ToChromeTrace(programs_, simulation_, memory);
  EXPECT_THAT(trace, HasSubstr(R"("name":"MiB of device 5","ph":"C","pid":1,"ts":1500.000,)"));
  EXPECT_THAT(trace, HasSubstr(R"("weights":3.000)"));
  EXPECT_THAT(trace, ::testing::Not(HasSubstr("MiB of device 0")));
  EXPECT_THAT(trace, ::testing::Not(HasSubstr("MiB of device 5 ")));
}

TEST_F(ChromeTrace, HasACounterForEachMemoryOfADevice) {
  BytesByKind bytes = {};
  bytes[static_cast<size_t>(ir::MemoryKind::kOptimizer)] = 5 << 20;
  MemoriesOverTime memory;
  memory[static_cast<size_t>(ir::Space::kHost)] = {{}, {{1.5e-3, bytes}}};
  memory[static_cast<size_t>(ir::Space::kDisk)] = {{{0, bytes}}, {}};
  const std::string trace = ToChromeTrace(programs_, simulation_, memory);
  EXPECT_THAT(trace, HasSubstr(R"("name":"MiB of device 5 in the host's memory","ph":"C","pid":1,)"
                               R"("ts":1500.000,"args":{"weights":0.000,"gradients":0.000,)"
                               R"("optimizer":5.000,)"));
  EXPECT_THAT(trace, HasSubstr(R"("name":"MiB of device 0 on disk","ph":"C","pid":0,"ts":0.000,)"));
  EXPECT_THAT(trace, ::testing::Not(HasSubstr("MiB of device 5 on disk")));
  EXPECT_THAT(trace, ::testing::Not(HasSubstr("MiB of device 0 in")));
}

}  // namespace
}  // namespace meshwright::report
