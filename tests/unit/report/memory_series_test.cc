// What devices hold over a forecast step, against the plan's memory.
#include "report/memory_series.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
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

std::vector<MemorySeries> DeviceOverTime(const PlannedJob& planned) {
  return MemoryOverTime(planned.plan().Main(), planned.forecast.simulation, ir::Space::kDevice);
}

TEST(MemoryOverTime, PeaksAtThePlansMemory) {
  const PlannedJob pipeline = MustPlan(2, 4);
  const auto all = DeviceOverTime(pipeline);
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
  const auto samples_of = [&planned, &simulation](ir::Space space) {
    return MemoryOverTime(planned->plan().Main(), simulation, space)[0].size();
  };
  const size_t samples = samples_of(ir::Space::kDevice);
  EXPECT_EQ(samples_of(ir::Space::kHost), samples + 2) << "and both ends of the step";
  const double end_s = simulation.spans.back().end_s;
  int of_host = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (!ir::RunsOnHost(program, program.instructions[i])) continue;
    ++of_host;
    simulation.spans.push_back({0, static_cast<int>(i), end_s, end_s});
  }
  EXPECT_GT(of_host, 0);
  EXPECT_EQ(samples_of(ir::Space::kDevice), samples);
  EXPECT_EQ(samples_of(ir::Space::kHost), samples + 2);
}

// Of many programs, worked out by several threads.
TEST(MemoryOverTime, IsThatOfEachProgram) {
  const PlannedJob pipeline = MustPlan(4, 8);
  const auto all = DeviceOverTime(pipeline);
  ASSERT_EQ(all.size(), 4U);
  for (size_t p = 0; p < 4; ++p) {
    const std::vector<RunMemory> runs = MemoryOfRuns(pipeline.plan().Main()[p], ir::Space::kDevice);
    ASSERT_EQ(all[p].size(), 2 * runs.size()) << p;
    for (size_t r = 0; r < runs.size(); ++r) {
      EXPECT_EQ(all[p][2 * r].bytes, runs[r].peak) << p << " " << r;
      EXPECT_EQ(all[p][2 * r + 1].bytes, runs[r].after) << p << " " << r;
    }
  }
}

constexpr ir::Space kFar[] = {ir::Space::kHost, ir::Space::kDisk};

// What a farther memory holds, by the list alone: what is persistent, and the rest from the first
// instruction that writes it to its FREE.
class FarMemoryReplay {
 public:
  FarMemoryReplay(const ir::Program& program, ir::Space space) : program_(program), space_(space) {
    for (size_t s = 0; s < program.slots.size(); ++s) {
      if (program.slots[s].persistent) Begin(SlotId(static_cast<int>(s)));
    }
    for (const ir::Instruction& instruction : program.instructions) {
      const bool run = instruction.op == ir::Opcode::kRun;
      if (run && !ir::RunsOnHost(program, instruction)) at_runs_.push_back(bytes_);
      if (run || instruction.op == ir::Opcode::kOffload) {
        for (const SlotId output : instruction.outputs) Begin(output);
      }
      if (TotalOf(bytes_) > TotalOf(most_)) most_ = bytes_;
      if (instruction.op != ir::Opcode::kFree) continue;
      for (const SlotId id : instruction.inputs) {
        if (live_.erase(id) > 0) Add(id, -1);
      }
    }
  }

  const std::vector<BytesByKind>& at_runs() const { return at_runs_; }
  const BytesByKind& most() const { return most_; }

 private:
  void Begin(SlotId id) {
    if (program_.slot(id).space == space_ && live_.insert(id).second) Add(id, 1);
  }

  void Add(SlotId id, int sign) {
    const ir::Slot& slot = program_.slot(id);
    bytes_[static_cast<size_t>(slot.kind)] += sign * slot.type.bytes();
  }

  const ir::Program& program_;
  const ir::Space space_;
  std::set<SlotId> live_;
  BytesByKind bytes_ = {};
  BytesByKind most_ = {};
  std::vector<BytesByKind> at_runs_;
};

struct FarCase {
  const char* name = "";
  std::vector<std::string> memories;
  std::vector<ir::MemoryKind> on_host;
  std::vector<ir::MemoryKind> on_disk;
};

const std::vector<FarCase>& FarCases() {
  using Kind = ir::MemoryKind;
  static const std::vector<FarCase> kCases = {
      {"optimizer", {"optimizer_memory=\"host\""}, {Kind::kOptimizer}, {}},
      {"weights", {"weights_memory=\"host\""}, {Kind::kWeights}, {}},
      {"gradients", {"gradients_memory=\"host\""}, {Kind::kGradients}, {}},
      {"activations", {"activations_memory=\"host\""}, {Kind::kActivations}, {}},
      {"all",
       {"optimizer_memory=\"host\"", "weights_memory=\"host\"", "gradients_memory=\"host\"",
        "activations_memory=\"host\""},
       {Kind::kWeights, Kind::kGradients, Kind::kOptimizer, Kind::kActivations},
       {}},
      {"optimizer on the disk",
       {"optimizer_memory=\"disk\"", "activations_memory=\"host\""},
       {Kind::kActivations},
       {Kind::kOptimizer}},
      {"the host renews",
       {"optimizer_memory=\"host\"", "host_update_percent=100"},
       {Kind::kWeights, Kind::kGradients, Kind::kOptimizer},
       {}},
  };
  return kCases;
}

