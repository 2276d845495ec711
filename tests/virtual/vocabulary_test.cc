// A vocabulary that the stages of a pipeline share: the same model as on one device, no stage with
// more of it than another, and the messages of the closed form.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "planner/memory.h"
#include "planner/simulate.h"
#include "planner/vocabulary_blocks.h"
#include "planner/vocabulary_schedule.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

constexpr double kTolerance = 1e-10;

ir::JobRequest Shared(const ir::JobRequest& job, const LayoutCase& c,
                      const char* schedule = "1f1b-vocab") {
  ir::JobRequest shared = WithLayout(job, c);
  shared.parallel.schedule = schedule;
  return shared;
}

// Against one device.
void ExpectShared(const TinyOptions& options, const std::vector<LayoutCase>& layouts,
                  const std::function<void(ir::JobRequest&)>& change = {}) {
  const ir::JobRequest job = MakeTinyJob(options);
  const auto vocabulary = static_cast<int>(options.vocabulary);
  const auto expected = RunJob(WithLayout(job, {}), 1, vocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const LayoutCase& c : layouts) {
    for (const char* schedule : {"1f1b-vocab", "gpipe-vocab"}) {
      if (kSanitizedBuild && schedule[0] == 'g') continue;
      ir::JobRequest shared = Shared(job, c, schedule);
      if (change) change(shared);
      const std::string layout =
          fmt::format("{} v={} {} {}", options.family, vocabulary, c.ToString(), schedule);
      const auto actual = RunJob(shared, c.devices(), vocabulary);
      ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
      ExpectEqual(*expected, *actual, kTolerance, layout);
    }
  }
}

TinyOptions Small(const char* family, int64_t vocabulary, bool tied = true) {
  TinyOptions options;
  options.family = family;
  options.vocabulary = vocabulary;
  options.tied = tied;
  options.layers = 4;
  options.batch = 24;
  return options;
}

// 61 is prime, 64 divides; a weight that is embedding and output layer at once is one block.
TEST(SharedVocabulary, EqualsOneDevice) {
  for (const char* family : {"gpt2", "llama"}) {
    for (const int64_t vocabulary : {61, 64}) {
      ExpectShared(Small(family, vocabulary, /*tied=*/vocabulary == 61),
                   {{1, 1, 2, 1}, {1, 1, 2, 6}, {1, 1, 4, 3}, {1, 1, 4, 12}});
    }
  }
}

TEST(SharedVocabulary, EqualsOneDeviceBesideOtherAxes) {
  for (const char* family : {"gpt2", "llama"}) {
    for (const int64_t vocabulary : {61, 64}) {
      TinyOptions options = Small(family, vocabulary, /*tied=*/vocabulary == 64);
      options.dropout = 0.1;
      ExpectShared(options, {{2, 1, 2, 4}, {1, 2, 2, 4}, {2, 2, 2, 3}, {1, 2, 4, 4}});
    }
  }
}

// Its loss is a sum of the cross entropy and what layers say of their balance.
TEST(SharedVocabulary, EqualsOneDeviceWithExperts) {
  TinyOptions options = Small("mixtral", 61, false);
  options.layers = 2;
  ExpectShared(options, {{1, 1, 2, 4}});
}

TEST(SharedVocabulary, EqualsOneDeviceWithSequenceParallelism) {
  ExpectShared(Small("llama", 64, false), {{1, 2, 2, 4}},
               [](ir::JobRequest& job) { job.parallel.sequence_parallel = true; });
}

TEST(SharedVocabulary, EqualsOneDeviceWithSplitStates) {
  for (const int zero : {1, 2, 3}) {
    ExpectShared(Small("gpt2", 64, zero != 2), {{2, 1, 2, 4}},
                 [zero](ir::JobRequest& job) { job.parallel.zero = zero; });
  }
}

TEST(SharedVocabulary, EqualsOneDeviceWhatIsRecomputed) {
  for (const char* mode : {"selective", "full"}) {
    ExpectShared(Small("gpt2", 61), {{1, 1, 4, 6}},
                 [mode](ir::JobRequest& job) { job.parallel.recompute = mode; });
  }
}

// Documents end rows early: labels that count for nothing are on no stage.
TEST(SharedVocabulary, EqualsOneDeviceWithLabelsThatAreIgnored) {
  TinyOptions options = Small("gpt2", 61);
  options.document_separator = 3;
  ExpectShared(options, {{1, 1, 4, 6}});
}

