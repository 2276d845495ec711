// What is cut and copied where something is in a farther memory than the device's.
#include "planner/tiers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "base/text.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "planner/cut_piece.h"
#include "planner/forecast.h"
#include "planner/plan.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::DType;
using ir::Op;
using ir::Opcode;

// Four weights of 16 x 16, so that each has 2 KiB of state.
ir::JobRequest FourWeights() {
  Builder b("loss");
  const auto param = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, std::move(dims)}});
  };
  const ValueId tokens = b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {8, 5}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", 4}});
  };
  ValueId x = b.AddOne(Op::kEmbedding, {param("wte", {16, 16}), cut(0)});
  for (const char* const name : {"a", "b", "head"}) {
    x = b.AddOne(Op::kEinsum, {x, param(name, {16, 16})}, {{"equation", "bsk,kn->bsn"}});
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
  return job;
}

ir::JobRequest OnHost(int64_t chunk_bytes) {
  ir::JobRequest job = FourWeights();
  job.parallel.optimizer_memory = "host";
  job.parallel.offload_chunk_bytes = chunk_bytes;
  return job;
}

std::vector<Opcode> OpcodesOf(const ir::Program& program) {
  std::vector<Opcode> ops;
  for (const ir::Instruction& instruction : program.instructions) {
    if (instruction.op != Opcode::kFree) ops.push_back(instruction.op);
  }
  return ops;
}

