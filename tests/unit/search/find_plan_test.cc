// From a layout to its plan: what is passed over, what a cluster must have, what pins leave open.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "mesh/device_profile.h"
#include "planner/forecast.h"
#include "planner/memory.h"
#include "planner/resolve_layout.h"
#include "search/find_layout.h"
#include "search/least_memory.h"
#include "tests/scale.h"
#include "tests/still_clock.h"
#include "tests/ticking_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using planner::Layout;
using planner::Plan;

// Layouts with as many replicas as their place in the list, from one.
std::vector<LayoutCost> Layouts(int count) {
  std::vector<LayoutCost> layouts(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    layouts[static_cast<size_t>(i)].layout.degrees[planner::Axis::kData] = i + 1;
  return layouts;
}

Result<Plan> PlanWithNote(const Layout& layout) {
  Plan plan;
  plan.layout = layout;
  plan.notes = {"own"};
  return plan;
}

TEST(FirstThatHasAPlan, PassesOverWhatTheVerifierRejectsAndSaysSo) {
  const auto first = FirstThatHasAPlan(
      Layouts(4),
      [](const Layout& layout) -> Result<Plan> {
        if (layout.data() == 1) return Fail(Internal("programs that the verifier rejects"));
        if (layout.data() == 2) return Fail(ResourceExhausted("too large"));
        return PlanWithNote(layout);
      },
      SearchTime(1, 1, kStill));
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_EQ(first->index, 2u);
  EXPECT_EQ(first->plan.layout.data(), 3);
  ASSERT_EQ(first->plan.notes.size(), 2u);
  EXPECT_EQ(first->plan.notes[1],
            Layouts(1)[0].layout.ToString() + " is left out, programs that the verifier rejects");
}

TEST(FirstThatHasAPlan, WithoutOneSaysWhatIsMostToThePoint) {
  const auto code_of = [](StatusCode of_first, StatusCode of_second) {
    const auto first = FirstThatHasAPlan(
        Layouts(2),
        [&](const Layout& layout) -> Result<Plan> {
          return Fail(Status(layout.data() == 1 ? of_first : of_second, "no"));
        },
        SearchTime(1, 1, kStill));
    return first.error().code();
  };
  EXPECT_EQ(code_of(StatusCode::kInternal, StatusCode::kInternal), StatusCode::kInternal);
  EXPECT_EQ(code_of(StatusCode::kInternal, StatusCode::kResourceExhausted),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of(StatusCode::kResourceExhausted, StatusCode::kInternal),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of(StatusCode::kInvalidArgument, StatusCode::kInternal),
            StatusCode::kInvalidArgument);
}

// A layout whose devices have room and whose disk has none, before one whose devices have none.
TEST(FirstThatHasAPlan, WithoutOneSaysThatTheDiskIsTooSmallWhereDevicesAreNot) {
  mesh::Topology one = mesh::Topology::Local(1);
  one.devices[0].memory_bytes = one.devices[0].disk_bytes = 100;
  planner::DeviceMemory memory;
  memory.disk.total_bytes = 101;
  const DeviceIndex device(0);
  const auto first = FirstThatHasAPlan(
      Layouts(2),
      [&](const Layout& layout) -> Result<Plan> {
        return Fail(layout.data() == 1 ? planner::CheckFarMemory(one, {&memory, 1}, {&device, 1})
                                       : planner::CheckDeviceMemory(one, device, 101, layout));
      },
      SearchTime(1, 1, kStill));
  ASSERT_FALSE(first.has_value());
  EXPECT_NE(first.error().message().find("the room on the disk is too small"), std::string::npos)
      << first.error();
}

mesh::Topology Gpus(int count, int64_t memory_bytes = 0) {
  mesh::Topology topology = mesh::Topology::Local(count);
  for (mesh::Device& device : topology.devices) {
    device.profile = mesh::KnownDeviceProfiles().at("a100-80g");
    device.memory_bytes = memory_bytes;
  }
  return topology;
}

Layout LayoutOf(int64_t data, int64_t tensor, int64_t pipeline, int64_t zero) {
  Layout layout;
  layout.degrees[planner::Axis::kData] = data;
  layout.degrees[planner::Axis::kTensor] = tensor;
  layout.pipeline = pipeline;
  layout.microbatches = pipeline;
  layout.zero = zero;
  return layout;
}

int64_t AllBytes(const Plan& plan) {
  return std::accumulate(
      plan.memory.begin(), plan.memory.end(), int64_t{0},
      [](int64_t sum, const planner::DeviceMemory& memory) { return sum + memory.total_bytes; });
}

// GPT-2 of few tokens: its state is most of what it takes.
ir::JobRequest StatefulGpt2Job(int layers, int64_t width, int64_t rows, int64_t tokens) {
  models::Gpt2Config config;
  config.vocabulary = 256;
  config.width = width;
  config.heads = 4;
  config.layers = layers;
  ir::JobRequest job;
  job.name = "stateful";
  job.train.global_batch = rows;
  job.train.sequence = tokens;
  job.SetLoss(*Gpt2Loss(config, rows, tokens));
  return job;
}

// What is remembered, and where it is renewed.
struct LeanState {
  const char* name;
  const char* optimizer = "adamw";
  ir::DType moments = ir::DType::kF32;
  int64_t host_update = 0;
  const char* weights_memory = "device";
};

const LeanState kLeanStates[] = {
    {"moments of float32"},
    {"moments of bfloat16", "adamw", ir::DType::kBF16},
    {"lion", "lion", ir::DType::kBF16},
    {"adafactor", "adafactor"},
    {"the host renews all", "adamw", ir::DType::kF32, 100},
    {"the host renews half", "adamw", ir::DType::kF32, 50},
    {"all weights on the host", "adamw", ir::DType::kF32, 100, "host"},
};

ir::JobRequest LeanJob(const LeanState& state, ir::DType compute) {
  ir::JobRequest job = StatefulGpt2Job(4, 64, 4, 4);
  job.train.compute_dtype = compute;
  job.optimizer.name = state.optimizer;
  job.optimizer.moments_dtype = state.moments;
  if (state.host_update > 0) {
    job.optimizer.max_norm = 0;  // whose sum would wait for all gradients
    job.parallel.optimizer_memory = "host";
    job.parallel.weights_memory = state.weights_memory;
    job.parallel.host_update = state.host_update;
    job.parallel.offload_chunk_bytes = 16 << 10;
  }
  return job;
}

TEST(LeastMemory, IsBelowWhatEveryLayoutTakes) {
  const Layout layouts[] = {LayoutOf(1, 1, 1, 0), LayoutOf(4, 1, 1, 3), LayoutOf(4, 1, 1, 1),
                            LayoutOf(1, 4, 1, 0), LayoutOf(2, 2, 1, 2), LayoutOf(1, 1, 4, 0)};
  for (const LeanState& state : kLeanStates) {
    for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
      for (const Layout& layout : layouts) {
        ir::JobRequest job = LeanJob(state, dtype);
        if (job.optimizer.name == "adafactor" && layout.zero > 1) continue;  // does not go with it
        if (kSanitizedBuild && (layout.data() != 4 || layout.zero != 1)) continue;
        const std::string what = fmt::format("{}, {}", state.name, layout.ToString());
        const int64_t least_of_any = LeastStateBytes(job);
        planner::PinDegrees(layout, job.parallel);
        const auto plan = planner::MakePlanOf(job, mesh::Topology::Local(4), layout);
        ASSERT_TRUE(plan.has_value()) << what << ": " << plan.error();
        EXPECT_LE(LeastStateBytes(job), AllBytes(*plan)) << what;
        EXPECT_LE(least_of_any, LeastStateBytes(job)) << what;
      }
    }
  }
}

