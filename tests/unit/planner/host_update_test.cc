// The update of state that is in the host's memory by the host: what is copied, what the verifier
// says, and which share of it is the host's.
#include "planner/host_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "planner/decided.h"
#include "planner/forecast.h"
#include "planner/overlap.h"
#include "planner/plan.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::DType;
using ir::MemoryKind;
using ir::Op;
using ir::Opcode;

constexpr int64_t kWeights = 4;
constexpr int64_t kWeightBytes = 16 * 16 * 4;
constexpr int64_t kStateBytes = 2 * kWeightBytes;  // of one weight
constexpr int64_t kScalarBytes = 2 * 4;            // the clip's multiplier and the rate

// Weights of 16 x 16 with their state in the host's memory, of which it renews some.
ir::JobRequest HostJob(int64_t percent) {
  Builder b("loss");
  const auto param = [&](const std::string& name) {
    return b.AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, {16, 16}}});
  };
  const ValueId tokens = b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {8, 5}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", 4}});
  };
  ValueId x = b.AddOne(Op::kEmbedding, {param("wte"), cut(0)});
  for (const char* const name : {"a", "b", "head"}) {
    x = b.AddOne(Op::kEinsum, {x, param(name)}, {{"equation", "bsk,kn->bsn"}});
  }
  const auto loss = b.Add(Op::kCrossEntropy, {x, cut(1)});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  ir::JobRequest job;
  job.name = "job";
  job.SetLoss(*b.Finish());
  job.train.global_batch = 8;
  job.train.sequence = 4;
  job.optimizer.max_norm = 1;
  job.parallel.optimizer_memory = "host";
  job.parallel.offload_chunk_bytes = kStateBytes;
  job.parallel.host_update = percent;
  job.parallel.zero_min_bytes = 0;
  return job;
}

// Bytes that come and go, by kind.
struct Moved {
  std::map<MemoryKind, int64_t> in;
  std::map<MemoryKind, int64_t> out;
};

Moved MovedBy(const ir::Program& program) {
  Moved moved;
  for (const ir::Instruction& each : program.instructions) {
    if (!ir::IsTierCopy(each.op)) continue;
    const ir::Slot& slot = program.slot(each.inputs[0]);
    (each.op == Opcode::kPrefetch ? moved.in : moved.out)[slot.kind] += slot.type.bytes();
  }
  return moved;
}

int64_t RunsOfHost(const ir::Program& program) {
  return std::count_if(program.instructions.begin(), program.instructions.end(),
                       [&](const ir::Instruction& each) { return ir::RunsOnHost(program, each); });
}

TEST(HostUpdate, GradientsGoOutAndWeightsComeBack) {
  for (const int64_t microbatches : {1, 4}) {
    ir::JobRequest job = HostJob(100);
    job.parallel.microbatches = microbatches;
    const auto plan = MakePlan(job, mesh::Topology::Local(1));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const ir::Program& step = plan->Main()[0];
    Moved moved = MovedBy(step);
    EXPECT_EQ(RunsOfHost(step), kWeights) << ir::FormatProgram(step);
    EXPECT_EQ(moved.in[MemoryKind::kOptimizer], 0);
    EXPECT_EQ(moved.out[MemoryKind::kOptimizer], 0);
    EXPECT_EQ(moved.out[MemoryKind::kGradients], kWeights * kWeightBytes);
    EXPECT_EQ(moved.out[MemoryKind::kWeights], 0);
    // Once, however many microbatches read them.
    EXPECT_EQ(moved.in[MemoryKind::kWeights], kWeights * kWeightBytes);
    EXPECT_LE(moved.out[MemoryKind::kOther], kScalarBytes);
    const FarMemory& host = plan->memory[0].host;
    EXPECT_EQ(host.bytes.at(MemoryKind::kOptimizer), kWeights * kStateBytes);
    EXPECT_EQ(host.bytes.at(MemoryKind::kWeights), kWeights * kWeightBytes);
  }
}

TEST(HostUpdate, ChunksAreDealtOut) {
  for (const auto& [percent, hosts] :
       {std::pair<int64_t, int64_t>{0, 0}, {25, 1}, {50, 2}, {75, 3}}) {
    const auto plan = MakePlan(HostJob(percent), mesh::Topology::Local(1));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const ir::Program& step = plan->Main()[0];
    Moved moved = MovedBy(step);
    EXPECT_EQ(RunsOfHost(step), hosts) << percent;
    const int64_t devices = kWeights - hosts;
    EXPECT_EQ(moved.in[MemoryKind::kOptimizer], devices * kStateBytes) << percent;
    EXPECT_EQ(moved.out[MemoryKind::kOptimizer], devices * kStateBytes) << percent;
    EXPECT_EQ(moved.out[MemoryKind::kGradients], hosts * kWeightBytes) << percent;
    EXPECT_EQ(moved.in[MemoryKind::kWeights], hosts * kWeightBytes) << percent;
  }
}

