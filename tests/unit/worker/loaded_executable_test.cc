#include "worker/loaded_executable.h"

#include <gtest/gtest.h>

#include "tests/emulated/gpu.h"
#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

// Two updates of one kind.
constexpr char kUpdates[] = R"(graph "update" {
  %0 = input {name="w0"} : f32[8]
  %1 = input {name="g0"} : f32[8]
  %2 = input {name="m0"} : f32[8]
  %3 = input {name="v0"} : f32[8]
  %4 = input {name="w1"} : f32[8]
  %5 = input {name="g1"} : f32[8]
  %6 = input {name="m1"} : f32[8]
  %7 = input {name="v1"} : f32[8]
  %8 = constant {value=1.0} : f32[]
  %9 = constant {value=0.1} : f32[]
  %10, %11, %12 = adamw(%0, %1, %2, %3, %8, %9) {beta1=0.9, beta2=0.95, eps=1e-08,
    weight_decay=0.1} : f32[8], f32[8], f32[8]
  %13, %14, %15 = adamw(%4, %5, %6, %7, %8, %9) {beta1=0.9, beta2=0.95, eps=1e-08,
    weight_decay=0.1} : f32[8], f32[8], f32[8]
  output "w0" %10
  output "m0" %11
  output "v0" %12
  output "w1" %13
  output "m1" %14
  output "v1" %15
})";

// How many nodes there are for both updates, of a GPU, when the second weight goes to its own slot
// or to another one.
Result<int> NodesOfUpdates(bool own_slot) {
  ProgramMaker maker("step", 0);
  const SlotId w0 = maker.Persistent("w0", F32({8}));
  const SlotId m0 = maker.Persistent("m0", F32({8}));
  const SlotId v0 = maker.Persistent("v0", F32({8}));
  const SlotId w1 = maker.Persistent("w1", F32({8}));
  const SlotId m1 = maker.Persistent("m1", F32({8}));
  const SlotId v1 = maker.Persistent("v1", F32({8}));
  const SlotId g0 = maker.Transient(F32({8}));
  const SlotId g1 = maker.Transient(F32({8}));
  const SlotId other = maker.Transient(F32({8}));
  const auto graph = GraphOf(kUpdates);
  maker.Run(maker.Executable(graph), {w0, g0, m0, v0, w1, g1, m1, v1},
            {w0, m0, v0, own_slot ? w1 : other, m1, v1});
  const ir::Program program = maker.Finish();
  MW_ASSIGN_OR_RETURN(const auto fabric,
                      collective::MakeCpuFabric(LocalOptions(1, {}).fabric, nullptr));
  Links links(*fabric);
  emulated::EmulatedGpu gpu;
  InstructionCounter counter;
  MW_ASSIGN_OR_RETURN(const auto loaded,
                      LoadedExecutable::Load(program, graph, gpu.target(), links, counter));
  int updates = 0;
  for (const LoadedExecutable::Node& node : loaded->nodes()) {
    updates += graph->node(node.ids[0]).op == ir::Op::kAdamW ? 1 : 0;
  }
  return updates;
}

TEST(LoadedExecutable, EqualUpdatesInPlaceAreOneKernel) {
  const Result<int> nodes = NodesOfUpdates(true);
  ASSERT_TRUE(nodes.has_value()) << nodes.error();
  EXPECT_EQ(*nodes, 1);
}

// Its slot may lie where the first update's gradient was.
TEST(LoadedExecutable, AnUpdateIntoAnotherSlotComesAfterThoseBeforeIt) {
  const Result<int> nodes = NodesOfUpdates(false);
  ASSERT_TRUE(nodes.has_value()) << nodes.error();
  EXPECT_EQ(*nodes, 2);
}

}  // namespace
}  // namespace meshwright::worker
