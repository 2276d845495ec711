// The same promise for what the planner really emits: a decoder over data, tensor and pipeline
// axes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/builder.h"
#include "ir/verify.h"
#include "planner/memory.h"
#include "planner/plan.h"
#include "tests/property/first_fit.h"
#include "tests/property/ir_program_mutants.h"
#include "tests/scale.h"

namespace meshwright::ir::testing {
namespace {

constexpr int kMutantsOfAKind = kSanitizedBuild ? 4 : 60;
constexpr int64_t kBatch = 8;
constexpr int64_t kSequence = 8;
constexpr int64_t kHidden = 16;
constexpr int64_t kHeads = 4;
constexpr int64_t kVocabulary = 32;

class DecoderMaker {
 public:
  explicit DecoderMaker(bool tied) : tied_(tied) {}

  Graph Make() {
    b_.SetLayer(0);
    tokens_ = b_.AddOne(Op::kFeed, {}, {{"source", std::string("tokens")}},
                        {{DType::kI32, {kBatch, kSequence + 1}}});
    const ValueId table = Param("wte", {kVocabulary, kHidden});
    ValueId x = b_.AddOne(Op::kEmbedding, {table, Tokens(0)});
    for (int layer = 0; layer < 4; ++layer) {
      b_.SetLayer(layer);
      x = Layer(x, fmt::format("h{}.", layer));
    }
    const ValueId head = tied_ ? table : Param("head", {kVocabulary, kHidden});
    const std::vector<ValueId> loss =
        b_.Add(Op::kCrossEntropy, {Einsum(x, head, "bsd,vd->bsv"), Tokens(1)},
               {{"ignore_index", int64_t{-100}}});
    b_.SetOutput("loss_sum", loss[0]);
    b_.SetOutput("count", loss[1]);
    auto graph = b_.Finish();
    EXPECT_TRUE(graph.has_value()) << graph.error();
    return std::move(*graph);
  }

 private:
  ValueId Param(const std::string& name, Dims dims) {
    return b_.AddOne(Op::kParam, {},
                     {{"name", name}, {"init", std::string("normal")}, {"std", 0.02}},
                     {{DType::kF32, std::move(dims)}});
  }

  ValueId Tokens(int64_t start) {
    return b_.AddOne(Op::kSlice, {tokens_},
                     {{"dim", int64_t{1}}, {"start", start}, {"size", kSequence}});
  }

  ValueId Einsum(ValueId a, ValueId b, const std::string& equation) {
    return b_.AddOne(Op::kEinsum, {a, b}, {{"equation", equation}});
  }

  ValueId Norm(ValueId x, const std::string& name) {
    return b_.Add(Op::kRmsNorm, {x, Param(name, {kHidden})}, {{"eps", 1e-5}})[0];
  }

  ValueId Layer(ValueId x, const std::string& name) {
    const int64_t e = kHidden / kHeads;
    const ValueId n = Norm(x, name + "norm1");
    std::vector<ValueId> qkv;
    for (const char* part : {"q", "k", "v"}) {
      qkv.push_back(Einsum(n, Param(name + part, {kHidden, kHeads, e}), "bsd,dhe->bshe"));
    }
    const ValueId o = b_.Add(Op::kAttention, qkv, {{"causal", int64_t{1}}})[0];
    x = b_.AddOne(Op::kAdd,
                  {x, Einsum(o, Param(name + "o", {kHeads, e, kHidden}), "bshe,hed->bsd")});
    const ValueId m = Norm(x, name + "norm2");
    const ValueId up = Einsum(m, Param(name + "up", {kHidden, 4 * kHidden}), "bsd,df->bsf");
    const ValueId down = Param(name + "down", {4 * kHidden, kHidden});
    return b_.AddOne(Op::kAdd, {x, Einsum(b_.AddOne(Op::kGelu, {up}), down, "bsf,fd->bsd")});
  }

  const bool tied_;
  Builder b_{"decoder"};
  ValueId tokens_;
};

struct Case {
  bool tied;
  int64_t data, tensor, pipeline, microbatches;
  const char* schedule;
  bool sequence_parallel;