TEST(LeastMemory, CountsWeightsGradientsAndTwoStatesOfAdam) {
  ir::JobRequest job = SmallGpt2Job(2);
  int64_t elements = 0;
  const ir::Graph& loss = job.main().graph;
  for (const NodeId id : loss.NodesOf(ir::Op::kParam)) {
    elements += loss.type(loss.node(id).outputs[0]).elements();
  }
  job.parallel = ir::OpenParallel();
  EXPECT_EQ(LeastStateBytes(job), 16 * elements);
  job.optimizer.name = "sgd";
  EXPECT_EQ(LeastStateBytes(job), 12 * elements);
  job.train.compute_dtype = ir::DType::kBF16;
  EXPECT_EQ(LeastStateBytes(job), 10 * elements);
  job.parallel.data = 4;
  job.parallel.zero = 0;
  EXPECT_EQ(LeastStateBytes(job), 40 * elements);
  job.parallel.expert = 2;
  EXPECT_EQ(LeastStateBytes(job), 20 * elements) << "all of it may be experts";
}

TEST(FindPlan, RefusesAtOnceWhatNoLayoutFitsAndSaysHowManyDevicesDo) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  const int64_t third = LeastStateBytes(job) / 6 + 1;
  FindOptions options;
  options.progress = [](const FindProgress&) -> bool {
    ADD_FAILURE() << "a search was begun";
    return true;
  };
  const auto found = FindPlan(job, Gpus(2, third), options, kStill);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(found.error().message().find("needs at least 6 devices of this memory"),
            std::string::npos)
      << found.error();
  EXPECT_TRUE(CheckLeastMemory(job, Gpus(6, third)).ok());
  EXPECT_TRUE(CheckLeastMemory(job, Gpus(2, 0)).ok()) << "unknown memory is enough";
}

