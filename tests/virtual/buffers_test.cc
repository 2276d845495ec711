// What a GPT-2 step keeps in memory: no logits of all tokens, no matrix of attention scores.
#include <gtest/gtest.h>

#include <algorithm>

#include "client/trainer.h"
#include "mesh/topology.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "ops/kernel_table.h"
#include "planner/plan.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kSequence = 256;
constexpr int64_t kBatch = 2;

planner::Plan PlanGpt2(int devices, int64_t data, int64_t microbatches = 1) {
  ir::TrainSpec train;
  train.global_batch = kBatch;
  train.sequence = kSequence;
  auto job = client::JobBuilder("gpt2").Train(train).Build(models::MakeGpt2({}));
  EXPECT_TRUE(job) << job.error();
  job->parallel.data = data;
  job->parallel.microbatches = microbatches;
  auto plan = planner::MakePlan(*job, mesh::Topology::Local(devices));
  EXPECT_TRUE(plan) << plan.error();
  return *std::move(plan);
}

void ExpectNoLargeBuffers(const ir::Program& program, int64_t tokens) {
  const int64_t vocabulary = models::Gpt2Config().vocabulary;
  const auto check = [&](const ir::TensorType& type, const std::string& name) {
    EXPECT_LE(std::count(type.dims.begin(), type.dims.end(), kSequence), 1)
        << name << " " << type.ToString() << " has scores";
    const bool logits = type.rank() >= 2 && type.dims.back() == vocabulary;
    EXPECT_TRUE(!logits || type.elements() / vocabulary <= tokens / 2)
        << name << " " << type.ToString() << " has the logits of all tokens";
  };
  for (const ir::Slot& slot : program.slots) check(slot.type, slot.name);
  for (const ir::Executable& executable : program.executables) {
    for (const ir::Value& value : executable.graph->values) {
      check(value.type, executable.graph->name);
    }
  }
}

TEST(Buffers, Gpt2StepHasNeitherLogitsNorScores) {
  for (const int devices : {1, 2}) {
    const planner::Plan plan = PlanGpt2(devices, devices);
    ASSERT_EQ(plan.Of("step").size(), static_cast<size_t>(devices));
    const int64_t tokens = kBatch * kSequence / devices;
    for (const auto* programs : {&plan.Of("step"), &plan.Of("eval")}) {
      for (const ir::Program& program : *programs) ExpectNoLargeBuffers(program, tokens);
    }
  }
}

int64_t BytesOfKind(const planner::Plan& plan, ir::MemoryKind kind) {
  const auto it = plan.memory[0].bytes.find(kind);
  return it == plan.memory[0].bytes.end() ? 0 : it->second;
}

// Gradients are as large as the weights: the tied table has one, sums over microbatches have no
// second one to add, and activations make room for them.
TEST(Buffers, Gpt2GradientsAreOneTensorPerWeight) {
  constexpr int64_t kLarge = int64_t{4} << 20;  // every matrix but that of the positions
  for (const int64_t microbatches : {1, 2}) {
    const planner::Plan plan = PlanGpt2(1, 1, microbatches);
    const int64_t weights = BytesOfKind(plan, ir::MemoryKind::kWeights);
    EXPECT_LE(BytesOfKind(plan, ir::MemoryKind::kGradients), weights + 4096);
    for (const ir::Executable& executable : plan.Of("step")[0].executables) {
      const ir::Graph& graph = *executable.graph;
      for (const ir::Node& node : graph.nodes) {
        const bool sums = node.op == ir::Op::kAdd || node.op == ir::Op::kSum;
        if (!sums || graph.type(node.outputs[0]).bytes() < kLarge) continue;
        EXPECT_NE(node.phase, ir::Phase::kUpdate);
        EXPECT_NE(graph.producer(node.inputs[0]).op, ir::Op::kInput) << "a sum of gradients";
      }
    }
  }
  const planner::Plan plan = PlanGpt2(1, 1);
  const int64_t weights = BytesOfKind(plan, ir::MemoryKind::kWeights);
  EXPECT_LE(plan.memory[0].total_bytes, weights * 415 / 100);
}

// Where no op accumulates (bf16 products into f32), each summand goes as soon as it is added.
TEST(Buffers, SumsOverMicrobatchesHoldOneSummandAtATime) {
  ir::TrainSpec train;
  train.global_batch = kBatch;
  train.sequence = kSequence;
  train.compute_dtype = ir::DType::kBF16;
  auto job = client::JobBuilder("gpt2").Train(train).Build(models::MakeGpt2({}));
  ASSERT_TRUE(job) << job.error();
  job->parallel.microbatches = 2;
  const auto plan = planner::MakePlan(*job, mesh::Topology::Local(1));
  ASSERT_TRUE(plan) << plan.error();
  EXPECT_LE(BytesOfKind(*plan, ir::MemoryKind::kWorkspace), int64_t{64} << 20);
}

// Clipping, reduction over replicas and AdamW in place: no second copy of anything.
TEST(Buffers, TheUpdateNeedsNoMemoryOfItsOwn) {
  for (const int devices : {1, 2}) {
    const planner::Plan plan = PlanGpt2(devices, devices);
    for (const ir::Executable& executable : plan.Of("step")[0].executables) {
      if (executable.graph->nodes.back().phase != ir::Phase::kUpdate) continue;
      EXPECT_LE(ir::PlanWorkspace(*executable.graph).bytes, 1 << 16) << executable.graph->name;
    }
    const int64_t weights = BytesOfKind(plan, ir::MemoryKind::kWeights);
    EXPECT_LE(plan.memory[0].total_bytes, weights * 42 / 10) << devices;
  }
}

// A fused node without a kernel of its own would run step by step, slower than unfused.
TEST(Buffers, EveryFusedNodeOfAModelIsOnePassOnTheCpu) {
  ir::TrainSpec train;
  train.global_batch = kBatch;
  train.sequence = kSequence;
  models::Gpt2Config gpt2;
  gpt2.layers = 2;
  gpt2.residual_dropout = 0.1;
  models::LlamaConfig llama;
  llama.layers = 2;
  int fused = 0;
  for (const auto& functions : {models::MakeGpt2(gpt2), models::MakeLlama(llama)}) {
    auto job = client::JobBuilder("one-pass").Train(train).Build(functions);
    ASSERT_TRUE(job) << job.error();
    const auto plan = planner::MakePlan(*job, mesh::Topology::Local(1));
    ASSERT_TRUE(plan) << plan.error();
    for (const ir::Executable& executable : plan->Of("step")[0].executables) {
      const ir::Graph& graph = *executable.graph;
      for (NodeId id : graph.NodesOf(ir::Op::kFused)) {
        ops::KernelSpec spec{ir::Op::kFused, graph.node(id).attrs, {}, {}, {}};
        for (ValueId value : graph.node(id).inputs) spec.inputs.push_back(graph.type(value));
        for (ValueId value : graph.node(id).outputs) spec.outputs.push_back(graph.type(value));
        const auto kernel = ops::MakeCpuKernel(spec);
        ASSERT_TRUE(kernel) << kernel.error();
        EXPECT_NE(*kernel, nullptr) << spec.attrs.Strs("body")[0] << " ... of " << graph.name;
        ++fused;
      }
    }
  }
  EXPECT_GT(fused, 20);
}

}  // namespace
}  // namespace meshwright::testing
