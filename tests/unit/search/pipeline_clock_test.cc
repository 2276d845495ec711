// What layouts are priced by: the clock of a schedule, what ZeRO can split.
#include "search/pipeline_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/plan.h"
#include "planner/simulate.h"
#include "search/layer_probe.h"
#include "search/layout_cost.h"
#include "search/short_programs.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using planner::ScheduleStep;

constexpr auto kForward = ir::Phase::kForward;
constexpr auto kBackward = ir::Phase::kBackward;

// F0 F1 B0 B1 W0 W1 on one stage.
const std::vector<planner::StageSchedule> kLateWeights = {{{kForward, 0},
                                                           {kForward, 1},
                                                           {kBackward, 0},
                                                           {kBackward, 1},
                                                           {kBackward, 0, 0, true},
                                                           {kBackward, 1, 0, true}}};

FullestMoments HoldLateWeights(int64_t kept_bytes, int64_t waiting_bytes) {
  const PartCost part = {1, 2, 3, kept_bytes, waiting_bytes, 0};
  EXPECT_EQ(EndSeconds({1, 1, false}, kLateWeights, {{&part, 1}, {}, true})[0], 12);
  return FindFullestMoments({1, 1, false}, kLateWeights, {{&part, 1}, {}, true});
}

TEST(PipelineClock, HoldsWhatWReadsUntilW) {
  const FullestMoments light = HoldLateWeights(10, 4);
  EXPECT_EQ(light.most_held_bytes[0], 20) << "behind the second forward";
  EXPECT_EQ(light.in_flight[0].forward_done, 2);
  const FullestMoments heavy = HoldLateWeights(10, 16);
  EXPECT_EQ(heavy.most_held_bytes[0], 32) << "behind the second B: both wait for W";
  EXPECT_EQ(heavy.in_flight[0].forward_done, 0);
  EXPECT_EQ(heavy.in_flight[0].backward_done, 2);
}

TEST(PipelineClock, StagesWaitForOneAnotherAndForMessages) {
  const std::vector<PartCost> parts = {{1, 2, 0, 5, 0, 2}, {3, 4, 0, 7, 0, 0}};
  const std::vector<mesh::LinkCost> links = {{0.1, 0.2}};  // 0.5 s a message
  const auto schedule = planner::MakeSchedule("gpipe", {2, 1, false}, 1);
  ASSERT_TRUE(schedule.has_value());
  const PipelineCost cost = {parts, links, false};
  const std::vector<double> end_s = EndSeconds({2, 1, false}, *schedule, cost);
  EXPECT_DOUBLE_EQ(end_s[1], 1 + 0.5 + 3 + 4);
  EXPECT_DOUBLE_EQ(end_s[0], 1 + 0.5 + 3 + 4 + 0.5 + 2);
  EXPECT_EQ(FindFullestMoments({2, 1, false}, *schedule, cost).most_held_bytes,
            (std::vector<int64_t>{5, 7}));
}

// When a device has computed its last forward, backward or gradient of weights.
double EndOf(const planner::Plan& plan, size_t device, const planner::Simulation& simulation) {
  const ir::Program& program = plan.Main()[device];
  double end_s = 0;
  for (const planner::Span& span : simulation.spans) {
    if (span.device != program.device.value()) continue;
    const auto& run = program.instructions[static_cast<size_t>(span.instruction)];
    const std::string piece = planner::ExecutablePiece(program.executables[run.executable.index()]);
    if (planner::PieceCategory(piece) != "update") end_s = std::max(end_s, span.end_s);
  }
  return end_s;
}

