// What a tensor axis does not divide is padded: the model, its state and its files stay what they
// are.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "planner/padding.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/saved_states.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

TinyOptions OptionsOf(const std::string& family) {
  TinyOptions options;
  options.family = family;
  options.layers = 2;
  options.batch = 16;
  return options;
}

void ExpectLikeOneDevice(const TinyOptions& options, const std::vector<LayoutCase>& layouts,
                         const std::function<void(ir::JobRequest&)>& change = {}) {
  ir::JobRequest job = MakeTinyJob(options);
  const auto vocabulary = static_cast<int>(options.vocabulary);
  const auto expected = RunJob(WithLayout(job, {}), 1, vocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  if (change) change(job);
  for (const LayoutCase& layout : layouts) {
    const std::string name = options.family + " " + layout.ToString();
    const auto actual = RunJob(WithLayout(job, layout), layout.devices(), vocabulary);
    ASSERT_TRUE(actual.has_value()) << name << ": " << actual.error();
    ExpectEqual(*expected, *actual, 1e-10, name);
  }
}

// 8 heads or 16 on 8 key heads, 61 words, widths of 64 and 128; none is a multiple of 3, 5, 6 or 7.
std::vector<LayoutCase> Layouts() {
  if (kSanitizedBuild) return {{1, 3, 1, 1}};
  return {{1, 3, 1, 1}, {2, 3, 1, 2}, {1, 3, 2, 4}, {1, 5, 1, 1}, {1, 6, 1, 2}, {1, 7, 1, 1}};
}

TEST(Padding, TensorDegreesThatDivideNothingTrainLikeOneDevice) {
  for (const char* family : {"gpt2", "llama", "mixtral"}) {
    ExpectLikeOneDevice(OptionsOf(family), Layouts());
  }
}

TEST(Padding, KeyHeadsFewerThanDevicesAreRepeated) {
  const TinyOptions options = OptionsOf("llama");
  const LayoutCase layout = {1, 16, 1, 1};
  ExpectLikeOneDevice(options, {layout});
  const auto run = RunJob(WithLayout(MakeTinyJob(options), layout), layout.devices(),
                          static_cast<int>(options.vocabulary));
  ASSERT_TRUE(run.has_value()) << run.error();
  const auto about =
      std::count_if(run->plan.notes.begin(), run->plan.notes.end(), [](const std::string& note) {
        return note.find("replicated over tensor=16: no factor of them") != std::string::npos;
      });
  EXPECT_EQ(about, 1) << "of all layers together";
}

TEST(Padding, DevicesWithoutAnyHeadHaveZeros) {
  TinyOptions options = OptionsOf("gpt2");
  options.gpt2_heads = 2;
  ExpectLikeOneDevice(options, {{1, 4, 1, 1}, {2, 4, 1, 1}});
}

TEST(Padding, AnUntiedHeadAndWindowsGoAlong) {
  TinyOptions options = OptionsOf("llama");
  options.tied = false;
  options.attention_window = 5;
  ExpectLikeOneDevice(options, {{1, 3, 1, 1}});
}

// The mask of a head that is there does not depend on those that are not.
TEST(Padding, DropoutIsThatOfTheModel) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = OptionsOf(family);
    options.dropout = 0.2;
    ExpectLikeOneDevice(options, {{1, 3, 1, 1}, {2, 3, 1, 1}});
  }
}

TEST(Padding, ZeroRecomputationAndSequencesGoAlong) {
  TinyOptions options = OptionsOf("gpt2");
  options.sequence = 9;
  for (const int64_t zero : {1, 2, 3}) {
    ExpectLikeOneDevice(options, {{2, 3, 1, 1}, {4, 3, 1, 1}}, [&](ir::JobRequest& job) {
      job.parallel.zero = zero;
      job.parallel.sequence_parallel = zero > 1;
      if (zero == 2) job.parallel.recompute = "full";
    });
  }
}