// Searches for less and less memory follow one another where nothing fits.
TEST(FindPlan, WhileNothingFitsAllSearchesTogetherEndInTime) {
  const ir::JobRequest job = OpenJob();
  // A little more than the state, which needs more beside it.
  const int64_t most = LeastStateBytes(job) / 4 + LeastStateBytes(job) / 100;
  FindOptions options;
  options.timeout_ms = 20;
  options.patience_ms = 40;
  const TickingClock clock;
  const auto found = FindPlan(job, Gpus(4, most), options, clock);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kResourceExhausted) << found.error();
  // Behind its end each search looks at the clock a few times.
  EXPECT_LE(clock.NowMs(), 2 * options.patience_ms);
}

// What its programs do not let fit is no answer twice: the next best of the same degrees is.
TEST(FindLayout, LeavesOutWhatIsKnownNotToFit) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  const SearchTime time(10'000, 30'000, kStill);
  const auto best = FindLayout(job, Gpus(1), {}, time);
  ASSERT_TRUE(best.has_value()) << best.error();
  const std::string text = best->best.front().layout.ToString();
  const auto next = FindLayout(job, Gpus(1), {}, time,
                               [&](const Layout& layout) { return layout.ToString() == text; });
  ASSERT_TRUE(next.has_value()) << next.error();
  for (const LayoutCost& cost : next->best) EXPECT_NE(cost.layout.ToString(), text);
  EXPECT_EQ(next->best.front().layout.degrees, best->best.front().layout.degrees);
  EXPECT_GE(next->best.front().step_s, best->best.front().step_s);
}

// Programs need a little more than their estimate: what fits by the estimate alone is passed over,
// and what fits into less is found whatever is faster by its price.
TEST(FindPlan, WhatFitsFitsIntoMoreMemory) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches layouts: left to the plain build";
  ir::JobRequest job = StatefulGpt2Job(6, 256, 2, 64);
  job.parallel = ir::OpenParallel();
  job.parallel.data = job.parallel.tensor = job.parallel.pipeline = 1;
  mesh::Topology topology = mesh::Topology::Local(1);
  const int64_t least = LeastStateBytes(job);
  int64_t fitted = 0;  // the least that it fits into
  for (int64_t bytes = least; bytes < least + (3 << 20); bytes += 256 << 10) {
    topology.devices[0].memory_bytes = bytes;
    const auto found = FindPlan(job, topology, {}, kStill);
    if (found.has_value()) {
      EXPECT_LE(AllBytes(found->plan), bytes);
      if (fitted == 0) fitted = bytes;
      continue;
    }
    EXPECT_EQ(found.error().code(), StatusCode::kResourceExhausted) << bytes;
    EXPECT_EQ(fitted, 0) << "and not into " << bytes << ": " << found.error();
  }
  EXPECT_GT(fitted, 0);
}