TEST(PlaceState, CopiesAChunkWhileAnotherIsUpdated) {
  const auto plan = MakePlan(OnHost(2048), mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const ir::Program& step = plan->Main()[0];
  constexpr auto kRun = Opcode::kRun;
  constexpr auto kIn = Opcode::kPrefetch;
  constexpr auto kOut = Opcode::kOffload;
  // Forward, backward, norm; then a chunk for each weight, of which two tensors come and go.
  const std::vector<Opcode> ends = {kIn,  kIn,  kRun, kIn, kIn,  kRun, kOut, kOut, kIn,  kIn, kRun,
                                    kOut, kOut, kIn,  kIn, kRun, kOut, kOut, kRun, kOut, kOut};
  std::vector<Opcode> ops = OpcodesOf(step);
  ASSERT_GE(ops.size(), ends.size());
  ops.erase(ops.begin(), ops.end() - static_cast<int64_t>(ends.size()));
  EXPECT_EQ(ops, ends) << ir::FormatProgram(step);
}

TEST(PlaceState, AChunkHoldsAsMuchAsItMay) {
  for (const auto& [chunk_bytes, chunks] :
       {std::pair<int64_t, int>{1, 4}, {2048, 4}, {4096, 2}, {6144, 2}, {1 << 20, 1}}) {
    const auto plan = MakePlan(OnHost(chunk_bytes), mesh::Topology::Local(1));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const ir::Program& step = plan->Main()[0];
    int readers = 0;
    for (const ir::Instruction& instruction : step.instructions) {
      if (instruction.op != Opcode::kRun) continue;
      const auto& inputs = instruction.inputs;
      readers += std::any_of(inputs.begin(), inputs.end(),
                             [&](SlotId id) { return step.slot(id).name.starts_with("copy/"); });
    }
    EXPECT_EQ(readers, chunks) << chunk_bytes;
  }
}

TEST(PlaceState, TheDeviceHoldsThreeChunksOfState) {
  const auto whole = MakePlan(FourWeights(), mesh::Topology::Local(1));
  const auto plan = MakePlan(OnHost(2048), mesh::Topology::Local(1));
  ASSERT_TRUE(whole.has_value() && plan.has_value());
  const DeviceMemory& memory = plan->memory[0];
  constexpr int64_t kState = 4 * 2048;
  EXPECT_EQ(memory.host.bytes.at(ir::MemoryKind::kOptimizer), kState);
  EXPECT_EQ(memory.host.total_bytes, kState);
  EXPECT_EQ(whole->memory[0].bytes.at(ir::MemoryKind::kOptimizer), kState);
  EXPECT_TRUE(whole->memory[0].host.bytes.empty());
  EXPECT_LE(memory.total_bytes, whole->memory[0].total_bytes - kState + 3 * 2048 + 256);
  int64_t copied = 0;
  for (const ir::Slot& slot : plan->Main()[0].slots) {
    if (slot.name.starts_with("copy/")) copied += slot.type.bytes();
  }
  EXPECT_EQ(copied, kState);
}

// A link that takes two thirds of a step for each way.
mesh::Topology SlowLink(const ir::JobRequest& near, int64_t memory_bytes) {
  mesh::Topology topology = mesh::Topology::Local(1);
  const auto plan = MakePlan(near, topology);
  const auto step = ForecastStep(*plan, topology);
  EXPECT_TRUE(step.has_value());
  mesh::DeviceProfile profile = *mesh::DefaultDeviceProfile();
  profile.links.memory = mesh::LinkCost{0, 2 * step->step_s / 3 / (4 * 2048)};
  topology.devices[0].profile = std::make_shared<const mesh::DeviceProfile>(profile);
  topology.devices[0].memory_bytes = memory_bytes;
  return topology;
}

// Where a device has room, what comes is there before the update; a link that is busy all the time
// is what a step then takes, whatever computes.
TEST(PlaceState, ComesEarlyWhereThereIsRoom) {
  const ir::JobRequest job = OnHost(2048);
  const auto least = MakePlan(job, SlowLink(FourWeights(), 0));
  ASSERT_TRUE(least.has_value()) << least.error();
  const int64_t needed = least->memory[0].total_bytes;
  const auto ahead = [&](int64_t memory_bytes) {
    const auto topology = SlowLink(FourWeights(), memory_bytes);
    auto plan = MakePlan(job, topology);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    const auto forecast = ForecastStep(*plan, topology);
    int64_t first = 0;  // copies before anything runs
    for (const Opcode op : OpcodesOf(plan->Main()[0])) {
      if (op != Opcode::kPrefetch) break;
      ++first;
    }
    return std::tuple(std::move(*plan), first, forecast->step_s);
  };
  // An eighth of the memory stays free: nothing changes.
  const auto [tight, none, tight_s] = ahead(needed + needed / 16);
  EXPECT_EQ(OpcodesOf(tight.Main()[0]), OpcodesOf(least->Main()[0]));
  EXPECT_EQ(tight.memory[0].total_bytes, needed);
  EXPECT_EQ(none, 0);
  constexpr int64_t kRoom = 1 << 20;
  const auto [roomy, all, roomy_s] = ahead(kRoom);
  EXPECT_EQ(all, 8) << ir::FormatProgram(roomy.Main()[0]);
  EXPECT_LE(roomy.memory[0].total_bytes, needed + 4 * 2048);
  EXPECT_NE(roomy.notes.back().find("fetched ahead"), std::string::npos) << roomy.notes.back();
  const ir::Program& step = roomy.Main()[0];
  EXPECT_TRUE(ir::VerifyPrograms({&step, 1}, {}).ok());
  // The link carries 4/3 of what computes.
  const auto near_topology = mesh::Topology::Local(1);
  const auto near = MakePlan(FourWeights(), near_topology);
  const double near_s = ForecastStep(*near, near_topology)->step_s;
  EXPECT_NEAR(roomy_s, 4 * near_s / 3, 0.1 * near_s);
  EXPECT_GT(tight_s, roomy_s + 0.1 * near_s);
}

TEST(PlaceState, TextSaysWhichMemory) {
  const auto plan = MakePlan(OnHost(2048), mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const ir::Program& step = plan->Main()[0];
  const std::string text = ir::FormatProgram(step);
  EXPECT_NE(text.find("persistent host optimizer \"opt.m/wte\""), std::string::npos) << text;
  const auto parsed = ir::ParseProgram(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error();
  EXPECT_EQ(*parsed, step);
}

// What goes wrong if one instruction is left out or named otherwise.
std::string Wrong(const std::function<void(ir::Program&)>& change) {
  auto plan = MakePlan(OnHost(2048), mesh::Topology::Local(1));
  ir::Program step = plan->Main()[0];
  change(step);
  const Status status = ir::VerifyPrograms({&step, 1}, {});
  return status.ok() ? "" : status.message();
}

int64_t FirstOf(const ir::Program& step, Opcode op) {
  const auto found = std::find_if(step.instructions.begin(), step.instructions.end(),
                                  [&](const ir::Instruction& each) { return each.op == op; });
  return found - step.instructions.begin();
}

TEST(PlaceState, TheVerifierFindsWhatIsLost) {
  EXPECT_EQ(Wrong([](ir::Program&) {}), "");
  const std::string kept = Wrong([](ir::Program& step) {
    step.instructions.erase(step.instructions.begin() + FirstOf(step, Opcode::kOffload));
  });
  EXPECT_NE(kept.find("was written and ends before it is given back"), std::string::npos) << kept;
  const std::string unread = Wrong([](ir::Program& step) {
    step.instructions.erase(step.instructions.begin() + FirstOf(step, Opcode::kPrefetch));
  });
  EXPECT_NE(unread.find("is not alive"), std::string::npos) << unread;
  const std::string direct = Wrong([](ir::Program& step) {
    const ir::Instruction fetch =
        step.instructions[static_cast<size_t>(FirstOf(step, Opcode::kPrefetch))];
    for (ir::Instruction& each : step.instructions) {
      if (each.op != Opcode::kRun) continue;
      std::replace(each.inputs.begin(), each.inputs.end(), fetch.outputs[0], fetch.inputs[0]);
    }
  });
  EXPECT_NE(direct.find("is in the host's memory: PREFETCH it"), std::string::npos) << direct;
  const std::string elsewhere = Wrong([](ir::Program& step) {
    std::vector<ir::Instruction*> offloads;
    for (ir::Instruction& each : step.instructions) {
      if (each.op == Opcode::kOffload) offloads.push_back(&each);
    }
    std::swap(offloads[0]->outputs, offloads[1]->outputs);
  });
  EXPECT_NE(elsewhere.find("holds \"opt."), std::string::npos) << elsewhere;
}

// A second copy of the first slot that is given back, in bytes of its own; how to fetch it.
ir::Instruction SecondCopy(ir::Program& step) {
  const auto offload = static_cast<size_t>(FirstOf(step, Opcode::kOffload));
  ir::Instruction fetch;
  fetch.op = Opcode::kPrefetch;
  fetch.inputs = step.instructions[offload].outputs;
  fetch.outputs = {SlotId(static_cast<int32_t>(step.slots.size()))};
  ir::Slot slot = step.slot(step.instructions[offload].inputs[0]);
  slot.offset_bytes = (step.arena_bytes + 63) / 64 * 64;
  step.arena_bytes = slot.offset_bytes + slot.type.bytes();
  step.slots.push_back(slot);
  return fetch;
}

TEST(PlaceState, TheVerifierFindsCopiesThatAreOld) {
  const std::string early = Wrong([](ir::Program& step) {
    const ir::Instruction fetch = SecondCopy(step);
    step.instructions.insert(step.instructions.begin() + FirstOf(step, Opcode::kOffload), fetch);
  });
  EXPECT_NE(early.find("does not hold yet what was written"), std::string::npos) << early;
  const std::string old = Wrong([](ir::Program& step) {
    const ir::Instruction fetch = SecondCopy(step);
    const auto first = static_cast<size_t>(FirstOf(step, Opcode::kOffload));
    step.instructions[first].inputs = fetch.outputs;
    step.instructions.insert(step.instructions.begin(), fetch);
  });
  EXPECT_NE(old.find("is an old copy"), std::string::npos) << old;
}

// ---- what is made in a step ----

// As FourWeights, `layers` products one after the other: each leaves what it reads, 32 x 4 x 16
// floats, for its backward.
constexpr int64_t kRows = 32;
constexpr int64_t kKeptBytes = kRows * 4 * 16 * 4;
constexpr int64_t kTokenBytes = kRows * 4 * 4;  // that the embedding's gradient reads
constexpr int64_t kGradientBytes = 16 * 16 * 4;

ir::JobRequest Products(int layers) {
  Builder b("loss");
  const auto param = [&](const std::string& name) {
    return b.AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, {16, 16}}});
  };
  const ValueId tokens =
      b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {kRows, 5}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", 4}});
  };
  ValueId x = b.AddOne(Op::kEmbedding, {param("wte"), cut(0)});
  for (int i = 0; i < layers; ++i) {
    x = b.AddOne(Op::kEinsum, {x, param("w" + std::to_string(i))}, {{"equation", "bsk,kn->bsn"}});
  }
  const auto loss = b.Add(Op::kCrossEntropy, {x, cut(1)});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  ir::JobRequest job = FourWeights();
  job.SetLoss(*b.Finish());
  job.train.global_batch = kRows;
  return job;
}