// Replicas that split the state renew blocks, which they gather: a block goes out, is renewed and
// comes back.
TEST(HostUpdate, BlocksOfReplicasComeBack) {
  ir::JobRequest job = HostJob(100);
  job.parallel.data = 2;
  job.parallel.zero = 1;
  const auto plan = MakePlan(job, mesh::Topology::Local(2));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const ir::Program& step = plan->Main()[0];
  Moved moved = MovedBy(step);
  EXPECT_EQ(RunsOfHost(step), kWeights / 2) << ir::FormatProgram(step);  // blocks are half as large
  int64_t in = 0;
  int64_t out = 0;
  for (const auto& [kind, bytes] : moved.in) in += bytes;
  for (const auto& [kind, bytes] : moved.out) out += bytes;
  EXPECT_EQ(in, kWeights * kWeightBytes / 2);
  EXPECT_EQ(out, 2 * kWeights * kWeightBytes / 2 + kScalarBytes);
}

TEST(HostUpdate, TextSaysWhoRuns) {
  const auto plan = MakePlan(HostJob(100), mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const ir::Program& step = plan->Main()[0];
  const auto parsed = ir::ParseProgram(ir::FormatProgram(step));
  ASSERT_TRUE(parsed.has_value()) << parsed.error();
  EXPECT_EQ(*parsed, step);
  EXPECT_EQ(RunsOfHost(*parsed), kWeights);
}

// What goes wrong if the step is otherwise.
std::string Wrong(const std::function<void(ir::Program&)>& change) {
  auto plan = MakePlan(HostJob(100), mesh::Topology::Local(1));
  ir::Program step = plan->Main()[0];
  change(step);
  const Status status = ir::VerifyPrograms({&step, 1}, {});
  return status.ok() ? "" : status.message();
}

size_t FirstHostRun(const ir::Program& step) {
  const auto found = std::find_if(step.instructions.begin(), step.instructions.end(),
                                  [&](const auto& each) { return ir::RunsOnHost(step, each); });
  return static_cast<size_t>(found - step.instructions.begin());
}

TEST(HostUpdate, TheVerifierFindsWhatTheHostMisses) {
  EXPECT_EQ(Wrong([](ir::Program&) {}), "");
  const std::string missing = Wrong([](ir::Program& step) {
    const ir::Instruction& run = step.instructions[FirstHostRun(step)];
    std::erase_if(step.instructions, [&, inputs = run.inputs](const ir::Instruction& each) {
      const auto gives = [&](SlotId id) { return each.outputs == std::vector<SlotId>{id}; };
      return each.op == Opcode::kOffload && std::any_of(inputs.begin(), inputs.end(), gives);
    });
  });
  EXPECT_NE(missing.find("is not alive"), std::string::npos) << missing;
  // One operand of the device's memory.
  const std::string mixed = Wrong([](ir::Program& step) {
    ir::Instruction& run = step.instructions[FirstHostRun(step)];
    for (const ir::Instruction& each : step.instructions) {
      if (each.op != Opcode::kOffload) continue;
      std::replace(run.inputs.begin(), run.inputs.end(), each.outputs[0], each.inputs[0]);
    }
  });
  EXPECT_NE(mixed.find("is in the host's memory: PREFETCH it"), std::string::npos) << mixed;
  // A copy of the weight that was fetched before and ends behind it is old.
  const std::string old = Wrong([](ir::Program& step) {
    size_t at = FirstHostRun(step);
    ir::Instruction fetch;
    fetch.op = Opcode::kPrefetch;
    fetch.inputs = {step.instructions[at].outputs[0]};
    fetch.outputs = {SlotId(static_cast<int32_t>(step.slots.size()))};
    ir::Slot slot;
    slot.type = step.slot(fetch.inputs[0]).type;
    slot.name = "copy";
    slot.offset_bytes = (step.arena_bytes + 63) / 64 * 64;
    step.arena_bytes = slot.offset_bytes + slot.type.bytes();
    step.slots.push_back(slot);
    ir::Instruction give;
    give.op = Opcode::kOffload;
    give.inputs = fetch.outputs;
    give.outputs = fetch.inputs;
    step.instructions.insert(step.instructions.begin() + static_cast<int64_t>(at), fetch);
    step.instructions.insert(step.instructions.begin() + static_cast<int64_t>(at) + 2, give);
  });
  EXPECT_NE(old.find("is an old copy"), std::string::npos) << old;
}

TEST(HostUpdate, BothEndTogether) {
  // Of a link that is not in the way: every k-th chunk is the device's, k - 1 = t_device / t_host.
  const auto share = [](double device_s, double host_s) {
    return static_cast<double>(BestHostShare({device_s, host_s, 0, 0})) / 100;
  };
  for (const double ratio : {0.25, 1.0, 3.0, 9.0}) {
    EXPECT_NEAR(share(ratio, 1), ratio / (1 + ratio), 0.01) << ratio;
  }
  // Where the link is what takes longest the host renews as much as it can meanwhile.
  EXPECT_EQ(BestHostShare({0.1, 0.5, 4, 1}), 100);
  EXPECT_NEAR(static_cast<double>(BestHostShare({0.1, 2, 4, 1})) / 100, 0.8, 0.01);
  // No share that is tried is better.
  for (const UpdateTimes& times : {UpdateTimes{1, 2, 3, 1}, UpdateTimes{5, 1, 1, 4},
                                   UpdateTimes{2, 2, 2, 2}, UpdateTimes{0.2, 3, 1, 0.5}}) {
    const double best_s = SecondsOfUpdate(times, BestHostShare(times));
    for (int64_t percent = 0; percent <= 100; ++percent) {
      EXPECT_LE(best_s, SecondsOfUpdate(times, percent)) << percent;
    }
  }
}

mesh::Topology WithLink(double bytes_per_s) {
  mesh::Topology topology = mesh::Topology::Local(1);
  mesh::DeviceProfile profile = *mesh::DefaultDeviceProfile();
  profile.links.memory = mesh::LinkCost{0, 1 / bytes_per_s};
  topology.devices[0].profile = std::make_shared<const mesh::DeviceProfile>(profile);
  return topology;
}

TEST(HostUpdate, TheShareIsOpen) {
  ir::JobRequest job = HostJob(-1);
  // A slow link: all by the host. The plan says so, and keeps it.
  const auto slow = MakePlan(job, WithLink(1e8));
  ASSERT_TRUE(slow.has_value()) << slow.error();
  EXPECT_EQ(slow->decided.host_update, 100);
  EXPECT_EQ(RunsOfHost(slow->Main()[0]), kWeights);
  EXPECT_NE(slow->notes.back().find("the host renews 100 %"), std::string::npos)
      << slow->notes.back();
  ir::ParallelSpec again;
  PinMemories(*slow, again);
  EXPECT_EQ(again.host_update, 100);
  EXPECT_EQ(again.optimizer_memory, "host");
  // A link that is no hindrance: half and half.
  const auto fast = MakePlan(job, WithLink(1e15));
  ASSERT_TRUE(fast.has_value()) << fast.error();
  EXPECT_EQ(fast->decided.host_update, 50);
  // Nothing is there.
  job.parallel.optimizer_memory = "device";
  const auto near = MakePlan(job, WithLink(1e8));
  ASSERT_TRUE(near.has_value()) << near.error();
  EXPECT_EQ(near->decided.host_update, 0);
}

TEST(HostUpdate, WhatTheHostCannotRenewIsRefused) {
  const auto refused = [](const ir::JobRequest& job, const mesh::Topology& topology) {
    const auto plan = MakePlan(job, topology);
    return plan.has_value() ? "" : plan.error().message();
  };
  const mesh::Topology local = mesh::Topology::Local(1);
  ir::JobRequest job = HostJob(50);
  EXPECT_EQ(refused(job, local), "");
  job.parallel.weights_memory = "disk";
  EXPECT_NE(refused(job, local).find("weights that are on a disk"), std::string::npos);
  job.parallel.weights_memory = "device";
  job.parallel.optimizer_memory = "disk";
  EXPECT_NE(refused(job, local).find("optimizer_memory is \"disk\""), std::string::npos);
  job.parallel.optimizer_memory = "host";
}

// The host of a GPU has threads for each, and a core of them is no GPU: what is free of all of a
// host's cores tells how much it renews.
TEST(HostUpdate, TheHostOfAGpuHasThreads) {
  const ir::JobRequest job = HostJob(-1);
  const auto share = [&](int cores, int count) {
    mesh::Topology gpus = mesh::Topology::Local(count);
    for (mesh::Device& each : gpus.devices) {
      each.profile = mesh::KnownDeviceProfiles().at("a100-80g");
    }
    gpus.hosts["local"].cores = cores;
    const UpdateTimes times = TimesOfUpdate(job, gpus, 1e9);
    EXPECT_GT(times.host_s, 10 * times.device_s) << cores;
    return std::pair(times.host_s, BestHostShare(times));
  };
  const auto [one_s, least] = share(1, 1);
  const auto [four_s, more] = share(8, 2);
  const auto [eight_s, most] = share(64, 1);
  EXPECT_NEAR(four_s, one_s / 4, 1e-9 * one_s);
  EXPECT_NEAR(eight_s, one_s / 8, 1e-9 * one_s);
  EXPECT_GT(least, 0);
  EXPECT_GT(more, least);
  EXPECT_GE(most, more);
}

// The host of a GPU renews at the rate of its own cores, whatever the GPU is called, and the link
// to its memory is that of GPUs.
TEST(HostUpdate, AGpuOfAnotherNameIsAGpu) {
  const ir::JobRequest job = HostJob(-1);
  const auto times = [&](const char* name) {
    mesh::Topology gpus = mesh::Topology::Local(1);
    mesh::DeviceProfile profile = *mesh::KnownDeviceProfiles().at("a100-80g");
    profile.name = name;
    gpus.devices[0].profile = std::make_shared<const mesh::DeviceProfile>(profile);
    EXPECT_TRUE(IsGpu(gpus.ProfileOf(0))) << name;
    EXPECT_DOUBLE_EQ(1 / TierLinkOf(gpus.ProfileOf(0), ir::Space::kHost).seconds_per_byte, 24e9);
    return TimesOfUpdate(job, gpus, 1e9);
  };
  const UpdateTimes known = times("a100-80g");
  const UpdateTimes own = times("ours");
  EXPECT_GT(own.host_s, 10 * own.device_s);
  EXPECT_EQ(own.host_s, known.host_s);
  EXPECT_EQ(own.device_s, known.device_s);
}

// The host's work is beside the device's, and a step is no shorter than it.
TEST(HostUpdate, TheForecastCountsTheHostsWork) {
  struct Times {
    double step_s = 0;
    double host_s = 0;
  };
  const auto of = [](int threads, int64_t percent) {
    mesh::Topology topology = WithLink(1e15);
    topology.devices[0].threads = threads;
    const auto plan = MakePlan(HostJob(percent), topology);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    const auto forecast = ForecastStep(*plan, topology);
    EXPECT_TRUE(forecast.has_value()) << forecast.error();
    return Times{forecast->step_s, forecast->simulation.host_busy_s[0]};
  };
  const Times one = of(1, 100);
  const Times eight = of(8, 100);
  const Times half = of(8, 50);
  EXPECT_EQ(of(8, 0).host_s, 0);
  EXPECT_GT(one.host_s, 0);
  // A thread of the host against all of the device's.
  EXPECT_NEAR(eight.host_s, 8 * one.host_s, 1e-9 * eight.host_s);
  EXPECT_NEAR(half.host_s, eight.host_s / 2, 1e-9 * eight.host_s);
  for (const Times& times : {one, eight, half}) EXPECT_GE(times.step_s, times.host_s);
  EXPECT_GT(eight.step_s, one.step_s);
}

// A link that is slow is busy with 2 x 8 bytes per weight, or with 4 out and 4 in.
TEST(HostUpdate, IsPriced) {
  constexpr double kBytesPerS = 1e6;
  const auto step_s = [&](int64_t percent) {
    const auto topology = WithLink(kBytesPerS);
    const auto plan = MakePlan(HostJob(percent), topology);
    const auto forecast = ForecastStep(*plan, topology);
    return forecast.has_value() ? forecast->step_s : 0;
  };
  const double link_of_device_s = 2.0 * kWeights * kStateBytes / kBytesPerS;
  const double link_of_host_s = 2.0 * kWeights * kWeightBytes / kBytesPerS;
  EXPECT_GE(step_s(0), link_of_device_s);
  EXPECT_LE(step_s(0), 1.1 * link_of_device_s);
  EXPECT_GE(step_s(100), link_of_host_s);
  EXPECT_LE(step_s(100), 1.1 * link_of_host_s);
}

}  // namespace
}  // namespace meshwright::planner
