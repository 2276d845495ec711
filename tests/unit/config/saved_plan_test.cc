#include "config/saved_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scale.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::config {
namespace {

using report::PlanSmallJob;
using report::SmallConfig;
using ::testing::HasSubstr;
using ::testing::Not;

// A saved plan of the small job with these overrides.
std::string Saved(const std::vector<std::string>& overrides, const mesh::Topology& topology,
                  report::PlannedJob* planned_job = nullptr) {
  const auto config = SmallConfig(overrides);
  auto planned = PlanSmallJob(overrides, topology);
  EXPECT_TRUE(config.has_value() && planned.has_value());
  if (!config || !planned) return "";
  PlanOrigin origin;
  origin.job = "small.toml";
  origin.overrides = overrides;
  const auto text = FormatSavedPlan(
      origin, {*config, planned->prepared, planned->found, planned->forecast}, topology);
  EXPECT_TRUE(text.has_value()) << text.error();
  if (planned_job != nullptr) *planned_job = *std::move(planned);
  return text.value_or("");
}

std::string WithoutPlacedParts(std::string layout) {
  const size_t at = layout.find(" layers=");
  if (at == std::string::npos) return layout;
  const size_t end = layout.find(' ', at + 1);
  return layout.erase(at, end == std::string::npos ? end : end - at);
}

TEST(SavedPlan, ReplaysTheSamePlanWithoutASearch) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const mesh::Topology topology = mesh::Topology::Local(4, 1);
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {},
           {"parallelism.pipeline_parallel_degree=2", "parallelism.tensor_parallel_degree=2"},
           {"parallelism.zero_stage=1", "parallelism.data_parallel_replicate_degree=4"}}) {
    report::PlannedJob first;
    const std::string text = Saved(overrides, topology, &first);
    const auto again = PlanSmallJob({}, topology, text);
    ASSERT_TRUE(again.has_value()) << again.error() << "\n" << text;
    EXPECT_EQ(WithoutPlacedParts(again->plan().layout.ToString()),
              WithoutPlacedParts(first.plan().layout.ToString()));
    EXPECT_EQ(again->forecast.step_s, first.forecast.step_s);
    EXPECT_TRUE(again->found.found.best.empty()) << "nothing was left to the search";
    for (size_t i = 0; i < first.plan().stages.size(); ++i) {
      EXPECT_EQ(again->plan().stages[i].layers, first.plan().stages[i].layers);
    }
  }
}

TEST(SavedPlan, LayersThatRecomputeDifferentlyAreKeptApart) {
  const mesh::Topology topology = mesh::Topology::Local(1, 1);
  const std::string text =
      Saved({"parallelism.data_parallel_replicate_degree=1", "activation_checkpoint.mode=full",
             "activation_checkpoint.layers=0 full,1-2 selective"},
            topology);
  EXPECT_THAT(text, HasSubstr("layers = \"0 full, 1-2 selective, 3 none\""));
  const auto again = PlanSmallJob({}, topology, text);
  ASSERT_TRUE(again.has_value()) << again.error();
  using enum planner::Recompute;
  EXPECT_EQ(again->plan().layout.recompute,
            (std::vector<planner::Recompute>{kFull, kSelective, kSelective, kNone}));
}

// They are found with the programs; what the job asks for is a key.
TEST(SavedPlan, ChunksOfProductsComeBack) {
  const mesh::Topology topology = mesh::Topology::Local(2, 1);
  report::PlannedJob first;
  const std::string text =
      Saved({"parallelism.tensor_parallel_degree=2", "parallelism.tensor_parallel_chunks=2"},
            topology, &first);
  ASSERT_EQ(first.plan().layout.tensor_chunks, 2);
  const auto again = PlanSmallJob({"parallelism.tensor_parallel_chunks=2"}, topology, text);
  ASSERT_TRUE(again.has_value()) << again.error() << "\n" << text;
  EXPECT_EQ(again->plan().layout.tensor_chunks, 2);
  EXPECT_EQ(again->forecast.step_s, first.forecast.step_s);
}

// A key that is only there to be reported as having no effect is none.
TEST(SavedPlan, HasNoSizesOfWhatThePlanDoesNotHave) {
  const mesh::Topology topology = mesh::Topology::Local(2, 1);
  const std::string data2 = "parallelism.data_parallel_replicate_degree=2";
  const std::string plain = Saved({data2, "parallelism.zero_stage=0"}, topology);
  EXPECT_THAT(plain, Not(HasSubstr("offload_chunk_bytes")));
  EXPECT_THAT(plain, Not(HasSubstr("zero_min_weight_bytes")));
  const auto read = SmallConfig({}, plain);
  ASSERT_TRUE(read.has_value()) << read.error();
  for (const std::string& note : read->notes) EXPECT_THAT(note, Not(HasSubstr("no effect")));
  const std::string both =
      Saved({data2, "parallelism.zero_stage=1", "parallelism.optimizer_memory=host"}, topology);
  EXPECT_THAT(both, HasSubstr("\noffload_chunk_bytes = "));
  EXPECT_THAT(both, HasSubstr("\nzero_min_weight_bytes = "));
}

TEST(SavedPlan, GroupsOfReplicasComeBack) {
  const mesh::Topology topology = mesh::Topology::Local(4, 1);
  const std::string text =
      Saved({"parallelism.data_parallel_replicate_degree=4", "parallelism.zero_stage=3",
             "parallelism.tensor_parallel_degree=1", "parallelism.pipeline_parallel_degree=1",
             "parallelism.zero_weights_degree=2"},
            topology);
  EXPECT_THAT(text, HasSubstr("zero_weights_degree = 2\n"));
  const auto again = PlanSmallJob({}, topology, text);
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(again->plan().layout.zero_groups, (planner::ZeroGroups{0, 0, 2}));
}

