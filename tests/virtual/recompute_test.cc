// Recomputation: the same bits, fewer activations, the layer's forward once more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/schema.h"
#include "planner/recompute_modes.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

ir::JobRequest WithMode(const ir::JobRequest& job, const LayoutCase& c, const std::string& mode) {
  ir::JobRequest result = WithLayout(job, c);
  result.parallel.recompute = mode;
  return result;
}

TEST(Recompute, EveryModeGivesTheSameBits) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.layers = 4;
    options.dropout = 0.1;
    const ir::JobRequest job = MakeTinyJob(options);
    for (const LayoutCase& c : {LayoutCase{1, 1, 1, 1}, LayoutCase{1, 2, 1, 2},
                                LayoutCase{2, 1, 2, 4}, LayoutCase{2, 2, 2, 4}}) {
      if (kSanitizedBuild && c.tensor * c.pipeline < 4) continue;
      if (LeavesOut(2)) continue;  // one family
      const int devices = c.devices();
      const auto kept = RunJob(WithMode(job, c, "none"), devices, 61);
      ASSERT_TRUE(kept.has_value()) << kept.error();
      for (const char* mode : {"gathers", "selective", "full"}) {
        const auto again = RunJob(WithMode(job, c, mode), devices, 61);
        ASSERT_TRUE(again.has_value()) << again.error();
        ExpectEqual(*kept, *again, 0, fmt::format("{} {} tensor={}", family, mode, c.tensor));
      }
    }
  }
}

// Slots that outlive the forward of a microbatch, but for what the token feed makes.
int64_t KeptBytes(const ir::Program& program) {
  int64_t bytes = 0;
  for (const ir::Slot& slot : program.slots) {
    const bool float_type = slot.type.dtype != ir::DType::kI32;
    if (slot.kind == ir::MemoryKind::kActivations && float_type) bytes += slot.type.bytes();
  }
  return bytes;
}

TEST(Recompute, FullKeepsTheInputsOfLayers) {
  TinyOptions options;
  options.layers = 4;
  options.dtype = ir::DType::kF32;
  const ir::JobRequest job = MakeTinyJob(options);
  const int64_t input = options.batch * options.sequence * 32 * 4;
  std::map<std::string, int64_t> bytes;
  for (const char* mode : {"none", "selective", "full"}) {
    const auto plan = planner::MakePlan(WithMode(job, {}, mode), mesh::Topology::Local(1));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    bytes[mode] = KeptBytes(plan->Of("step")[0]);
  }
  EXPECT_LT(bytes["selective"], bytes["none"]);
  // The inputs of layers 1 to 3, and what the first forward of the last layer leaves to the head:
  // one tensor and its statistics.
  EXPECT_GE(bytes["full"], 3 * input);
  EXPECT_LE(bytes["full"], 5 * input);
}

// The residual stream is split over the tensor group along the sequence: what products read of it
// is gathered, and kept in blocks where the mode says so.
TEST(Recompute, GathersKeepBlocksAndGatherThemAgain) {
  TinyOptions options;
  options.layers = 2;
  options.vocabulary = 64;
  options.batch = 8;
  const int64_t stream = options.batch * options.sequence * 32 * 8;  // of a microbatch
  // Two norms of each layer, and the one in front of the head.
  const int64_t gathered = 2 * options.layers + 1;
  for (const int tensor : {2, 4}) {
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.sequence_parallel = true;
    struct Run {
      RunResult result;
      int64_t kept = 0;
      int64_t moved = 0;  // all-gathers of the tensor axis
    };
    const auto run = [&](const char* mode) {
      SyntheticTokens tokens(64);
      const auto cluster =
          VirtualCluster::Start(WithMode(job, {1, tensor, 1, 1}, mode), tensor, &tokens).value();
      Run ran;
      ran.kept = KeptBytes(cluster->plan().Of("step")[0]);
      const auto key = std::pair(std::string("tensor"), collective::Kind::kAllGather);
      const int64_t before = cluster->Traffic()[key].bytes;
      EXPECT_TRUE(cluster->Train(0, 1).has_value()) << mode;
      ran.moved = cluster->Traffic()[key].bytes - before;
      auto result = RunOn(*cluster);
      EXPECT_TRUE(result.has_value()) << mode;
      ran.result = std::move(*result);
      return ran;
    };
    const Run kept = run("none");
    const Run blocks = run("gathers");
    ExpectEqual(kept.result, blocks.result, 0, fmt::format("tensor={}", tensor));
    EXPECT_EQ(blocks.moved - kept.moved, gathered * (tensor - 1) * stream) << tensor;
    EXPECT_EQ(kept.kept - blocks.kept, gathered * (stream - stream / tensor)) << tensor;
  }
}

