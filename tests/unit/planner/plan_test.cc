// What a plan promises and what its refusals say.
#include "planner/plan.h"

#include <gtest/gtest.h>

#include "ir/builder.h"
#include "planner/lower.h"

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
  ValueId x = b.AddOne(Op::kEmbedding, {param("wte", {7, 16}), cut(0)});
  x = times(b.AddOne(Op::kGelu, {times(x, param("a.up", {16, shape.heads}))}),
            param("a.down", {shape.heads, 16}));
  if (shape.layers) b.SetLayer(1);
  x = times(b.AddOne(Op::kGelu, {times(x, param("b.up", {16, shape.units}))}),
            param("b.down", {shape.units, 16}));
  const auto loss = b.Add(Op::kCrossEntropy, {times(x, param("head", {16, 7})), cut(1)});
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
