// What a diagnosis says, in words. That it finds the right rank is tests/property's promise.
#include "controller/diagnosis.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Rank(int rank) { return fmt::format("rank {} (worker 'w{}')", rank, rank); }

RankAt At(int rank, int64_t instruction, std::vector<proto::GroupMarks> groups = {}) {
  proto::RankMarks marks;
  marks.rank = rank;
  marks.in_step = true;
  marks.program = "step";
  marks.step = 17;
  marks.steps_begun = 18;
  marks.instruction = instruction;
  marks.groups = std::move(groups);
  return {marks, "in a launch, between two steps"};
}

// Rank 0 runs stage 0 and sends to rank 1, which runs stage 1 behind it.
StepLists Pipeline() {
  std::vector<ir::Program> programs(2);
  for (int rank = 0; rank < 2; ++rank) {
    ir::Program& program = programs[static_cast<size_t>(rank)];
    program.name = "step";
    program.device = DeviceIndex(rank);
    program.device_count = 2;
    program.stage = StageIndex(rank);
    ir::Graph graph;
    graph.name = fmt::format("stage{}/f", rank);
    program.executables.push_back({std::make_shared<const ir::Graph>(std::move(graph))});
    program.channels.push_back({rank == 0, DeviceIndex(1 - rank), 2, 64, "step/c/0-1"});
    ir::Instruction run, transfer;
    run.op = ir::Opcode::kRun;
    run.executable = ExecutableIndex(0);
    transfer.op = rank == 0 ? ir::Opcode::kSend : ir::Opcode::kRecv;
    transfer.channel = ChannelId(0);
    for (int32_t microbatch = 0; microbatch < 3; ++microbatch) {
      run.microbatch = microbatch;
      if (rank == 1) program.instructions.push_back(transfer);
      program.instructions.push_back(run);
      if (rank == 0) program.instructions.push_back(transfer);
    }
  }
  return StepLists({{"step", programs}});
}

TEST(Diagnosis, NamesInstructionStepAndWhoWaits) {
  const StepLists lists = Pipeline();
  const Diagnosis diagnosis = Diagnose(&lists, {At(0, 2), At(1, 2)});
  EXPECT_EQ(Describe(diagnosis, Rank),
            "rank 0 (worker 'w0') at instruction 2 (RUN stage0/f of microbatch 1) of step 17 of "
            "program 'step'; 1 rank waits for it: rank 1 (worker 'w1') at instruction 2 (RECV from "
            "rank 0) of step 17 of program 'step'");
}

TEST(Diagnosis, AMessageThatWasSentIsNotWaitedFor) {
  const StepLists lists = Pipeline();
  // Rank 0 is through its second SEND; rank 1 is at its second RECV.
  const Diagnosis diagnosis = Diagnose(&lists, {At(0, 4), At(1, 2)});
  EXPECT_THAT(diagnosis.waiters, IsEmpty());
  EXPECT_THAT(diagnosis.roots, SizeIs(2)) << "neither waits for the other";
}

TEST(Diagnosis, ASendWaitsForRoomOnly) {
  const StepLists lists = Pipeline();
  // Two messages are under way and the channel holds two; the one that rank 1 receives is there.
  const Diagnosis full = Diagnose(&lists, {At(0, 5), At(1, 0)});
  ASSERT_THAT(full.roots, SizeIs(1));
  EXPECT_EQ(full.roots[0].rank, 1);
  EXPECT_THAT(Diagnose(&lists, {At(0, 5), At(1, 1)}).roots, SizeIs(2))
      << "one was received, so there is room";
  RankAt behind = At(1, 5);
  behind.marks.steps_begun = 17;
  behind.marks.step = 16;
  // Of the step before it has received all: what is under way is two of this step.
  const Diagnosis waits = Diagnose(&lists, {At(0, 5), behind});
  ASSERT_THAT(waits.roots, SizeIs(1));
  EXPECT_EQ(waits.roots[0].rank, 1);
}

TEST(Diagnosis, ACollectiveIsWaitedForByWhomEnteredItMore) {
  const std::vector<RankAt> ranks = {At(0, 3, {{"data/0-1", 9, 8}, {"tensor/0-2", 4, 4}}),
                                     At(1, 3, {{"data/0-1", 8, 8}}),
                                     At(2, 3, {{"tensor/0-2", 4, 4}})};
  const Diagnosis diagnosis = Diagnose(nullptr, ranks);
  ASSERT_THAT(diagnosis.roots, SizeIs(2));
  EXPECT_EQ(diagnosis.roots[0].rank, 1) << "whom most wait for comes first";
  EXPECT_EQ(
      Describe(diagnosis, Rank),
      "rank 1 (worker 'w1') at instruction 3 of step 17 of program 'step'; 1 rank waits for "
      "it: rank 0 (worker 'w0') at instruction 3 in collective 9 of group data/0-1 of step 17 "
      "of program 'step'; 1 more waits for nobody: rank 2 (worker 'w2') at instruction 3 of "
      "step 17 of program 'step'");
}

