// A rehearsal finds a layout that computes something else than one device, and says where; layouts
// of all kinds pass it.
#include "rehearsal/rehearse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "tests/unit/rehearsal/planned.h"

namespace meshwright::rehearsal {
namespace {

using ::testing::HasSubstr;

Result<Rehearsal> RehearsePlanned(const PlannedCase& planned,
                                  const RehearsalOptions& options = {}) {
  return Rehearse(planned.config, planned.prepared, planned.found, options, SystemClock());
}

constexpr char kData2[] = "parallelism.data_parallel_replicate_degree=2";
constexpr char kTensor2[] = "parallelism.tensor_parallel_degree=2";
constexpr char kPipeline2[] = "parallelism.pipeline_parallel_degree=2";

struct LayoutCase {
  const char* name;
  int devices;
  std::vector<std::string> overrides;
};

const LayoutCase kLayoutCases[] = {
    {"one device", 1, {}},
    {"all three degrees, interleaved, ZeRO",
     8,
     {kData2, kTensor2, kPipeline2, "parallelism.pipeline_parallel_schedule=interleaved",
      "parallelism.zero_stage=2", "parallelism.enable_sequence_parallel=true",
      "model.dropout=0.1"}},
    {"zb-v, recomputed",
     2,
     {kPipeline2, "parallelism.pipeline_parallel_schedule=zb-v",
      "parallelism.pipeline_parallel_microbatches=8", "activation_checkpoint.mode=full"}},
    {"context and ZeRO 3",
     4,
     {kData2, "parallelism.context_parallel_degree=2", "parallelism.zero_stage=3",
      "model.name=llama", "model.n_kv_heads=2", "model.document_separator=0"}},
    {"experts with a capacity",
     4,
     {"parallelism.data_parallel_replicate_degree=4", "parallelism.expert_parallel_degree=2",
      "model.name=mixtral", "model.n_experts=4", "model.experts_per_token=2",
      "model.capacity_factor=1.25", "model.balance_loss=0.1", "model.z_loss=0.01"}},
    {"stages of different sizes", 3, {"parallelism.pipeline_parallel_meshes=2x1,1x1"}},
    {"searched shardings",
     4,
     {kData2, kTensor2, "parallelism.shardings=search", "parallelism.zero_stage=1",
      "parallelism.pipeline_parallel_degree=1"}},
    {"mixed precision, a head that does not divide",
     2,
     {kTensor2, "training.dtype=bfloat16", "model.vocab_size=257"}},
};

std::string WaysOf(const std::vector<std::string>& overrides, int devices) {
  const PlannedCase planned = Plan(overrides, devices);
  const auto rehearsal = RehearsePlanned(planned);
  EXPECT_TRUE(rehearsal.has_value()) << rehearsal.error();
  if (!rehearsal.has_value()) return "";
  const auto object = nlohmann::json::parse(RehearsalJson("ways", *rehearsal));
  EXPECT_EQ(object["ways"].size(), 3u);
  return FormatRehearsal("ways", *rehearsal);
}

TEST(RehearsedWays, SayWhatWasRehearsedAndWhyTheRestWasNot) {
  const std::string plain = WaysOf({kData2, "parallelism.overlap=false"}, 2);
  EXPECT_THAT(
      plain,
      HasSubstr("rehearsed  expert_parallel_chunks (no chunks): no, no rows go to experts of "
                "other devices\n"));
  EXPECT_THAT(plain,
              HasSubstr("tensor_parallel_chunks (no chunks): no, there is no tensor group\n"));
  EXPECT_THAT(plain, HasSubstr("overlap (off): no, collectives of the job run in their turn\n"));
  const std::string chunks =
      WaysOf({kTensor2, "parallelism.tensor_parallel_chunks=2", "parallelism.overlap=true"}, 2);
  EXPECT_THAT(chunks, HasSubstr("tensor_parallel_chunks (2 chunks): yes\n"));
  EXPECT_THAT(chunks, HasSubstr("overlap (on): yes\n"));
  const std::string experts = WaysOf(
      {kData2, "parallelism.expert_parallel_degree=2", "model.name=mixtral", "model.n_experts=4",
       "model.experts_per_token=2", "parallelism.expert_parallel_chunks=2"},
      2);
  EXPECT_THAT(experts, HasSubstr("expert_parallel_chunks (2 chunks): yes\n"));
  EXPECT_THAT(experts, HasSubstr("overlap (by device): no, they run beside what computes on GPUs"));
}

class Layouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(Layouts, ComputeWhatOneDeviceComputes) {
  const LayoutCase& layout = GetParam();
  const PlannedCase planned = Plan(layout.overrides, layout.devices);
  const auto rehearsal = RehearsePlanned(planned);
  ASSERT_TRUE(rehearsal.has_value()) << rehearsal.error();
  EXPECT_TRUE(rehearsal->equal()) << FormatRehearsal(layout.name, *rehearsal);
  EXPECT_EQ(rehearsal->ranks, layout.devices);
  EXPECT_EQ(rehearsal->layout, planned.found.plan.layout.ToString());
  EXPECT_GE(rehearsal->checks.size(), 8u);
  EXPECT_GT(rehearsal->programs.instructions, 0);
}

INSTANTIATE_TEST_SUITE_P(Rehearsal, Layouts, ::testing::ValuesIn(kLayoutCases),
                         [](const auto& test) { return "n" + std::to_string(test.index); });

// Changes nodes of a step's executables, of one rank or (-1) of all.
RehearsalOptions Tampered(ir::Op op, int rank, const std::function<void(ir::Node&)>& change) {
  RehearsalOptions options;
  options.tamper = [op, rank, change](planner::Plan& plan) {
    int changed = 0;
    for (ir::Program& program : plan.programs.at(ir::kStepProgram)) {
      if (rank >= 0 && program.device.value() != rank) continue;
      for (ir::Executable& executable : program.executables) {
        ir::Graph graph = *executable.graph;
        for (ir::Node& node : graph.nodes) {
          if (node.op != op) continue;
          change(node);
          ++changed;
        }
        executable.graph = std::make_shared<const ir::Graph>(std::move(graph));
      }
    }
    EXPECT_GT(changed, 0) << "there is nothing to break";
  };
  return options;
}

TEST(BrokenPlan, AReductionThatForgetsAReplicaIsFoundInTheGradients) {
  const PlannedCase planned = Plan({kData2}, 2);
  const auto rehearsal = RehearsePlanned(
      planned, Tampered(ir::Op::kAllReduce, -1,
                        [](ir::Node& node) { node.attrs.Set("kind", std::string("max")); }));
  ASSERT_TRUE(rehearsal.has_value()) << rehearsal.error();
  EXPECT_FALSE(rehearsal->equal());
  const std::string text = FormatRehearsal("broken", *rehearsal);
  EXPECT_THAT(text, HasSubstr("first difference: loss of step 1"));
  EXPECT_THAT(text, HasSubstr("  gradients of transformer.wte.weight: rank 0, which holds [0:"));
  EXPECT_THAT(text, HasSubstr("the layout does not compute what one device does"));
}

TEST(BrokenKernel, OfOneRankIsNamedWithTensorRankAndBox) {
  const PlannedCase planned = Plan({kTensor2}, 2);
  // A norm of one rank adds more than it should to its variance.
  const auto rehearsal = RehearsePlanned(
      planned, Tampered(ir::Op::kLayerNorm, 1, [](ir::Node& node) { node.attrs.Set("eps", 0.5); }));
  ASSERT_TRUE(rehearsal.has_value()) << rehearsal.error();
  EXPECT_FALSE(rehearsal->equal());
  const auto object = nlohmann::json::parse(RehearsalJson("broken", *rehearsal));
  EXPECT_FALSE(object["equal"]);
  bool named = false;
  for (const auto& check : object["checks"]) {
    if (check["name"] != "gradients") continue;
    ASSERT_FALSE(check["differences"].empty());
    const auto& first = check["differences"][0];
    named = first["tensor"] != "" && first["box"]["size"].size() == first["index"].size() &&
            first["expected"] != first["actual"];
  }
  EXPECT_TRUE(named) << object.dump(2);
}

TEST(BrokenPlan, ReplicasThatComeApartAreFound) {
  const PlannedCase planned = Plan({kData2}, 2);
  // So little that no tensor is off by the tolerance.
  const auto rehearsal =
      RehearsePlanned(planned, Tampered(ir::Op::kAdamW, 1, [](ir::Node& node) {
                        node.attrs.Set("eps", node.attrs.Real("eps") * (1 + 1e-13));
                      }));
  ASSERT_TRUE(rehearsal.has_value()) << rehearsal.error();
  EXPECT_FALSE(rehearsal->equal());
  EXPECT_THAT(rehearsal->broken, HasSubstr("replicas of"));
}

TEST(CheckPrograms, RefusesAProgramThatLacksAnInstruction) {
  PlannedCase planned = Plan({kPipeline2, "parallelism.pipeline_parallel_microbatches=2"}, 2);
  EXPECT_TRUE(CheckPrograms(planned.found.plan).has_value());
  ir::Program& last = planned.found.plan.programs.at(ir::kStepProgram).back();
  std::erase_if(last.instructions, [](const ir::Instruction& instruction) {
    return instruction.op == ir::Opcode::kRecv;
  });
  const auto rehearsal = RehearsePlanned(planned);
  ASSERT_FALSE(rehearsal.has_value());
  EXPECT_THAT(rehearsal.error().message(), HasSubstr("step/1"));
}

TEST(Limits, MoreRanksThanMayBeEmulatedSayWhatWouldFit) {
  const PlannedCase planned = Plan({"parallelism.data_parallel_replicate_degree=4", kTensor2}, 8);
  RehearsalOptions options;
  options.max_ranks = 6;
  const auto rehearsal = RehearsePlanned(planned, options);
  ASSERT_FALSE(rehearsal.has_value());
  EXPECT_EQ(rehearsal.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(rehearsal.error().message(), HasSubstr("--max-ranks"));
  EXPECT_THAT(rehearsal.error().message(),
              HasSubstr("--set parallelism.data_parallel_replicate_degree=2"));
}

TEST(Seeds, MakeOtherNumbersAndTheSameVerdict) {
  const PlannedCase planned = Plan({kTensor2}, 2);
  RehearsalOptions other;
  other.seed = 2;
  const auto first = RehearsePlanned(planned);
  const auto second = RehearsePlanned(planned, other);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_TRUE(first->equal() && second->equal());
  EXPECT_NE(*first->checks.front().expected, *second->checks.front().expected);
}

}  // namespace
}  // namespace meshwright::rehearsal