// Layers of f32 weights that are computed in bf16: as near to one device as other layouts are.
TEST(SharedVocabulary, MixedPrecisionAgreesWithinRounding) {
  TinyOptions options = Small("llama", 64, false);
  options.dtype = ir::DType::kF32;
  options.adam_eps = 1e-4;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.compute_dtype = ir::DType::kBF16;
  const auto expected = RunJob(WithLayout(job, {}), 1, 64);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  const auto actual = RunJob(Shared(job, {1, 1, 2, 4}), 2, 64);
  ASSERT_TRUE(actual.has_value()) << actual.error();
  for (size_t step = 0; step < kRunSteps; ++step) {
    EXPECT_NEAR(actual->losses[step] / expected->losses[step], 1, 2e-3);
    EXPECT_NEAR(actual->norms[step] / expected->norms[step], 1, 2e-2);
  }
}

// ---- What stages hold ---------------------------------------------------------------------------

Result<planner::Plan> PlanOf(const TinyOptions& options, int stages, int microbatches,
                             const char* schedule) {
  return planner::MakePlan(Shared(MakeTinyJob(options), {1, 1, stages, microbatches}, schedule),
                           mesh::Topology::Local(stages));
}

TEST(SharedVocabulary, EachStageHoldsItsBlockOfRows) {
  for (const int stages : {2, 4}) {
    const TinyOptions options = Small("gpt2", 61);
    const auto plan = PlanOf(options, stages, 4, "1f1b-vocab");
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const std::vector<int64_t> bounds = planner::VocabularyBounds(61, stages, 1);
    EXPECT_EQ(bounds.back(), 61);
    int tables = 0;
    for (const ir::Program& program : plan->Main()) {
      const auto stage = program.device.index();
      for (const ir::Slot& slot : program.slots) {
        if (!slot.persistent || slot.global_dims != ir::Dims{61, 32}) continue;
        ++tables;
        EXPECT_EQ(slot.box.offset[0], bounds[stage]) << slot.name;
        EXPECT_EQ(slot.box.size, (ir::Dims{bounds[stage + 1] - bounds[stage], 32})) << slot.name;
      }
    }
    EXPECT_EQ(tables, 3 * stages);  // the tied weight, and two states of Adam
    for (const planner::ParamInfo& param : plan->params) {
      if (param.type.dims != ir::Dims{61, 32}) continue;
      EXPECT_EQ(param.stages.size(), static_cast<size_t>(stages)) << param.name;
    }
  }
}

// Slots of this type that hold something at once.
int MostLive(const ir::Program& program, const ir::Dims& dims) {
  std::set<SlotId> live;
  size_t most = 0;
  const auto takes = [&](SlotId slot) {
    const ir::Slot& info = program.slot(slot);
    if (!info.persistent && info.type.dims == dims) live.insert(slot);
  };
  for (const ir::Instruction& instruction : program.instructions) {
    if (instruction.op == ir::Opcode::kFree) {
      for (const SlotId slot : instruction.inputs) live.erase(slot);
    } else {
      for (const SlotId slot : instruction.outputs) takes(slot);
    }
    most = std::max(most, live.size());
  }
  return static_cast<int>(most);
}

TEST(SharedVocabulary, LogitsOfTwoMicrobatchesAreHeld) {
  const TinyOptions options = Small("llama", 200, false);
  for (const int stages : {2, 4}) {
    const auto plan = PlanOf(options, stages, 12, "1f1b-vocab");
    ASSERT_TRUE(plan.has_value()) << plan.error();
    for (const ir::Program& program : plan->Main()) {
      EXPECT_EQ(MostLive(program, {2, options.sequence, 200 / stages}), planner::kMostLogits);
    }
  }
}

// The stage that had embedding and head needs less, and what the plan says is what programs need.
TEST(SharedVocabulary, NoStageHoldsTheVocabularyOfAll) {
  TinyOptions options = Small("llama", 4096, false);
  const auto shared = PlanOf(options, 4, 12, "1f1b-vocab");
  const auto alone = PlanOf(options, 4, 12, "1f1b");
  ASSERT_TRUE(shared.has_value()) << shared.error();
  ASSERT_TRUE(alone.has_value()) << alone.error();
  const auto bounds = [](const planner::Plan& plan) {
    std::vector<int64_t> bytes;
    for (const planner::DeviceMemory& memory : plan.memory) bytes.push_back(memory.total_bytes);
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    return std::pair(*least, *most);
  };
  EXPECT_GT(bounds(*alone).second, 8 * bounds(*alone).first);
  EXPECT_LT(bounds(*shared).second, bounds(*shared).first * 5 / 4);
  EXPECT_LT(bounds(*shared).second, bounds(*alone).second * 3 / 4);
  for (size_t device = 0; device < 4; ++device) {
    const ir::Program& program = shared->Main()[device];
    int64_t bytes = program.arena_bytes;
    int64_t vocabulary = 0;
    for (const ir::Slot& slot : program.slots) {
      if (slot.persistent) bytes += slot.type.bytes();
      if (slot.persistent && slot.global_dims == ir::Dims{4096, 32}) {
        vocabulary += slot.type.bytes();
      }
    }
    EXPECT_EQ(shared->memory[device].total_bytes, bytes);
    // Embedding and head, each with two states of Adam, in f64.
    EXPECT_EQ(vocabulary, 2 * 3 * (4096 / 4) * 32 * 8);
  }
}