// Its data move, or something below the ranks is stuck: none of them is to blame.
TEST(Diagnosis, ACollectiveThatAllHaveEnteredIsWaitedForByNobody) {
  const Diagnosis diagnosis =
      Diagnose(nullptr, {At(0, 3, {{"data/0-1", 9, 8}}), At(1, 3, {{"data/0-1", 9, 8}})});
  EXPECT_FALSE(diagnosis.circle);
  EXPECT_THAT(diagnosis.roots, SizeIs(2));
  EXPECT_THAT(diagnosis.waiters, IsEmpty());
}

TEST(Diagnosis, WhoWaitsForACircleIsNotInIt) {
  const Diagnosis diagnosis =
      Diagnose(nullptr, {At(0, 1, {{"a", 1, 0}}), At(1, 1, {{"a", 0, 0}, {"b", 1, 0}, {"c", 0, 0}}),
                         At(2, 1, {{"b", 0, 0}, {"c", 1, 0}})});
  EXPECT_TRUE(diagnosis.circle);
  ASSERT_THAT(diagnosis.roots, SizeIs(2));
  EXPECT_EQ(diagnosis.roots[0].rank, 1);
  EXPECT_EQ(diagnosis.roots[1].rank, 2);
  ASSERT_THAT(diagnosis.waiters, SizeIs(1));
  EXPECT_EQ(diagnosis.waiters[0].rank, 0);
  const std::string text = Describe(diagnosis, Rank);
  EXPECT_THAT(text, HasSubstr("2 ranks wait for each other in a circle: rank 1 (worker 'w1')"));
  EXPECT_THAT(text, HasSubstr("1 rank waits for them: rank 0"));
}

TEST(Diagnosis, ARankThatDoesNotBeginTheStepIsNamedWithWhatItsProcessDoes) {
  const StepLists lists = Pipeline();
  RankAt idle = At(0, 5);
  idle.marks.in_step = false;
  idle.marks.step = 16;
  idle.marks.steps_begun = 17;
  idle.doing = "while it wrote the state";
  const Diagnosis diagnosis = Diagnose(&lists, {idle, At(1, 0)});
  ASSERT_THAT(diagnosis.roots, SizeIs(1));
  EXPECT_EQ(diagnosis.roots[0],
            (RankPlaceText{0, "behind step 16 of program 'step', while it wrote the state"}));
}

TEST(Diagnosis, ARankOfWhichNothingIsKnownIsNamedByThoseThatWait) {
  const StepLists lists = Pipeline();
  const Diagnosis diagnosis = Diagnose(&lists, {At(1, 0)});
  ASSERT_THAT(diagnosis.roots, SizeIs(1));
  EXPECT_EQ(diagnosis.roots[0], (RankPlaceText{0, "of which nothing is known"}));
}

TEST(Diagnosis, OfManyRanksAFewAreNamed) {
  std::vector<RankAt> ranks = {At(0, 1, {{"g", 0, 0}})};
  for (int rank = 1; rank < 40; ++rank) ranks.push_back(At(rank, 1, {{"g", 1, 0}}));
  const std::string text = Describe(Diagnose(nullptr, ranks), Rank);
  EXPECT_THAT(text, HasSubstr("39 ranks wait for it"));
  EXPECT_THAT(text, HasSubstr("and 31 more"));
}

TEST(Diagnosis, NobodyInAStepNamesThoseThatAreBehind) {
  RankAt early = At(0, 0), late = At(1, 0);
  early.marks.in_step = late.marks.in_step = false;
  late.marks.steps_begun = 3;
  const Diagnosis diagnosis = Diagnose(nullptr, {early, late});
  ASSERT_THAT(diagnosis.roots, SizeIs(1));
  EXPECT_EQ(diagnosis.roots[0].rank, 1);
  EXPECT_THAT(Diagnose(nullptr, {}).roots, IsEmpty());
}

TEST(StepLists, AProgramIsFoundByItsNameOrTheBeginningOfIt) {
  std::vector<ir::Program> one(1), two(1);
  one[0].stage = StageIndex(1);
  two[0].stage = StageIndex(2);
  const StepLists lists({{"step", one}, {"step-of-a-name-that-is-cut", two}});
  EXPECT_EQ(lists.Find("step", 0)->stage, 1);
  EXPECT_EQ(lists.Find("step-of-a-name", 0)->stage, 2);
  EXPECT_EQ(lists.Find("eval", 0), nullptr);
  EXPECT_EQ(lists.Find("zzz", 0), nullptr);
  EXPECT_EQ(lists.Find("step", 1), nullptr);
  EXPECT_EQ(lists.Find("step", -1), nullptr);
  EXPECT_EQ(NameItem(*lists.Find("step", 0), 0), "") << "beyond its end";
}

}  // namespace
}  // namespace meshwright::controller
