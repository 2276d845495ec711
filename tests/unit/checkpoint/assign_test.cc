#include "checkpoint/assign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace meshwright::checkpoint {
namespace {

using ::testing::IsEmpty;

StateBox BoxOf(const std::string& tensor, std::vector<size_t> holders) {
  return {tensor, tensor + "[0:4]", 16, std::move(holders)};
}

// How many workers keep each tensor.
std::map<std::string, size_t> KeptBy(const SnapshotPlan& plan,
                                     const std::vector<std::string>& worker_of) {
  std::map<std::string, std::set<std::string>> workers;
  for (size_t device = 0; device < plan.slots.size(); ++device) {
    for (const std::string& slot : plan.slots[device]) {
      EXPECT_TRUE(workers[slot].insert(worker_of[device]).second)
          << slot << " is kept twice on " << worker_of[device];
    }
  }
  std::map<std::string, size_t> counts;
  for (const auto& [slot, of_slot] : workers) counts[slot] = of_slot.size();
  return counts;
}

ir::Program ProgramOf(int stage, const std::string& name, const ir::Dims& whole,
                      const ir::Box& box) {
  ir::Program program;
  program.stage = StageIndex(stage);
  ir::Slot slot;
  slot.type = {ir::DType::kF32, box.size};
  slot.persistent = true;
  slot.name = name;
  slot.global_dims = whole;
  slot.box = box;
  program.slots.push_back(slot);
  return program;
}

// Of what two stages have whole, one writes; of what each has some rows, both do.
TEST(StateBoxes, StagesWriteWhatNoOtherHas) {
  const ir::Box all{{0, 0}, {6, 4}};
  const auto same = StateBoxes({ProgramOf(0, "w", {6, 4}, all), ProgramOf(1, "w", {6, 4}, all)});
  ASSERT_EQ(same.size(), 1u);
  EXPECT_EQ(same[0].holders.size(), 1u);
  const std::vector<ir::Program> rows = {ProgramOf(0, "w", {6, 4}, {{0, 0}, {4, 4}}),
                                         ProgramOf(0, "w", {6, 4}, {{0, 0}, {4, 4}}),
                                         ProgramOf(1, "w", {6, 4}, {{4, 0}, {2, 4}})};
  const auto shared = StateBoxes(rows);
  ASSERT_EQ(shared.size(), 2u);
  EXPECT_EQ(shared[0].holders, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(shared[1].holders, (std::vector<size_t>{2}));
  EXPECT_EQ(shared[0].bytes + shared[1].bytes, 6 * 4 * 4);
}

TEST(PlanSnapshots, EveryBoxIsKeptByOneAndItsCopiesOnDistinctWorkers) {
  // Four replicas on three workers: the first two are on the same one.
  const std::vector<std::string> workers = {"a", "a", "b", "c"};
  std::vector<StateBox> boxes;
  for (int i = 0; i < 40; ++i) boxes.push_back(BoxOf("t" + std::to_string(i), {0, 1, 2, 3}));
  for (const int64_t copies : {0, 1, 2, 5}) {
    const SnapshotPlan plan = PlanSnapshots(boxes, workers, copies);
    for (const auto& [slot, count] : KeptBy(plan, workers)) {
      EXPECT_EQ(count, static_cast<size_t>(std::min<int64_t>(1 + copies, 3))) << slot;
    }
    EXPECT_EQ(KeptBy(plan, workers).size(), boxes.size());
    EXPECT_THAT(plan.copies, IsEmpty()) << "everyone has its own";
  }
  // Everyone has a share of them, and so has each device of a worker.
  for (const auto& slots : PlanSnapshots(boxes, workers, 1).slots) EXPECT_FALSE(slots.empty());
}

TEST(PlanSnapshots, OfABoxThatFewerHoldOthersGetCopies) {
  const std::vector<std::string> workers = {"a", "b", "c", "c"};
  std::vector<StateBox> boxes;
  for (int i = 0; i < 40; ++i) boxes.push_back(BoxOf("t" + std::to_string(i), {1}));
  const SnapshotPlan plan = PlanSnapshots(boxes, workers, 1);
  EXPECT_EQ(plan.slots[1].size(), 40u);
  ASSERT_EQ(plan.copies.size(), 40u);
  std::set<std::string> to;
  for (const BoxCopy& copy : plan.copies) {
    EXPECT_EQ(copy.from, "b");
    to.insert(copy.to);
  }
  EXPECT_EQ(to, (std::set<std::string>{"a", "c"})) << "spread, and never to who has it";
  EXPECT_EQ(PlanSnapshots(boxes, workers, 9).copies.size(), 80u) << "as many as there are workers";
  EXPECT_THAT(PlanSnapshots(boxes, workers, 0).copies, IsEmpty());
  EXPECT_THAT(PlanSnapshots(boxes, {"a", "a"}, 1).copies, IsEmpty()) << "there is nobody else";
  for (const BoxCopy& copy : PlanSnapshots(boxes, {"a", "a"}, 1, {"k"}).copies) {
    EXPECT_EQ(copy.from, "a");
    EXPECT_EQ(copy.to, "k") << "beside the mesh";
  }
  EXPECT_EQ(PlanSnapshots(boxes, {"a", "a"}, 1, {"k"}).copies.size(), boxes.size());
}

}  // namespace
}  // namespace meshwright::checkpoint