// ---- What moves ---------------------------------------------------------------------------------

// Per microbatch of T tokens and other stage: embedded tokens there and their gradient back, X, the
// sum L, and of S l, t, A and G; and the boundary of two stages, there and back.
TEST(SharedVocabulary, MessagesAreThoseOfTheClosedForm) {
  for (const int stages : {2, 4}) {
    constexpr int kMicrobatches = 6;
    const TinyOptions options = Small("llama", 64, false);
    const auto plan = PlanOf(options, stages, kMicrobatches, "1f1b-vocab");
    ASSERT_TRUE(plan.has_value()) << plan.error();
    int64_t bytes = 0;
    int64_t messages = 0;
    for (const ir::Program& program : plan->Main()) {
      for (const ir::Instruction& instruction : program.instructions) {
        if (instruction.op != ir::Opcode::kSend) continue;
        if (program.channels[instruction.channel.index()].name.find("/u") != std::string::npos)
          continue;
        int64_t elements = 1;
        for (const int64_t size : instruction.box.size) elements *= size;
        bytes += elements * ir::DTypeBytes(program.slot(instruction.slot).type.dtype);
        ++messages;
      }
    }
    const int64_t tokens = options.batch / kMicrobatches * options.sequence;
    EXPECT_EQ(bytes, kMicrobatches * (stages - 1) * tokens * (7 * 32 + 3) * 8) << stages;
    EXPECT_EQ(messages, kMicrobatches * (stages - 1) * 10) << stages;
  }
}

// ---- How long it takes --------------------------------------------------------------------------

// With times like the clock's no stage waits longer than with 1f1b, whose last stage has all the
// work of the head.
TEST(SharedVocabulary, StagesWaitNoLongerThanWithout) {
  planner::SimulationCosts costs;
  costs.run_s = [](const ir::Program&, const ir::Executable& executable) {
    const std::string piece = planner::ExecutablePiece(executable);
    if (piece == "f.1" || piece == "f.2") return 2.0;
    if (piece == "b.1") return 4.0;
    return piece == "b.2" ? 1.0 : 0.0;
  };
  for (const int stages : {2, 4}) {
    const auto plan = PlanOf(Small("gpt2", 61), stages, 12, "1f1b-vocab");
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const auto simulation = planner::Simulate(plan->Of("step"), costs);
    ASSERT_TRUE(simulation.has_value()) << simulation.error();
    const double work = 12 * (2 + 2 + 4 + 1);
    EXPECT_LE(simulation->makespan_s, work + (stages - 1) * (2 + 4));
  }
}

// ---- What is refused ----------------------------------------------------------------------------

std::string RefusalOf(const ir::JobRequest& job, int devices) {
  const auto plan = planner::MakePlan(job, mesh::Topology::Local(devices));
  return plan.has_value() ? "" : plan.error().message();
}

TEST(SharedVocabulary, RefusesWhatItDoesNotGoWith) {
  ir::JobRequest job = Shared(MakeTinyJob(Small("gpt2", 61)), {1, 1, 2, 4});
  EXPECT_EQ(RefusalOf(job, 2), "");
  job.parallel.shardings = "search";
  EXPECT_NE(RefusalOf(job, 2).find("1f1b-vocab"), std::string::npos) << RefusalOf(job, 2);
  job.parallel.shardings = "rules";
  job.parallel.data = job.parallel.tensor = 0;
  job.parallel.stage_meshes = "2x1,1x1";
  EXPECT_NE(RefusalOf(job, 3).find("meshes"), std::string::npos) << RefusalOf(job, 3);
  TinyOptions few = Small("gpt2", 3);
  EXPECT_NE(RefusalOf(Shared(MakeTinyJob(few), {1, 1, 4, 4}), 4).find("3 rows for 4 stages"),
            std::string::npos);
}

// Without a pipeline there is nobody to share with.
TEST(SharedVocabulary, OneStageIsPlain) {
  const auto plan = PlanOf(Small("gpt2", 61), 1, 4, "1f1b-vocab");
  ASSERT_TRUE(plan.has_value()) << plan.error();
  EXPECT_EQ(plan->Main()[0].channels.size(), 0U);
}

}  // namespace
}  // namespace meshwright::testing
