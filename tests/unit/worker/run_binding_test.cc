#include "worker/run_binding.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using Area = Place::Area;

RunBinding Bind(const ir::Graph& graph, std::vector<int> inputs, std::vector<int> outputs) {
  std::vector<SlotId> in, out;
  for (int slot : inputs) in.emplace_back(slot);
  for (int slot : outputs) out.emplace_back(slot);
  return BindRun(graph, ir::PlanWorkspace(graph), in, out);
}

const Place& PlaceOf(const RunBinding& binding, int value) {
  return binding.values[static_cast<size_t>(value)];
}

TEST(RunBinding, AnOutputInASlotOfItsOwnIsComputedThere) {
  const auto graph = GraphOf(R"(graph "g" {
    %0 = input {name="x"} : f32[4]
    %1 = scale(%0) {factor=2.0} : f32[4]
    %2 = scale(%1) {factor=2.0} : f32[4]
    output "y" %2
  })");
  const RunBinding binding = Bind(*graph, {0}, {1});
  EXPECT_EQ(PlaceOf(binding, 0), (Place{Area::kInput, 0}));
  EXPECT_EQ(PlaceOf(binding, 1), (Place{Area::kWorkspace, 0}));
  EXPECT_EQ(PlaceOf(binding, 2), (Place{Area::kOutput, 0}));
  EXPECT_TRUE(binding.copies.empty());
  EXPECT_EQ(binding.scratch_bytes, 0);
}

// Each product is added where the sum is, beginning with what the slot held.
TEST(RunBinding, AccumulatorsStayInTheirSlot) {
  const auto graph = GraphOf(R"(graph "g" {
    %0 = input {name="x"} : f32[8,4]
    %1 = input {name="total"} : f32[4,4]
    %2 = einsum(%0, %0, %1) {equation="km,kn->mn"} : f32[4,4]
    %3 = einsum(%0, %0, %2) {equation="km,kn->mn"} : f32[4,4]
    output "total" %3
  })");
  const RunBinding binding = Bind(*graph, {0, 1}, {1});
  EXPECT_EQ(PlaceOf(binding, 2), (Place{Area::kOutput, 0}));
  EXPECT_EQ(PlaceOf(binding, 3), (Place{Area::kOutput, 0}));
  EXPECT_TRUE(binding.copies.empty());
  EXPECT_EQ(binding.scratch_bytes, 0);
}

// The old total is read behind the first write of the new one.
TEST(RunBinding, AChainThatWouldOverwriteTooEarlyIsInScratch) {
  const auto graph = GraphOf(R"(graph "g" {
    %0 = input {name="x"} : f32[8,4]
    %1 = input {name="total"} : f32[4,4]
    %2 = einsum(%0, %0) {equation="km,kn->mn"} : f32[4,4]
    %3 = sum_squares(%1) : f32[]
    %4 = einsum(%0, %0, %2) {equation="km,kn->mn"} : f32[4,4]
    output "total" %4
    output "squares" %3
  })");
  const RunBinding binding = Bind(*graph, {0, 1}, {1, 2});
  EXPECT_EQ(PlaceOf(binding, 4).area, Area::kScratch);
  EXPECT_EQ(PlaceOf(binding, 2), PlaceOf(binding, 4));
  EXPECT_EQ(binding.copies.size(), 1u);
}

TEST(RunBinding, AdamWUpdatesAllItsStateInPlace) {
  const auto graph = GraphOf(R"(graph "g" {
    %0 = input {name="p"} : f32[4]
    %1 = input {name="g"} : f32[4]
    %2 = input {name="m"} : f32[4]
    %3 = input {name="v"} : f32[4]
    %4 = input {name="c"} : f32[]
    %5, %6, %7 = adamw(%0, %1, %2, %3, %4, %4) {beta1=0.9, beta2=0.9, eps=1e-08,
      weight_decay=0.0} : f32[4], f32[4], f32[4]
    output "p" %5
    output "m" %6
    output "v" %7
  })");
  const RunBinding binding = Bind(*graph, {0, 1, 2, 3, 4}, {0, 2, 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(PlaceOf(binding, 5 + i), (Place{Area::kOutput, i}));
  EXPECT_TRUE(binding.copies.empty());
  // The slots crossed over: m's place holds what v still needs.
  const RunBinding crossed = Bind(*graph, {0, 1, 2, 3, 4}, {0, 3, 2});
  EXPECT_EQ(PlaceOf(crossed, 5).area, Area::kOutput);
  EXPECT_EQ(PlaceOf(crossed, 6).area, Area::kScratch);
  EXPECT_EQ(PlaceOf(crossed, 7).area, Area::kScratch);
  EXPECT_EQ(crossed.copies.size(), 2u);
}

TEST(RunBinding, ADonatedSlotIsNotOverwrittenBeforeItsLastReader) {
  const auto graph = GraphOf(R"(graph "g" {
    %0 = input {name="x"} : f32[4]
    %1 = scale(%0) {factor=2.0} : f32[4]
    %2 = add(%0, %1) : f32[4]
    output "y" %1
    output "z" %2
  })");
  const RunBinding early = Bind(*graph, {0}, {0, 1});  // y into x, but add still reads x
  EXPECT_EQ(PlaceOf(early, 1), (Place{Area::kScratch, 0}));
  EXPECT_EQ(early.copies,
            (std::vector<PlannedCopy>{{{Area::kScratch, 0}, {Area::kOutput, 0}, 16}}));
  const RunBinding late =
      Bind(*graph, {0}, {1, 0});  // z into x: add is the last reader and works in place
  EXPECT_EQ(PlaceOf(late, 2), (Place{Area::kOutput, 1}));
  EXPECT_TRUE(late.copies.empty());
}

