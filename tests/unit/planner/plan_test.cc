// What a plan promises and what its refusals say.
#include "planner/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/verify.h"
#include "planner/lower.h"
#include "planner/strategy.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::DType;
using ir::Op;

struct Shape {
  int64_t batch = 8;
  int64_t heads = 8;  // the first weight's columns
  int64_t units = 12;
  bool layers = true;
};

// Two column-split weights, each followed by a row-split one.
ir::JobRequest Job(const Shape& shape) {
  Builder b("loss");
  const auto param = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, std::move(dims)}});
  };
  const auto times = [&](ValueId x, ValueId w) {
    return b.AddOne(Op::kEinsum, {x, w}, {{"equation", "bsk,kn->bsn"}});
  };
  const ValueId tokens =
      b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {shape.batch, 5}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", 4}});
  };
  if (shape.layers) b.SetLayer(0);
  // A statement for each node: compilers differ in which of two arguments they make first.
  const ValueId wte = param("wte", {7, 16});
  ValueId x = b.AddOne(Op::kEmbedding, {wte, cut(0)});
  const auto layer = [&](const std::string& name, int64_t columns) {
    const ValueId up = times(x, param(name + ".up", {16, columns}));
    const ValueId active = b.AddOne(Op::kGelu, {up});
    x = times(active, param(name + ".down", {columns, 16}));
  };
  layer("a", shape.heads);
  if (shape.layers) b.SetLayer(1);
  layer("b", shape.units);
  const ValueId logits = times(x, param("head", {16, 7}));
  const auto loss = b.Add(Op::kCrossEntropy, {logits, cut(1)});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  ir::JobRequest job;
  job.name = "job";
  job.SetLoss(*b.Finish());
  job.train.global_batch = shape.batch;
  job.train.sequence = 4;
  return job;
}

std::string Refusal(const ir::JobRequest& job, const mesh::Topology& topology) {
  const auto plan = MakePlan(job, topology);
  return plan.has_value() ? "" : plan.error().message();
}

TEST(MakePlan, MemoryIsComparedDeviceByDevice) {
  ir::JobRequest job = Job({});
  job.parallel.pipeline = 2;
  mesh::Topology topology = mesh::Topology::Local(2);
  const auto plan = MakePlan(job, topology);
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const int64_t first = plan->memory[0].total_bytes;
  const int64_t second = plan->memory[1].total_bytes;
  ASSERT_NE(first, second);
  topology.devices[0].memory_bytes = first;
  topology.devices[1].memory_bytes = second;
  EXPECT_EQ(Refusal(job, topology), "");
  topology.devices[0].memory_bytes = 0;  // unknown
  topology.devices[1].memory_bytes = second - 1;
  EXPECT_NE(Refusal(job, topology).find("device 1 (0 of worker1) needs"), std::string::npos)
      << Refusal(job, topology);
}

TEST(MakePlan, SuggestedTensorDegreesFitAllWeightsAndTheCluster) {
  ir::JobRequest job = Job({.heads = 30, .units = 12});
  job.optimizer.name = "adafactor";  // which pads nothing
  job.parallel.data = 1;
  job.parallel.tensor = 4;
  // 30 has the divisors 1, 2, 3, 5, 6, 10, ...; of those 12 has 1, 2, 3, 6.
  EXPECT_NE(Refusal(job, mesh::Topology::Local(16)).find("choose tensor in {1, 2, 3, 6}"),
            std::string::npos)
      << Refusal(job, mesh::Topology::Local(16));
  EXPECT_NE(Refusal(job, mesh::Topology::Local(4)).find("choose tensor in {1, 2, 3}"),
            std::string::npos)
      << Refusal(job, mesh::Topology::Local(4));
  // Two stages leave 5 of 10 devices.
  job.parallel.pipeline = 2;
  job.parallel.tensor = 5;
  EXPECT_NE(Refusal(job, mesh::Topology::Local(10)).find("choose tensor in {1, 2, 3}"),
            std::string::npos)
      << Refusal(job, mesh::Topology::Local(10));
}

TEST(MakePlan, RefusalsNamePaddingWhereItWouldMakeThemLegal) {
  ir::JobRequest job = Job({.heads = 30, .units = 12});
  job.parallel.data = 1;
  job.parallel.tensor = 4;
  const mesh::Topology four = mesh::Topology::Local(4);
  EXPECT_EQ(Refusal(job, four), "") << "the rules pad it";
  const std::string padding = "a.up and 1 more: 30 units are padded to 32 for tensor=4";
  job.parallel.shardings = "search";
  const auto says = [&](const std::string& with) {
    const std::string refusal = Refusal(job, four);
    EXPECT_NE(refusal.find("; or have it padded, with " + with + ": "), std::string::npos)
        << refusal;
    EXPECT_NE(refusal.find(padding), std::string::npos) << refusal;
  };
  says("parallelism.shardings = \"rules\"");
  job.optimizer.name = "adafactor";
  says("parallelism.shardings = \"rules\" and another optimizer than adafactor");
  job.parallel.shardings = "rules";
  says("another optimizer than adafactor");
  // Rows of the batch are never padded.
  job.parallel.tensor = 2;
  job.parallel.data = 3;
  const std::string rows = Refusal(job, mesh::Topology::Local(6));
  EXPECT_NE(rows, "");
  EXPECT_EQ(rows.find("padded"), std::string::npos) << rows;
}

