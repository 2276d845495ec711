// Schedules as programs: bubbles and in-flight counts of the planned instruction lists on the
// virtual clock.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/plan.h"
#include "planner/simulate.h"
#include "tests/scale.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

// Forward costs t_f, backward t_b (input and weight gradient), everything else nothing.
planner::SimulationCosts Costs(double t_f, double t_b) {
  planner::SimulationCosts costs;
  costs.run_s = [t_f, t_b](const ir::Program&, const ir::Executable& executable) {
    const std::string piece = planner::ExecutablePiece(executable);
    return piece == "f" ? t_f : piece == "b" ? t_b : 0.0;
  };
  return costs;
}

Result<planner::Plan> PlanTiny(int pipeline, int microbatches, const std::string& schedule,
                               int tensor = 1) {
  TinyOptions options;
  options.batch = 32;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 1;
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  job.parallel.microbatches = microbatches;
  job.parallel.schedule = schedule;
  return planner::MakePlan(job, mesh::Topology::Local(pipeline * tensor));
}

struct Case {
  int stages, microbatches;
  double t_f, t_b, bubble;
};

class ScheduleOnVirtualClock : public ::testing::TestWithParam<Case> {};

TEST_P(ScheduleOnVirtualClock, BubbleIsStagesMinusOneTimesForwardAndBackward) {
  const Case& c = GetParam();
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const auto plan = PlanTiny(c.stages, c.microbatches, schedule);
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const auto simulation = planner::Simulate(plan->Of("step"), Costs(c.t_f, c.t_b));
    ASSERT_TRUE(simulation.has_value()) << simulation.error();
    EXPECT_DOUBLE_EQ(simulation->makespan_s, c.microbatches * (c.t_f + c.t_b) + c.bubble)
        << schedule;
    for (double idle : simulation->idle_s) EXPECT_DOUBLE_EQ(idle, c.bubble) << schedule;
  }
}

TEST_P(ScheduleOnVirtualClock, InFlightCountsMatchTheSchedule) {
  const Case& c = GetParam();
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const auto plan = PlanTiny(c.stages, c.microbatches, schedule);
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const auto simulation = planner::Simulate(plan->Of("step"), Costs(c.t_f, c.t_b));
    ASSERT_TRUE(simulation.has_value()) << simulation.error();
    for (int stage = 0; stage < c.stages; ++stage) {
      const int expected = std::string(schedule) == "gpipe"
                               ? c.microbatches
                               : std::min(c.microbatches, c.stages - stage);
      EXPECT_EQ(simulation->in_flight_max[static_cast<size_t>(stage)], expected)
          << schedule << " stage " << stage;
    }
  }
}

// (p, m, tF, tB + tW): bubbles 9, 90, 21, 210 are the goldens of the design's table.
INSTANTIATE_TEST_SUITE_P(Goldens, ScheduleOnVirtualClock,
                         ::testing::Values(Case{4, 8, 1, 2, 9}, Case{4, 8, 10, 20, 90},
                                           Case{8, 16, 1, 2, 21}, Case{8, 32, 10, 20, 210},
                                           Case{2, 4, 1, 2, 3}),
                         [](const auto& param_info) {
                           return fmt::format("p{}m{}f{}", param_info.param.stages,
                                              param_info.param.microbatches,
                                              static_cast<int>(param_info.param.t_f));
                         });

// F, B and W of a part. Chunks share a stage's work.
planner::SimulationCosts PartCosts(double t_f, double t_b, double t_w, bool splits, int chunks) {
  planner::SimulationCosts costs;
  costs.run_s = [t_f, t_b, t_w, splits, parts = static_cast<double>(chunks)](
                    const ir::Program&, const ir::Executable& executable) {
    const std::string piece = planner::ExecutablePiece(executable);
    if (piece.starts_with('f')) return t_f / parts;
    if (piece.starts_with('b')) return (splits ? t_b : t_b + t_w) / parts;
    return piece.starts_with('w') ? t_w / parts : 0.0;
  };
  return costs;
}

struct Golden {
  int stages, microbatches;
  double t_f, t_b, t_w;
  double interleaved2, interleaved4, zb_h1, zb_h2, zb_v, v_half, v_min;  // bubbles
};

// Bubble = makespan without the work of one stage. The goldens are closed forms where times are
// equal; those of folded schedules are the makespan's, there in times of chunks, which are halves.
TEST(ScheduleOnVirtualClockGoldens, NewSchedulesHaveTheirBubbles) {
  const Golden goldens[] = {{4, 8, 1, 1, 1, 4.5, 2.25, 3, 3, 1.5, 4.5, 5.5},
                            {4, 8, 10, 12, 8, 45, 22.5, 42, 30, 18, 59, 104}};
  for (const Golden& g : goldens) {
    const double work = g.microbatches * (g.t_f + g.t_b + g.t_w);
    const auto expect = [&](const char* schedule, int chunks, double bubble) {
      TinyOptions options;
      options.layers = 16;
      options.batch = 8;
      ir::JobRequest job = MakeTinyJob(options);
      job.parallel.data = 1;
      job.parallel.pipeline = g.stages;
      job.parallel.microbatches = g.microbatches;
      job.parallel.schedule = schedule;
      job.parallel.chunks = chunks;
      const auto plan = planner::MakePlan(job, mesh::Topology::Local(g.stages));
      ASSERT_TRUE(plan.has_value()) << plan.error();
      const bool splits = planner::SplitsBackward(schedule);
      const auto simulation = planner::Simulate(
          plan->Of("step"), PartCosts(g.t_f, g.t_b, g.t_w, splits, std::max(chunks, 1)));
      ASSERT_TRUE(simulation.has_value()) << simulation.error();
      EXPECT_NEAR(simulation->makespan_s, work + bubble, 1e-9) << schedule << " " << chunks;
    };
    expect("interleaved", 2, g.interleaved2);
    if (kSanitizedBuild && g.t_f == 1) continue;
    expect("interleaved", 4, g.interleaved4);
    expect("zb-h1", 1, g.zb_h1);
    expect("zb-h2", 1, g.zb_h2);
    expect("zb-v", 2, g.zb_v);
    expect("v-half", 2, g.v_half);
    expect("v-min", 2, g.v_min);
  }
}