TEST(RunBinding, OnlyTheOperandThatAKernelMayOverwriteIsOverwritten) {
  const auto graph = GraphOf(R"(graph "g" {
    %0 = input {name="a"} : f32[2,2]
    %1 = input {name="b"} : f32[2,2]
    %2 = sub(%0, %1) : f32[2,2]
    %3 = transpose(%2) {perm=[1, 0]} : f32[2,2]
    %4 = transpose(%1) {perm=[1, 0]} : f32[2,2]
    output "x" %2
    output "y" %3
    output "z" %4
  })");
  EXPECT_EQ(PlaceOf(Bind(*graph, {0, 1}, {0, 2, 3}), 2).area, Area::kOutput);
  EXPECT_EQ(PlaceOf(Bind(*graph, {0, 1}, {1, 2, 3}), 2).area,
            Area::kScratch);  // second operand of sub
  EXPECT_EQ(PlaceOf(Bind(*graph, {0, 1}, {2, 0, 3}), 3).area, Area::kOutput);   // a is dead by then
  EXPECT_EQ(PlaceOf(Bind(*graph, {0, 1}, {2, 3, 1}), 4).area, Area::kScratch);  // transpose reads b
}

// Brute force: executes a binding symbolically over slots and checks that every output slot ends
// with the right value and that every node reads the right values.
void CheckBySimulation(const ir::Graph& graph, const std::vector<int>& inputs,
                       const std::vector<int>& outputs) {
  const RunBinding binding = Bind(graph, inputs, outputs);
  const auto key = [&](const Place& place) {
    if (place.area == Area::kInput)
      return std::make_pair(Area::kInput, int64_t{inputs[static_cast<size_t>(place.position)]});
    if (place.area == Area::kOutput)
      return std::make_pair(Area::kInput, int64_t{outputs[static_cast<size_t>(place.position)]});
    return std::make_pair(place.area, place.position);
  };
  std::map<std::pair<Area, int64_t>, int> memory;  // place -> value that it holds
  for (const ir::Node& node : graph.nodes) {
    for (ValueId id : node.inputs) {
      ASSERT_EQ(memory[key(PlaceOf(binding, id.value()))], id.value());
    }
    for (ValueId id : node.outputs) memory[key(PlaceOf(binding, id.value()))] = id.value();
  }
  for (const PlannedCopy& copy : binding.copies) memory[key(copy.to)] = memory[key(copy.from)];
  for (size_t j = 0; j < outputs.size(); ++j) {
    EXPECT_EQ(memory[key({Area::kOutput, static_cast<int64_t>(j)})], graph.outputs[j].value.value())
        << "output " << j;
  }
}

TEST(RunBinding, EveryAssignmentOfSlotsEndsWithTheRightValues) {
  const auto graph = GraphOf(R"(graph "g" {
    %0 = input {name="a"} : f32[4]
    %1 = input {name="b"} : f32[4]
    %2 = add(%0, %1) : f32[4]
    %3 = scale(%2) {factor=2.0} : f32[4]
    %4 = mul(%1, %3) : f32[4]
    output "p" %3
    output "q" %1
    output "r" %4
    output "again" %3
    output "s" %0
  })");
  int checked = 0;
  for (int code = 0; code < 7 * 7 * 7 * 7 * 7; ++code) {
    std::vector<int> outputs;
    int rest = code;
    for (int j = 0; j < 5; ++j, rest /= 7) outputs.push_back(rest % 7);
    std::vector<int> sorted = outputs;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) continue;
    CheckBySimulation(*graph, {0, 1}, outputs);
    ++checked;
    if (HasFatalFailure() || HasFailure()) FAIL() << "slots " << testing::PrintToString(outputs);
  }
  EXPECT_EQ(checked, 7 * 6 * 5 * 4 * 3);
}

TEST(RunBinding, RunsWithSwappedAndRepeatedOutputsGiveTheRightBytes) {
  ProgramMaker maker("step", 0);
  const SlotId a = maker.Persistent("a", F32({2}));
  const SlotId b = maker.Persistent("b", F32({2}));
  const SlotId c = maker.Persistent("c", F32({2}));
  const SlotId d = maker.Persistent("d", F32({2}));
  maker.Run(maker.Executable(R"(graph "swap" {
    %0 = input {name="a"} : f32[2]
    %1 = input {name="b"} : f32[2]
    %2 = add(%0, %1) : f32[2]
    output "b" %1
    output "a" %0
    output "c" %2
    output "d" %2
  })"),
            {a, b}, {a, b, c, d});
  auto runtime = MustLoad(LocalOptions(1, {maker.Finish()}));
  Write<float>(*runtime, 0, "a", {1, 2});
  Write<float>(*runtime, 0, "b", {10, 20});
  ASSERT_TRUE(runtime->Launch({"step", 0, 1}).has_value());
  EXPECT_EQ(ReadFloats(*runtime, 0, "a"), (std::vector<float>{10, 20}));
  EXPECT_EQ(ReadFloats(*runtime, 0, "b"), (std::vector<float>{1, 2}));
  EXPECT_EQ(ReadFloats(*runtime, 0, "c"), (std::vector<float>{11, 22}));
  EXPECT_EQ(ReadFloats(*runtime, 0, "d"), (std::vector<float>{11, 22}));
}

}  // namespace
}  // namespace meshwright::worker