TEST(SavedPlan, ShardingsOfTheSearchArePins) {
  const mesh::Topology topology = mesh::Topology::Local(4, 1);
  report::PlannedJob first;
  const std::vector<std::string> overrides = {
      "parallelism.shardings=search", "parallelism.data_parallel_replicate_degree=2",
      "parallelism.tensor_parallel_degree=2",
      "parallelism.sharding_pins=*.c_fc.weight=[_{data},_{tensor}]"};
  const std::string text = Saved(overrides, topology, &first);
  ASSERT_TRUE(first.found.by_search);
  EXPECT_THAT(text, HasSubstr("shardings = \"search\"\n"));
  EXPECT_THAT(text, HasSubstr("[parallelism.pin]\n"));
  EXPECT_THAT(text, HasSubstr("'transformer.h.*.mlp.c_fc.weight' = \"[_{data},_{tensor}]\""));
  const auto again = PlanSmallJob({}, topology, text);
  ASSERT_TRUE(again.has_value()) << again.error() << text;
  // What lies between pinned weights is searched anew.
  EXPECT_NEAR(again->forecast.step_s / first.forecast.step_s, 1, 5e-2);
  for (size_t i = 0; i < first.plan().params.size(); ++i) {
    EXPECT_EQ(again->plan().params[i].sharding, first.plan().params[i].sharding);
  }
}

TEST(SavedPlan, AKeyThatIsTakenOutIsOpenAgain) {
  const mesh::Topology topology = mesh::Topology::Local(4, 1);
  const auto config = SmallConfig({}, "[parallelism]\ntensor_parallel_degree = 2\n");
  ASSERT_TRUE(config.has_value()) << config.error();
  EXPECT_EQ(config->parallel.tensor, 2);
  EXPECT_EQ(config->parallel.pipeline, 0);
  EXPECT_EQ(config->origins.at("parallelism.tensor_parallel_degree"), "plan.toml:2:26");
}

TEST(SavedPlan, AContradictionWithThePinOfTheJobNamesBothPlaces) {
  const std::string two = "[parallelism]\ntensor_parallel_degree = 2\n";
  const auto refused = SmallConfig({"parallelism.tensor_parallel_degree=4"}, two);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("plan.toml:2:26"));
  EXPECT_THAT(refused.error().message(), HasSubstr("parallelism.tensor_parallel_degree is 2"));
  EXPECT_THAT(refused.error().message(),
              HasSubstr("--set parallelism.tensor_parallel_degree=4 pins it to 4"));
  EXPECT_TRUE(SmallConfig({"parallelism.tensor_parallel_degree=2"}, two).has_value());
  EXPECT_TRUE(SmallConfig({"parallelism.tensor_parallel_degree=auto"}, two).has_value());
}

TEST(SavedPlan, HasNothingButDecisions) {
  const auto job = SmallConfig({}, "[training]\nsteps = 3\n");
  ASSERT_FALSE(job.has_value());
  EXPECT_THAT(job.error().message(), HasSubstr("plan.toml:1:2: 'training' is no decision"));
  const auto typo = SmallConfig({}, "[parallelism]\ntensor_paralel_degree = 2\n");
  ASSERT_FALSE(typo.has_value());
  EXPECT_THAT(typo.error().message(), HasSubstr("did you mean 'tensor_parallel_degree'"));
}

TEST(PlanOrigin, IsReadBackAndTellsOtherJobsAndClusters) {
  const mesh::Topology two = mesh::Topology::Local(2, 1);
  report::PlannedJob planned;
  const std::string text = Saved({"training.global_batch_size=16"}, two, &planned);
  EXPECT_TRUE(IsSavedPlan(text));
  EXPECT_FALSE(IsSavedPlan("[parallelism]\n"));
  EXPECT_FALSE(IsSavedPlan("[plan"));
  const auto origin = ParsePlanOrigin(text, "p.toml");
  ASSERT_TRUE(origin.has_value()) << origin.error();
  EXPECT_EQ(origin->job, "small.toml");
  EXPECT_EQ(origin->overrides, std::vector<std::string>{"training.global_batch_size=16"});
  EXPECT_EQ(origin->devices, 2);
  const ir::JobRequest& job = planned.prepared.request;
  EXPECT_EQ(ForeignPlanNote(*origin, "p.toml", job, &two), "");
  const mesh::Topology three = mesh::Topology::Local(3, 1);
  EXPECT_THAT(ForeignPlanNote(*origin, "p.toml", job, &three), HasSubstr("for another cluster"));
  EXPECT_EQ(ForeignPlanNote(*origin, "p.toml", job, nullptr), "");
  ir::JobRequest other = job;
  other.train.sequence *= 2;
  EXPECT_THAT(ForeignPlanNote(*origin, "p.toml", other, &two), HasSubstr("for another job"));
}

TEST(PlanOrigin, ErrorsSayWhere) {
  const auto unknown = ParsePlanOrigin("[plan]\njobb = \"x\"\n", "p.toml");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(), HasSubstr("p.toml:2:1: 'jobb' of [plan] is unknown"));
  EXPECT_FALSE(ParsePlanOrigin("x = 1\n", "p.toml").has_value());
}

}  // namespace
}  // namespace meshwright::config