// The verifier runs what is planned with the channels that it has.
TEST(ScheduleOnVirtualClockGoldens, RoundsThatDoNotDivideTheMicrobatchesHaveNoLongerBubble) {
  TinyOptions options;
  options.batch = 11;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 1;
  job.parallel.pipeline = 4;
  job.parallel.microbatches = 11;
  job.parallel.schedule = "interleaved";
  job.parallel.chunks = 2;
  const auto plan = planner::MakePlan(job, mesh::Topology::Local(4));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const auto simulation = planner::Simulate(plan->Main(), PartCosts(1, 1, 1, false, 2));
  ASSERT_TRUE(simulation.has_value()) << simulation.error();
  EXPECT_NEAR(simulation->makespan_s, 11 * 3 + 4.5, 1e-9);
}

// Programs of every schedule, one per device, which the verifier runs in channels of their size.
TEST(ScheduleOnVirtualClockGoldens, EveryScheduleIsPlannedForAnyNumberOfMicrobatches) {
  for (const int stages : {2, 3, 4}) {
    for (const int microbatches : {1, 3, 5, 7}) {
      if (kSanitizedBuild && stages + microbatches != 8) continue;
      for (const char* schedule :
           {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"}) {
        TinyOptions options;
        options.layers = 8;
        options.batch = microbatches;
        ir::JobRequest job = MakeTinyJob(options);
        job.parallel.data = 1;
        job.parallel.pipeline = stages;
        job.parallel.microbatches = microbatches;
        job.parallel.schedule = schedule;
        job.parallel.chunks = 0;
        SCOPED_TRACE(fmt::format("{} {} stages {} microbatches", schedule, stages, microbatches));
        const auto plan = planner::MakePlan(job, mesh::Topology::Local(stages));
        ASSERT_TRUE(plan.has_value()) << plan.error();
        const auto simulation = planner::Simulate(plan->Main(), PartCosts(1, 1, 1, true, 1));
        ASSERT_TRUE(simulation.has_value()) << simulation.error();
      }
    }
  }
}

TEST(ScheduleMemory, FoldedSchedulesThatHoldLittleNeedLessArena) {
  TinyOptions options;
  options.layers = 8;
  options.batch = 24;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 1;
  job.parallel.pipeline = 4;
  job.parallel.microbatches = 12;
  job.parallel.chunks = 0;
  const auto most_arena = [&](const char* schedule) {
    job.parallel.schedule = schedule;
    const auto plan = planner::MakePlan(job, mesh::Topology::Local(4));
    EXPECT_TRUE(plan.has_value()) << plan.error();
    int64_t most = 0;
    for (const ir::Program& program : plan->Main()) most = std::max(most, program.arena_bytes);
    return most;
  };
  const int64_t h1 = most_arena("zb-h1");
  EXPECT_GT(most_arena("zb-h2"), h1);
  EXPECT_LT(most_arena("v-half"), most_arena("zb-v"));
  EXPECT_LT(most_arena("v-min"), most_arena("v-half"));
}

TEST(ScheduleMemory, OneForwardOneBackwardNeedsLessArenaThanGPipe) {
  const auto gpipe = PlanTiny(2, 8, "gpipe");
  const auto one_f_one_b = PlanTiny(2, 8, "1f1b");
  ASSERT_TRUE(gpipe.has_value()) << gpipe.error();
  ASSERT_TRUE(one_f_one_b.has_value()) << one_f_one_b.error();
  EXPECT_LT(one_f_one_b->Main()[0].arena_bytes, gpipe->Main()[0].arena_bytes / 2);
}

TEST(ScheduleOnVirtualClockWithMessages, LatencyLengthensTheStepAndNothingDeadlocks) {
  const auto plan = PlanTiny(4, 8, "1f1b", 2);
  ASSERT_TRUE(plan.has_value()) << plan.error();
  planner::SimulationCosts costs = Costs(1, 2);
  const auto without = planner::Simulate(plan->Of("step"), costs);
  costs.link = [](int, int) { return mesh::LinkCost{0.25, 0}; };
  const auto with = planner::Simulate(plan->Of("step"), costs);
  ASSERT_TRUE(without.has_value() && with.has_value());
  EXPECT_GT(with->makespan_s, without->makespan_s + 5 * 0.25);
}

}  // namespace
}  // namespace meshwright::testing
