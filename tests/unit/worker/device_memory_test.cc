#include "worker/device_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using ir::MemoryKind;

TEST(ArenaUse, CountsEveryByteOfTheArenaOnce) {
  ProgramMaker maker("step", 0);
  maker.Transient(F32({16}), MemoryKind::kActivations);  // [0, 64)
  maker.Transient(F32({32}), MemoryKind::kGradients);    // [64, 192)
  maker.Transient(F32({16}), MemoryKind::kOther);        // [192, 256)
  maker.Executable(R"(graph "g" {
    %0 = input {name="x"} : f32[16]
    %1 = scale(%0) {factor=2.0} : f32[16]
    %2 = scale(%1) {factor=2.0} : f32[16]
    output "y" %2
  })");
  ir::Program program = maker.Finish();  // workspace [256, 320)
  ir::Slot reuse = program.slots[0];     // activations in the gradients' bytes and 64 more
  reuse.type = F32({32});
  reuse.offset_bytes = 128;
  program.slots.push_back(reuse);
  const device::MemoryUse use = ArenaUse(program);
  EXPECT_EQ(use.total(), program.arena_bytes);
  EXPECT_EQ(use[MemoryKind::kGradients], 128);
  EXPECT_EQ(use[MemoryKind::kActivations], 64 + 64);
  EXPECT_EQ(use[MemoryKind::kWorkspace], 64);
  EXPECT_EQ(use[MemoryKind::kOther], 0);
}

TEST(DeviceMemory, ProgramsShareTheArenaAndPersistentSlotsNotTheirBytes) {
  ProgramMaker small("init", 0);
  small.Persistent("w", F32({5}));
  small.Transient(F32({16}));
  ProgramMaker large("step", 0);
  large.Persistent("m", F32({7}));
  large.Persistent("w", F32({5}));
  large.Transient(F32({64}));
  const ir::Program init = small.Finish();
  const ir::Program step = large.Finish();
  DeviceMemory memory;
  ASSERT_TRUE(memory.AddProgram(init).ok());
  ASSERT_TRUE(memory.AddProgram(step).ok());
  memory.AddScratch({0, 100});
  memory.AddScratch({40, 0});
  device::DeviceOptions options;
  options.name = "cpu:0";
  const auto device = device::MakeCpuDevice(options);
  ASSERT_TRUE(memory.Allocate(**device).ok());
  EXPECT_EQ(memory.Address(init.slots[0]), memory.Address(step.slots[1])) << "one 'w'";
  EXPECT_NE(memory.Address(step.slots[0]), memory.Address(step.slots[1]));
  EXPECT_EQ(memory.Address(init.slots[1]), memory.arena());
  EXPECT_EQ(memory.Address(step.slots[2]), memory.arena());
  EXPECT_EQ(memory.scratch({0, 100}), memory.arena() + 256) << "behind the larger arena";
  EXPECT_EQ((*device)->memory()[MemoryKind::kWorkspace], 128);
  EXPECT_EQ((*device)->memory()[MemoryKind::kActivations], 256);
  EXPECT_EQ((*device)->memory()[MemoryKind::kWeights], 2 * 64);
}

// One bucket may be under way while another collective and a kernel begin.
TEST(DeviceMemory, WhereCollectivesRunBesideEachKindHasScratchOfItsOwn) {
  for (const ir::OverlapMode mode : {ir::OverlapMode::kOff, ir::OverlapMode::kOn}) {
    ProgramMaker maker("step", 0);
    maker.Transient(F32({16}));
    ir::Program program = maker.Finish();
    program.overlap = mode;
    DeviceMemory memory;
    ASSERT_TRUE(memory.AddProgram(program).ok());
    const ScratchNeed need{100, 60, 200};
    memory.AddScratch(need);
    memory.AddScratch({0, 300});
    device::DeviceOptions options;
    options.name = "cpu:0";
    const auto device = device::MakeCpuDevice(options);
    ASSERT_TRUE(memory.Allocate(**device).ok());
    const bool apart = mode == ir::OverlapMode::kOn;
    EXPECT_EQ(memory.collective_scratch() - memory.bucket_scratch(), apart ? 256 : 0);
    EXPECT_EQ(memory.scratch(need) - memory.bucket_scratch(), apart ? 256 + 128 : 256);
    EXPECT_EQ((*device)->memory()[MemoryKind::kWorkspace], apart ? 256 + 128 + 320 : 320);
  }
}

}  // namespace
}  // namespace meshwright::worker