  std::string ToString() const {
    return fmt::format(
        "tied={} data={} tensor={} pipeline={} microbatches={} {} sequence_parallel={}", tied, data,
        tensor, pipeline, microbatches, schedule, sequence_parallel);
  }
};

planner::Plan PlanOf(const Case& c) {
  JobRequest job;
  job.name = "decoder";
  job.SetLoss(DecoderMaker(c.tied).Make());
  job.data.blob.sha256 = "0";
  job.train.global_batch = kBatch;
  job.train.sequence = kSequence;
  job.parallel.data = c.data;
  job.parallel.tensor = c.tensor;
  job.parallel.pipeline = c.pipeline;
  job.parallel.microbatches = c.microbatches;
  job.parallel.schedule = c.schedule;
  job.parallel.sequence_parallel = c.sequence_parallel;
  const int devices = static_cast<int>(c.data * c.tensor * c.pipeline);
  auto plan = planner::MakePlan(job, mesh::Topology::Local(devices));
  EXPECT_TRUE(plan.has_value()) << c.ToString() << ": " << plan.error();
  return plan ? std::move(*plan) : planner::Plan();
}

TEST(PlannedProgramsProperty, MutantsThatChangeTheMeaningAreRejected) {
  const std::vector<Case> cases = {
      {false, 1, 1, 1, 1, "gpipe", false}, {true, 2, 1, 1, 2, "gpipe", false},
      {true, 1, 2, 1, 2, "1f1b", false},   {true, 1, 2, 2, 2, "1f1b", true},
      {false, 1, 1, 4, 4, "1f1b", false},  {true, 1, 1, 4, 2, "gpipe", false},
      {true, 2, 1, 2, 4, "1f1b", false},   {true, 2, 2, 2, 2, "1f1b", true},
  };
  Tally tally;
  for (const Case& c : cases) {
    const planner::Plan plan = PlanOf(c);
    for (const std::vector<Program>* programs :
         {&plan.Of("init"), &plan.Of("step"), &plan.Of("eval")}) {
      const Meaning meaning = Interpret(*programs, 0);
      ASSERT_TRUE(meaning.finished) << c.ToString();
      ASSERT_EQ(Interpret(*programs, 9), meaning) << c.ToString() << ": depends on timing";
      std::mt19937_64 random(tally.mutants);
      for (int i = 0; i < kMutantsOfAKind; ++i) {
        const size_t program = random() % programs->size();
        const size_t count = (*programs)[program].instructions.size();
        const size_t a = random() % count;
        const size_t b = random() % count;
        CheckMutant(c.ToString(), meaning, Drop(*programs, program, a), tally);
        CheckMutant(c.ToString(), meaning, Duplicate(*programs, program, a, b), tally);
        CheckMutant(c.ToString(), meaning, Swap(*programs, program, a, b), tally);
        CheckMutant(c.ToString(), meaning, Swap(*programs, program, a, (a + 1) % count), tally);
        if (HasFatalFailure()) return;
      }
    }
  }
  RecordProperty("mutants", tally.mutants);
  RecordProperty("accepted", tally.accepted);
  EXPECT_LT(tally.accepted, tally.mutants / 3);
}

TEST(PlannedProgramsProperty, SlotsLieWhereFirstFitPutsThem) {
  for (const Case& c :
       {Case{true, 2, 2, 2, 2, "1f1b", true}, {false, 1, 1, 4, 8, "zb-h1", false}}) {
    const auto plan = PlanOf(c);
    for (const Program& program : plan.Of("step")) {
      const planner::SlotSpans spans = planner::SpansOf(program);
      std::vector<Lifetime> lives;
      std::vector<int64_t> offset_bytes;
      for (size_t s = 0; s < program.slots.size(); ++s) {
        if (program.slots[s].persistent || spans.last[s] < 0) continue;
        const bool report =
            std::any_of(program.reports.begin(), program.reports.end(),
                        [&](const auto& r) { return r.slot == SlotId(static_cast<int32_t>(s)); });
        lives.push_back(
            {program.slots[s].type.bytes(), spans.first[s], report ? spans.end : spans.last[s]});
        offset_bytes.push_back(program.slots[s].offset_bytes);
      }
      EXPECT_EQ(offset_bytes, FirstFit(lives).offset_bytes) << c.ToString();
      EXPECT_GT(lives.size(), 40U);
    }
  }
}

}  // namespace
}  // namespace meshwright::ir::testing