double Flops(const ir::Program& program) {
  double flops = 0;
  for (const ir::Instruction& instruction : program.instructions) {
    if (instruction.op != ir::Opcode::kRun) continue;
    const ir::Graph& graph = *program.executables[instruction.executable.index()].graph;
    for (const ir::Node& node : graph.nodes) {
      if (node.op == ir::Op::kEinsum) flops += ir::CostOf(graph, node).flops;
    }
  }
  return flops;
}

// Products of a layer: 24 b s d^2 forward (without attention's), twice that backward.
TEST(Recompute, FullCostsTheForwardOfItsLayersOnceMore) {
  TinyOptions options;
  options.layers = 4;
  ir::JobRequest job = WithMode(MakeTinyJob(options), {}, "none");
  job.train.compile = false;
  const auto flops = [&]() {
    const auto plan = planner::MakePlan(job, mesh::Topology::Local(1));
    EXPECT_TRUE(plan.has_value()) << plan.error();
    return plan ? Flops(plan->Of("step")[0]) : 0;
  };
  const double kept = flops();
  const double layer = 24.0 * 32 * 32 * static_cast<double>(options.batch * options.sequence);
  // The last product of a layer makes what the next layer keeps: it is not needed again.
  const double again = layer * (16.0 / 24.0);
  job.parallel.recompute = "full";
  EXPECT_DOUBLE_EQ(flops() - kept, 3 * again + layer);
  job.parallel.recompute_layers = "0,2";
  EXPECT_DOUBLE_EQ(flops() - kept, 2 * again);
  job.parallel.recompute = "selective";
  EXPECT_DOUBLE_EQ(flops(), kept);
}

TEST(Recompute, LayersAreReadAndWritten) {
  using planner::Recompute;
  const auto modes = planner::RecomputeOfLayers(Recompute::kFull, "0-1,3", 5);
  ASSERT_TRUE(modes.has_value());
  EXPECT_EQ(planner::FormatRecompute(*modes), "0-1 full, 2 none, 3 full, 4 none");
  EXPECT_EQ(planner::FormatRecompute(*planner::RecomputeOfLayers(Recompute::kSelective, "", 3)),
            "selective");
  EXPECT_EQ(planner::FormatRecompute({}), "none");
  const auto mixed =
      planner::RecomputeOfLayers(Recompute::kFull, "0, 1-2 selective,3 none,4 full", 6);
  ASSERT_TRUE(mixed.has_value()) << mixed.error();
  EXPECT_EQ(planner::FormatRecompute(*mixed), "0 full, 1-2 selective, 3 none, 4 full, 5 none");
  const auto again =
      planner::RecomputeOfLayers(Recompute::kNone, planner::FormatRecompute(*mixed), 6);
  EXPECT_EQ(again.value(), *mixed);
  for (const char* bad : {"a", "1-", "-1", "3-2", "1,,2", "0-99999999999", "0 ful", "full"}) {
    const auto error = planner::RecomputeOfLayers(Recompute::kFull, bad, 5);
    ASSERT_FALSE(error.has_value()) << bad;
    EXPECT_NE(error.error().message().find("write layers as in"), std::string::npos) << bad;
  }
  const auto beyond = planner::RecomputeOfLayers(Recompute::kFull, "5", 5);
  ASSERT_FALSE(beyond.has_value());
  EXPECT_NE(beyond.error().message().find("the last is 4"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::testing