PlannedJob MustPlanFar(const FarCase& c, int stages) {
  std::vector<std::string> keys = {"data_parallel_replicate_degree=1", "tensor_parallel_degree=1",
                                   fmt::format("pipeline_parallel_degree={}", stages),
                                   "pipeline_parallel_microbatches=2", "offload_chunk_bytes=4096"};
  keys.insert(keys.end(), c.memories.begin(), c.memories.end());
  for (std::string& key : keys) key = "parallelism." + key;
  auto planned = PlanSmallJob(keys, mesh::Topology::Local(stages));
  EXPECT_TRUE(planned.has_value()) << planned.error().message();
  return *std::move(planned);
}

// The planner counts the same at the fullest moment, and a worker allocates little more.
void ExpectPlannedPeak(const std::vector<RunMemory>& runs, const planner::FarMemory& planned) {
  BytesByKind most = {};
  for (const RunMemory& run : runs) {
    for (const BytesByKind& bytes : {run.peak, run.after}) {
      if (TotalOf(bytes) > TotalOf(most)) most = bytes;
    }
  }
  BytesByKind expected = {};
  for (const auto& [kind, bytes] : planned.bytes) expected[static_cast<size_t>(kind)] = bytes;
  EXPECT_EQ(TotalOf(most), TotalOf(expected));
  EXPECT_EQ(most, expected);
  EXPECT_LE(TotalOf(most), planned.total_bytes);
  EXPECT_GE(static_cast<double>(TotalOf(most)), 0.9 * static_cast<double>(planned.total_bytes));
}

TEST(MemoryOverTime, OfFartherMemoriesIsWhatTheListPutsThereAndThePlanCounts) {
  for (const FarCase& c : FarCases()) {
    for (const int stages : {1, 2}) {
      const PlannedJob planned = MustPlanFar(c, stages);
      for (const ir::Space space : kFar) {
        SCOPED_TRACE(fmt::format("{}, {} stages, {}", c.name, stages, ir::SpaceName(space)));
        for (size_t p = 0; p < planned.plan().Main().size(); ++p) {
          const ir::Program& program = planned.plan().Main()[p];
          const std::vector<RunMemory> runs = MemoryOfRuns(program, space);
          const auto& kinds = space == ir::Space::kHost ? c.on_host : c.on_disk;
          EXPECT_EQ(runs.empty(), kinds.empty());
          const FarMemoryReplay replay(program, space);
          if (!runs.empty()) {
            ASSERT_EQ(runs.size(), replay.at_runs().size());
          }
          for (size_t r = 0; r < runs.size(); ++r) EXPECT_EQ(runs[r].peak, replay.at_runs()[r]);
          ExpectPlannedPeak(runs, planned.plan().memory[p].Far(space));
        }
      }
    }
  }
}

// From the first OFFLOAD until nothing reads it any more.
TEST(MemoryOverTime, WhatAStepMakesIsInTheHostsMemoryForAPartOfIt) {
  for (const FarCase& c : FarCases()) {
    SCOPED_TRACE(c.name);
    const PlannedJob planned = MustPlanFar(c, 1);
    const MemoriesOverTime all =
        AllMemoryOverTime(planned.plan().Main(), planned.forecast.simulation);
    ASSERT_EQ(all[static_cast<size_t>(ir::Space::kDevice)], DeviceOverTime(planned));
    const MemorySeries& host = all[static_cast<size_t>(ir::Space::kHost)][0];
    ASSERT_FALSE(host.empty());
    EXPECT_EQ(host.front().time_s, 0);
    EXPECT_EQ(host.back().time_s, planned.forecast.simulation.makespan_s);
    EXPECT_TRUE(std::is_sorted(
        host.begin(), host.end(),
        [](const MemorySample& a, const MemorySample& b) { return a.time_s < b.time_s; }));
    for (const ir::MemoryKind kind : c.on_host) {
      SCOPED_TRACE(ir::MemoryKindName(kind));
      const auto k = static_cast<size_t>(kind);
      const auto [least, most] = std::minmax_element(
          host.begin(), host.end(),
          [k](const MemorySample& a, const MemorySample& b) { return a.bytes[k] < b.bytes[k]; });
      EXPECT_GT(most->bytes[k], 0);
      const bool made = kind == ir::MemoryKind::kGradients || kind == ir::MemoryKind::kActivations;
      EXPECT_EQ(least->bytes[k], made ? 0 : most->bytes[k]);
      EXPECT_EQ(host.front().bytes[k], least->bytes[k]);
      EXPECT_EQ(host.back().bytes[k], least->bytes[k]);
    }
  }
}

TEST(MemoryOverTime, IsEmptyWhereNothingIs) {
  const PlannedJob pipeline = MustPlan(2, 4);
  const MemoriesOverTime all =
      AllMemoryOverTime(pipeline.plan().Main(), pipeline.forecast.simulation);
  for (const ir::Space space : kFar) {
    EXPECT_EQ(all[static_cast<size_t>(space)], std::vector<MemorySeries>(2));
  }
}

}  // namespace
}  // namespace meshwright::report