TEST(MakePlan, ParamsThatNothingFillsAreRejected) {
  auto plan = MakePlan(Job({}), mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  ir::Program& init = plan->programs["init"][0];
  EXPECT_TRUE(CheckInitialized(init, plan->Of("step")[0]).ok());
  EXPECT_TRUE(CheckInitialized(init, plan->Of("eval")[0]).ok());
  ASSERT_FALSE(init.slots.empty());
  const std::string name = init.slots[0].name;
  init.slots.erase(init.slots.begin());
  const Status refused = CheckInitialized(init, plan->Of("step")[0]);
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_NE(refused.message().find(name), std::string::npos) << refused;
}

// Shardings by the rules, but those of the evaluation as if there were no tensor group: its weights
// are not where the step has them.
Result<Strategies> ContradictingShardings(const ir::Graph& graph, const StageAssignment& stages,
                                          const Layout& layout,
                                          const std::map<std::string, mesh::Sharding>& known) {
  Layout used = layout;
  if (!known.empty()) used.degrees[Axis::kTensor] = 1;
  return ChooseStrategies(graph, stages, used, {}, layout.tensor());
}

TEST(MakePlan, ProgramsOfOneDevicePerStageAreVerifiedToo) {
  ir::JobRequest job = Job({});
  job.parallel.tensor = 4;
  job.parallel.data = 1;
  const mesh::Topology topology = mesh::Topology::Local(4);
  for (const PlanScope scope : {PlanScope::kAllDevices, PlanScope::kOnePerStage}) {
    EXPECT_TRUE(MakePlan(job, topology, scope).has_value());
    const auto plan = MakePlan(job, topology, scope, ContradictingShardings);
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().code(), StatusCode::kInternal) << plan.error();
  }
}

TEST(MakePlan, AWaitingCycleOfOneDevicePerStageIsFound) {
  ir::JobRequest job = Job({});
  job.parallel.pipeline = 2;
  job.parallel.data = 2;
  job.parallel.microbatches = 4;
  auto plan = MakePlan(job, mesh::Topology::Local(4), PlanScope::kOnePerStage);
  ASSERT_TRUE(plan.has_value()) << plan.error();
  ASSERT_EQ(plan->Main().size(), 2u);
  const ir::VerifyOptions one_per_mesh = {.one_per_mesh = true};
  EXPECT_TRUE(ir::VerifyPrograms(plan->Main(), one_per_mesh).ok());
  EXPECT_FALSE(ir::VerifyPrograms(plan->Main()).ok()) << "the other replica has no program";
  std::vector<ir::Instruction>& first = plan->programs.at("step")[0].instructions;
  const auto sends = [](const ir::Instruction& i) { return i.op == ir::Opcode::kSend; };
  first.erase(std::find_if(first.rbegin(), first.rend(), sends).base() - 1);
  const Status verified = ir::VerifyPrograms(plan->Main(), one_per_mesh);
  EXPECT_NE(verified.message().find("waits for ever"), std::string::npos) << verified;
}

TEST(MakePlan, FewProgramsAreAllMadeAndManyOnePerStage) {
  ir::JobRequest job = Job({.batch = 1024});
  job.parallel.data = 1;
  job.parallel.pipeline = 2;
  job.parallel.microbatches = 4;
  const auto of = [&](int64_t data, int64_t microbatches) {
    job.parallel.data = data;
    job.parallel.microbatches = microbatches;
    const auto plan =
        MakePlan(job, mesh::Topology::Local(static_cast<int>(2 * data)), PlanScope::kFewPrograms);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    return plan->scope;
  };
  EXPECT_EQ(of(2, 4), PlanScope::kAllDevices);
  EXPECT_EQ(of(16, 2), PlanScope::kAllDevices);
  EXPECT_EQ(of(16, 64), PlanScope::kOnePerStage);
}

TEST(MakePlan, AMisfitNamesWhatIsLeftToRaise) {
  ir::JobRequest job = Job({});
  job.parallel.recompute = "none";
  mesh::Topology topology = mesh::Topology::Local(2);
  for (mesh::Device& device : topology.devices) device.memory_bytes = 1;
  const auto says = [&](const std::string& words) {
    return Refusal(job, topology).find(words) != std::string::npos;
  };
  job.parallel.data = 2;
  EXPECT_TRUE(says("let replicas split more (ZeRO, now stage 0)")) << Refusal(job, topology);
  EXPECT_TRUE(says("compute more again (activation checkpointing)"));
  job.parallel.zero = 3;
  job.parallel.recompute = "full";
  EXPECT_FALSE(says("ZeRO")) << Refusal(job, topology);
  EXPECT_FALSE(says("checkpointing"));
  EXPECT_TRUE(says("raise tensor or pipeline"));
}

TEST(MakePlan, IdleDevicesAreMentioned) {
  const auto plan = MakePlan(Job({.batch = 6}), mesh::Topology::Local(4));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  ASSERT_FALSE(plan->notes.empty());
  EXPECT_EQ(
      plan->notes[0],
      "1 of 4 devices have no work: data=3 is the most that divides a global batch of 6 rows; "
      "with 8 rows data=4 would use 4");
  const auto full = MakePlan(Job({.batch = 8}), mesh::Topology::Local(4));
  ASSERT_TRUE(full.has_value()) << full.error();
  EXPECT_TRUE(full->notes.empty()) << full->notes[0];
}

TEST(MakePlan, PipelineOfAGraphWithoutLayersSaysHowToNumberThem) {
  ir::JobRequest job = Job({.layers = false});
  job.parallel.pipeline = 2;
  const std::string message = Refusal(job, mesh::Topology::Local(2));
  EXPECT_NE(message.find("number the blocks with Builder::SetLayer"), std::string::npos) << message;
}

}  // namespace
}  // namespace meshwright::planner