TEST(PipelineClock, StagesEndWhenTheirProgramsDo) {
  const ir::JobRequest job = SmallGpt2Job(4);
  constexpr int64_t kMessageBytes = 2 * 32 * 64 * 4;  // of two rows
  for (const mesh::LinkCost link :
       {mesh::LinkCost{0.25, 0.5 / kMessageBytes}, mesh::LinkCost{0.25, 3.0 / kMessageBytes}}) {
    for (const char* name : {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"}) {
      planner::Layout layout;
      layout.pipeline = 2;
      layout.microbatches = 4;
      layout.schedule = name;
      const auto shape = planner::ShapeOfSchedule(name, 2, 0);
      ASSERT_TRUE(shape.has_value()) << shape.error();
      layout.chunks = shape->chunks;
      const auto plan = planner::MakePlanOf(job, mesh::Topology::Local(2), layout);
      ASSERT_TRUE(plan.has_value()) << plan.error();
      const PartCost part = {1, 2, layout.SplitsBackward() ? 1.5 : 0, 0, 0, kMessageBytes};
      planner::SimulationCosts costs;
      costs.run_s = [&](const ir::Program&, const ir::Executable& executable) {
        const std::string_view category =
            planner::PieceCategory(planner::ExecutablePiece(executable));
        if (category == "forward") return part.forward_s;
        if (category == "backward") return part.backward_s;
        return category == "weight gradient" ? part.weight_s : 0;
      };
      costs.link = [&](int, int) { return link; };
      const auto simulation = planner::Simulate(plan->Main(), costs);
      ASSERT_TRUE(simulation.has_value()) << simulation.error();
      const std::vector<PartCost> parts(static_cast<size_t>(shape->parts()), part);
      std::vector<mesh::LinkCost> links;
      for (int i = 0; i + 1 < shape->parts(); ++i) {
        links.push_back(shape->StageOf(i) == shape->StageOf(i + 1) ? mesh::LinkCost{0, 0} : link);
      }
      const auto schedule = planner::MakeSchedule(name, *shape, 4);
      ASSERT_TRUE(schedule.has_value()) << schedule.error();
      const std::vector<double> end_s =
          EndSeconds(*shape, *schedule, {parts, links, layout.SplitsBackward()});
      for (size_t device : {0, 1}) {
        EXPECT_NEAR(end_s[device], EndOf(*plan, device, *simulation), 1e-9)
            << name << " on device " << device;
      }
    }
  }
}

TEST(ShortestOfNearest, TakesHalfTheProgramsForLessThanAPercent) {
  const auto cost = [](double step_s, int64_t pipeline, int64_t microbatches, int64_t chunks) {
    LayoutCost one;
    one.step_s = step_s;
    one.layout.pipeline = pipeline;
    one.layout.microbatches = microbatches;
    one.layout.chunks = chunks;
    one.layout.schedule = chunks > 1 ? "interleaved" : "1f1b";
    return one;
  };
  const LayoutCost fastest = cost(1, 8, 64, 2);
  EXPECT_EQ(ShortestOfNearest({fastest}), 0u);
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.009, 8, 64, 1)}), 1u);
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.011, 8, 64, 1)}), 0u) << "too slow";
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.009, 6, 64, 2)}), 0u) << "not short enough";
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.002, 4, 64, 2), cost(1.004, 4, 64, 1)}), 2u);
  EXPECT_EQ(ShortestOfNearest({fastest, cost(1.002, 4, 64, 1), cost(1.004, 4, 64, 1)}), 1u);
}

TEST(ZeroSplit, TakesWeightsOfWhichADimDivides) {
  LayerProbe probe;
  probe.weights = {{{96, 64}, 24576, 49152, 12288},
                   {{7, 50}, 1400, 2800, 1400},
                   {{8}, 32, 64, 32},
                   {{30, 64}, 7680, 15360, 7680, 3840, true}};
  const ZeroSplit by_eight = SplitOver(probe, 8, 0);
  EXPECT_EQ(by_eight.own.weights, 1) << "the last of the layer's own is too small to split";
  EXPECT_EQ(by_eight.own.bytes, 24576);
  EXPECT_EQ(by_eight.own.optimizer_bytes, 49152);
  EXPECT_EQ(by_eight.shared.bytes, 7680);
  EXPECT_EQ(by_eight.own.copy_bytes, 3840) << "no earlier layer reads the copy";
  EXPECT_EQ(by_eight.own.gradient_bytes, 12288) << "of 16 bits";
  EXPECT_EQ(by_eight.largest_bytes, 12288);
  EXPECT_EQ(by_eight.packed_bytes, 7680) << "30 rows are no multiple of 8: blocks of columns";
  EXPECT_EQ(SplitOver(probe, 36, 0).own.bytes, 0) << "96 and 64 are no multiples of 36";
  EXPECT_EQ(SplitOver(probe, 25, 0).own.bytes, 1400);
}

}  // namespace
}  // namespace meshwright::search