// Bytes that come and go, by kind.
struct Moved {
  std::map<ir::MemoryKind, int64_t> in;
  std::map<ir::MemoryKind, int64_t> out;
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

TEST(PlaceState, ActivationsGoWhileOthersAreMade) {
  constexpr int kLayers = 12;
  ir::JobRequest job = Products(kLayers);
  const auto whole = MakePlan(job, mesh::Topology::Local(1));
  job.parallel.activations_memory = "host";
  job.parallel.offload_chunk_bytes = kKeptBytes;
  const auto plan = MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(whole.has_value() && plan.has_value()) << plan.error();
  const ir::Program& step = plan->Main()[0];
  // Each goes once and comes once, but for the last one, which the backward needs at once: Belady's
  // rule keeps what is needed again soonest.
  const Moved moved = MovedBy(step);
  constexpr auto kKind = ir::MemoryKind::kActivations;
  ASSERT_TRUE(moved.in.contains(kKind)) << ir::FormatProgram(step);
  EXPECT_EQ(moved.in.at(kKind), moved.out.at(kKind));
  EXPECT_EQ(moved.in.size(), 1u);
  EXPECT_EQ(moved.in.at(kKind), (kLayers - 1) * kKeptBytes + kTokenBytes)
      << ir::FormatProgram(step);
  // All of it is there at once, when the forward ends.
  EXPECT_EQ(plan->memory[0].host.bytes.at(kKind), moved.in.at(kKind));
  EXPECT_EQ(plan->memory[0].host.total_bytes, moved.in.at(kKind));
  EXPECT_EQ(ir::HostArenaBytes(step), moved.in.at(kKind));
  // The device has fewer by about as much.
  EXPECT_LE(plan->memory[0].total_bytes,
            whole->memory[0].total_bytes - moved.in.at(kKind) + 3 * kKeptBytes);
}

TEST(PlaceState, GradientsWaitForTheUpdate) {
  constexpr int kLayers = 12;
  ir::JobRequest job = Products(kLayers);
  job.parallel.gradients_memory = "host";
  job.parallel.offload_chunk_bytes = kGradientBytes;
  for (const int64_t microbatches : {1, 4}) {
    job.parallel.microbatches = microbatches;
    const auto plan = MakePlan(job, mesh::Topology::Local(1));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const Moved moved = MovedBy(plan->Main()[0]);
    constexpr auto kKind = ir::MemoryKind::kGradients;
    ASSERT_TRUE(moved.in.contains(kKind)) << ir::FormatProgram(plan->Main()[0]);
    // For the norm and for the update, and for each microbatch that adds to them.
    const int64_t most =
        (kLayers + 2) * kGradientBytes * (microbatches == 1 ? 2 : microbatches + 2);
    EXPECT_LE(moved.in.at(kKind), most) << microbatches;
    EXPECT_GE(moved.in.at(kKind), most / 2) << microbatches;
    EXPECT_LE(plan->memory[0].host.total_bytes, (kLayers + 2) * kGradientBytes);
  }
}

TEST(PlaceState, WithRoomNothingGoes) {
  ir::JobRequest job = Products(12);
  job.parallel.activations_memory = job.parallel.gradients_memory = "host";
  const auto plan = MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const Moved moved = MovedBy(plan->Main()[0]);
  EXPECT_TRUE(moved.in.empty() && moved.out.empty());
  EXPECT_EQ(plan->memory[0].host.total_bytes, 0);
}

TEST(PlaceState, TextSaysWhatIsOnTheDisk) {
  ir::JobRequest job = OnHost(2048);
  job.parallel.optimizer_memory = "disk";
  job.parallel.activations_memory = "host";
  const auto plan = MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const ir::Program& step = plan->Main()[0];
  const std::string text = ir::FormatProgram(step);
  EXPECT_NE(text.find("persistent disk optimizer \"opt.m/wte\""), std::string::npos) << text;
  const auto parsed = ir::ParseProgram(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error();
  EXPECT_EQ(*parsed, step);
  EXPECT_EQ(plan->memory[0].disk.bytes.at(ir::MemoryKind::kOptimizer), 4 * 2048);
}

TEST(PlaceState, TheVerifierFindsActivationsThatAreLost) {
  ir::JobRequest job = Products(12);
  job.parallel.activations_memory = "host";
  job.parallel.offload_chunk_bytes = kKeptBytes;
  const auto plan = MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const auto wrong = [&](const std::function<void(ir::Program&)>& change) {
    ir::Program step = plan->Main()[0];
    change(step);
    const Status status = ir::VerifyPrograms({&step, 1}, {});
    return status.ok() ? "" : status.message();
  };
  EXPECT_EQ(wrong([](ir::Program&) {}), "");
  // Never sent: there is nothing to fetch.
  const std::string kept = wrong([](ir::Program& step) {
    step.instructions.erase(step.instructions.begin() + FirstOf(step, Opcode::kOffload));
  });
  EXPECT_NE(kept.find("is not alive"), std::string::npos) << kept;
  // Two at once in the same bytes of the host.
  const std::string shared = wrong([](ir::Program& step) {
    for (ir::Slot& slot : step.slots) {
      if (slot.space == ir::Space::kHost) slot.offset_bytes = 0;
    }
  });
  EXPECT_NE(shared.find("are alive in the same bytes"), std::string::npos) << shared;
  const std::string disk = wrong([](ir::Program& step) {
    for (ir::Slot& slot : step.slots) {
      if (slot.space == ir::Space::kHost) slot.space = ir::Space::kDisk;
    }
  });
  EXPECT_NE(disk.find("only what is persistent is on a disk"), std::string::npos) << disk;
}

// All devices of a host keep what they keep in the same memory, those of a worker on the same disk.
TEST(FarMemory, IsCheckedByHostAndByDisk) {
  constexpr int64_t kState = int64_t{4} * 2048;  // of a replica
  mesh::Topology two = mesh::Topology::Local(2, 2);
  ir::JobRequest job = OnHost(2048);
  job.parallel.data = 2;
  mesh::Host& host = two.hosts[two.devices[0].host];
  EXPECT_TRUE(MakePlan(job, two).has_value()) << "nobody says how much there is";
  host.memory_bytes = 2 * kState;
  const auto fits = MakePlan(job, two);
  EXPECT_TRUE(fits.has_value()) << fits.error();
  host.memory_bytes = 2 * kState - 1;
  const auto full = MakePlan(job, two);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code(), StatusCode::kResourceExhausted);
  // In MiB both amounts would look alike.
  EXPECT_NE(full.error().message().find(fmt::format("in its host's memory, which has {} bytes",
                                                    FormatCount(2 * kState - 1))),
            std::string::npos)
      << full.error();
  EXPECT_EQ(ApartMib(1 << 20, 1 << 21), std::pair(std::string("1.0 MiB"), std::string("2.0 MiB")));
  EXPECT_EQ(ApartMib(1 << 20, (1 << 20) - 1).second, "1,048,575 bytes");

  job.parallel.optimizer_memory = "disk";
  for (mesh::Device& device : two.devices) device.disk_bytes = 2 * kState;
  EXPECT_TRUE(MakePlan(job, two).has_value());
  for (mesh::Device& device : two.devices) device.disk_bytes = 2 * kState - 1;
  const auto disk = MakePlan(job, two);
  ASSERT_FALSE(disk.has_value());
  EXPECT_NE(disk.error().message().find(fmt::format(
                "the room on the disk is too small: the devices of {} keep {} bytes on it and may "
                "have {} bytes",
                two.devices[0].worker, FormatCount(2 * kState), FormatCount(2 * kState - 1))),
            std::string::npos)
      << disk.error();
  const char* const offer = "It fits with parallelism.optimizer_memory = \"host\"";
  EXPECT_EQ(disk.error().message().find(offer), std::string::npos) << "the host has no room";
  host.memory_bytes = 0;
  const auto offered = MakePlan(job, two);
  ASSERT_FALSE(offered.has_value());
  EXPECT_NE(offered.error().message().find(offer), std::string::npos) << offered.error();
  // What it says is enough: in whole MiB.
  EXPECT_NE(disk.error().message().find("--scratch-mib 1`"), std::string::npos) << disk.error();
  for (mesh::Device& device : two.devices) device.disk_bytes = 1 << 20;
  EXPECT_TRUE(MakePlan(job, two).has_value());

  for (mesh::Device& device : two.devices) device.disk_bytes = 0;
  two.devices[1].disk = mesh::Disk::kNoFolder;
  const auto folder = MakePlan(job, two);
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(folder.error().message().find("--scratch-dir DIR"), std::string::npos)
      << folder.error();
  job.parallel.optimizer_memory = "host";
  EXPECT_TRUE(MakePlan(job, two).has_value()) << "nothing is on the disk then";
  job.parallel.optimizer_memory = "disk";

  two.devices[1].disk = mesh::Disk::kOfGpu;
  const auto gpu = MakePlan(job, two);
  ASSERT_FALSE(gpu.has_value());
  EXPECT_NE(gpu.error().message().find("is a GPU"), std::string::npos) << gpu.error();
}

// Devices of other layouts may be too small, too: what the one that fits its devices lacks is said.
TEST(FarMemory, SaysMoreThanDevicesOfOtherLayouts) {
  mesh::Topology one = mesh::Topology::Local(1);
  one.devices[0].memory_bytes = one.devices[0].disk_bytes = 100;
  DeviceMemory memory;
  memory.disk.total_bytes = 101;
  const DeviceIndex first(0);
  const Status far = CheckFarMemory(one, {&memory, 1}, {&first, 1});
  ASSERT_EQ(far.code(), StatusCode::kResourceExhausted);
  const Status near = CheckDeviceMemory(one, first, 101, Layout());
  EXPECT_EQ(MoreTelling(far, near), far);
  EXPECT_EQ(MoreTelling(near, far), far);
  const Status later = CheckDeviceMemory(one, first, 102, Layout());
  EXPECT_EQ(MoreTelling(near, later), later);
}

TEST(PlaceNodes, PutsWhatOnlyLaterPartsReadThere) {
  Builder b("g");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", "x"}}, {{DType::kF32, {4}}});
  const ValueId early = b.AddOne(Op::kGelu, {x});
  const ValueId late = b.AddOne(Op::kGelu, {early});
  const ValueId second = b.AddOne(Op::kAdd, {late, x});
  const ValueId third = b.AddOne(Op::kAdd, {second, early});
  b.SetOutput("early", early);
  b.SetOutput("third", third);
  const ir::Graph graph = *b.Finish();
  EXPECT_EQ(PlaceNodes(graph, {0, 0, 0, 1, 0}), (PartOfNode{0, 0, 1, 1, 1}));
  EXPECT_EQ(PlaceNodes(graph, {0, 0, 0, 1, 2}), (PartOfNode{0, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace meshwright::planner