// Whatever weights begin with, their padding begins with zeros.
TEST(Padding, WeightsOfAnyBeginningGoAlong) {
  for (const char* init : {"uniform", "ones"}) {
    ir::JobRequest job = MakeTinyJob(OptionsOf("gpt2"));
    for (ir::JobProgram& program : job.programs) {
      for (ir::Node& node : program.graph.nodes) {
        const std::string name = node.attrs.Str("name");
        const bool chosen = name.ends_with("c_fc.bias") || name.ends_with("c_fc.weight");
        if (node.op == ir::Op::kParam && chosen) node.attrs.Set("init", std::string(init));
      }
    }
    const auto expected = RunJob(WithLayout(job, {}), 1, 61);
    ASSERT_TRUE(expected.has_value()) << expected.error();
    const auto actual = RunJob(WithLayout(job, {1, 3, 1, 1}), 3, 61);
    ASSERT_TRUE(actual.has_value()) << actual.error();
    ExpectEqual(*expected, *actual, 1e-10, init);
  }
}

TEST(Padding, AVocabularyThatStagesShareIsNotPadded) {
  TinyOptions options = OptionsOf("gpt2");
  ExpectLikeOneDevice(options, {{1, 3, 2, 4}},
                      [](ir::JobRequest& job) { job.parallel.schedule = "1f1b-vocab"; });
}

TEST(Padding, ThePlanSaysWhatWasPadded) {
  ir::JobRequest job = WithLayout(MakeTinyJob(OptionsOf("gpt2")), {1, 3, 1, 1});
  const auto run = RunJob(job, 3, 61);
  ASSERT_TRUE(run.has_value()) << run.error();
  std::string notes;
  for (const std::string& note : run->plan.notes) notes += note + "\n";
  EXPECT_THAT(notes, HasSubstr("61 units are padded to 63 for tensor=3"));
  EXPECT_THAT(notes, HasSubstr("8 units are padded to 9 for tensor=3"));
  for (const planner::ParamInfo& param : run->plan.params) {
    if (param.name != "wte") continue;
    EXPECT_EQ(param.type.dims, (ir::Dims{61, 32}));
  }
}

// Files know nothing of padding.
TEST(Padding, StateGoesBetweenLayouts) {
  const std::vector<LayoutCase> layouts = {{1, 1, 1, 1}, {1, 3, 1, 1}, {2, 5, 1, 1}, {1, 2, 2, 2}};
  TinyOptions options = OptionsOf("gpt2");
  options.dropout = 0.1;
  SavedStates states;
  SyntheticTokens tokens(61);
  std::vector<Trained> undisturbed;
  std::vector<std::unique_ptr<VirtualCluster>> clusters;
  for (const LayoutCase& layout : layouts) {
    ir::JobRequest job = WithLayout(MakeTinyJob(options), layout);
    job.parallel.zero = layout.data > 1 ? 3 : 0;
    auto cluster = VirtualCluster::Start(job, layout.devices(), &tokens);
    ASSERT_TRUE(cluster.has_value()) << layout.ToString() << ": " << cluster.error();
    ASSERT_TRUE((*cluster)->Train(0, 2).has_value());
    ASSERT_TRUE(states.Save(**cluster, 2, layout.ToString()).ok()) << layout.ToString();
    undisturbed.push_back(TrainOn(**cluster, 2, 3).value());
    clusters.push_back(std::move(*cluster));
  }
  for (size_t to = 0; to < layouts.size(); ++to) {
    for (size_t from = 0; from < layouts.size(); ++from) {
      const std::string pair = layouts[to].ToString() + " from " + layouts[from].ToString();
      const Status loaded = states.Load(*clusters[to], 2, layouts[from].ToString());
      ASSERT_TRUE(loaded.ok()) << pair << ": " << loaded;
      const Trained trained = TrainOn(*clusters[to], 2, 3).value();
      ExpectSameTraining(undisturbed[from], trained, from == to, pair);
    }
  }
}

}  // namespace
}  // namespace meshwright::testing