// The layers of a pinned layout are those that the search gives it, and so is its time.
TEST(FindPlan, PinnedDegreesHaveTheLayersThatTheSearchFinds) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches layouts: left to the plain build";
  for (const std::string schedule : {"1f1b", "zb-v"}) {
    ir::JobRequest job = SmallGpt2Job(12);
    job.parallel = ir::OpenParallel();
    job.parallel.data = 1;
    job.parallel.tensor = 1;
    job.parallel.pipeline = 4;
    job.parallel.microbatches = 8;
    job.parallel.schedule = schedule;
    job.parallel.sequence_parallel = false;
    const auto searched = FindPlan(job, Gpus(4), {}, kStill);
    ASSERT_TRUE(searched.has_value()) << searched.error();
    job.parallel.zero = 0;
    ASSERT_FALSE(LeavesOpen(job));
    const auto pinned = FindPlan(job, Gpus(4), {}, kStill);
    ASSERT_TRUE(pinned.has_value()) << pinned.error();
    EXPECT_EQ(pinned->plan.layout.ToString(), searched->plan.layout.ToString());
    EXPECT_FALSE(pinned->plan.layout.part_layers.empty());
    EXPECT_TRUE(pinned->found.best.empty()) << "nothing was chosen";
  }
}

TEST(FindPlan, RefusalsNamePaddingAlsoWhereTheLayoutIsSearched) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  job.parallel.tensor = 3;
  const auto refusal = [&] {
    const auto found = FindPlan(job, Gpus(3, 0), {}, kStill);
    return found.has_value() ? "" : found.error().message();
  };
  EXPECT_EQ(refusal(), "") << "the rules pad it";
  job.parallel.shardings = "search";
  EXPECT_NE(refusal().find("have it padded, with parallelism.shardings = \"rules\": "),
            std::string::npos)
      << refusal();
  job.parallel.shardings = "rules";
  job.optimizer.name = "adafactor";
  EXPECT_NE(refusal().find("have it padded, with another optimizer than adafactor: "),
            std::string::npos)
      << refusal();
}

// The search for layouts prices a tensor group as one axis; what was tried as a grid is listed,
// too.
TEST(FindPlan, ListsTheGridsThatItTried) {
  ir::JobRequest job = SmallGpt2Job(2);
  job.parallel = ir::OpenParallel();
  job.parallel.data = job.parallel.pipeline = 1;
  job.parallel.shardings = "search";
  const mesh::Topology topology = Gpus(4, 0);
  const auto is_grid = [](const LayoutCost& cost) { return cost.layout.tensor_axes.size() > 1; };
  job.parallel.tensor = 4;
  job.parallel.recompute = "none";
  const auto open = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(open.has_value()) << open.error();
  const std::vector<LayoutCost>& best = open->found.best;
  ASSERT_FALSE(best.empty());
  EXPECT_EQ(std::count_if(best.begin(), best.end(), is_grid), 1) << "2 x 2";
  EXPECT_EQ(best.front().layout.ToString(), open->plan.layout.ToString());

  job.parallel.tensor_axes = "2x2";
  const auto named = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(named.has_value()) << named.error();
  ASSERT_FALSE(named->found.best.empty());
  EXPECT_EQ(named->plan.layout.tensor_axes, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(named->found.best.front().layout.ToString(), named->plan.layout.ToString());
  for (const LayoutCost& cost : named->found.best) {
    EXPECT_TRUE(is_grid(cost)) << cost.layout.ToString();
    EXPECT_GT(cost.fullest_bytes(), 0);
  }
}

}  // namespace
}  // namespace meshwright::search
