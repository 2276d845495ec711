// The user's view of plans with the real binary: JSON, explanations, comparisons, saved plans that
// are run, and the cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kModel[] = R"([model]
dim = 32
n_layers = 4
n_heads = 4
vocab_size = 256
[training]
global_batch_size = 8
seq_len = 16
steps = 3
)";

class PlanCommand : public FaultFixture {
 protected:
  void SetUp() override {
    data_ = Write("data.txt", SampleText(9'000));
    open_ = WriteJob("open.toml", "");
  }
  std::string WriteJob(const std::string& name, const std::string& rest) {
    return Write(name, kModel + ("dataset_path = \"" + data_ + "\"\n") + rest);
  }
  // Its stdout; a failure unless it ends with 0.
  std::string Run(const std::vector<std::string>& args, const std::string& cache = "off") {
    const auto output = RunMeshwright(args, {{"MESHWRIGHT_PLAN_CACHE", cache}});
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output) return "";
    EXPECT_TRUE(output->exit.ok()) << output->stdout_text << output->stderr_text;
    return output->stdout_text;
  }

  std::string data_;
  std::string open_;
};

TEST_F(PlanCommand, JsonIsOneObjectThatMatchesTheText) {
  const json object = json::parse(Run({"plan", open_, "--devices", "4", "--json"}));
  EXPECT_TRUE(object["fits"]);
  const std::string text = Run({"plan", open_, "--devices", "4"});
  EXPECT_THAT(text, HasSubstr("plan: " + object["layout"]["text"].get<std::string>()));
}

TEST_F(PlanCommand, ExplainsEveryAxis) {
  const json object = json::parse(Run({"plan", "explain", open_, "--devices", "2", "--json"}));
  EXPECT_EQ(object["axes"].size(), 7u);
  EXPECT_THAT(Run({"plan", "explain", open_, "--devices", "2"}), HasSubstr("AXIS"));
}

TEST_F(PlanCommand, VerifyHoldsTheLayoutAgainstOneDevice) {
  const std::vector<std::string> args = {"verify",
                                         open_,
                                         "--devices",
                                         "4",
                                         "--parallelism.tensor_parallel_degree=2",
                                         "--parallelism.data_parallel_replicate_degree=2"};
  std::vector<std::string> as_json = args;
  as_json.emplace_back("--json");
  const json object = json::parse(Run(as_json));
  EXPECT_TRUE(object["equal"]) << object.dump(2);
  EXPECT_EQ(object["ranks"], 4);
  EXPECT_THAT(Run(args), HasSubstr("the layout computes what one device computes"));
  std::vector<std::string> few = args;
  few.insert(few.end(), {"--max-ranks", "2"});
  const Failure failure = Fails(few);
  EXPECT_EQ(failure.code, 2);
  EXPECT_THAT(failure.text, HasSubstr("--max-ranks"));
  few[3] = "2";  // devices: too few for the degrees
  EXPECT_EQ(Fails(few).code, 4);
}

TEST_F(PlanCommand, ExitCodesTellWhatDoesNotFitFromWhatIsWrong) {
  struct Case {
    std::vector<std::string> args;
    int code;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{"--parallelism.data_parallel_replicate_degree=3", "--json"}, 4, "\"fits\": false"},
      // More than there are, open or pinned through.
      {{"--parallelism.tensor_parallel_degree=8"}, 4, "needs 8 devices, the cluster has 4"},
      {{"--what-if", "parallelism.nosuch=3"}, 2, "--what-if"},
      // No number of devices mends a contradiction.
      {{"--parallelism.pipeline_parallel_layers=\"1,9\""},
       2,
       "parallelism.pipeline_parallel_layers is '1,9'"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> args = {"plan", open_, "--devices", "4"};
    args.insert(args.end(), c.args.begin(), c.args.end());
    const Failure failure = Fails(args);
    EXPECT_EQ(failure.code, c.code) << c.args[0];
    EXPECT_THAT(failure.text, HasSubstr(c.says)) << c.args[0];
  }
}

TEST_F(PlanCommand, ExplainNamesAlternatives) {
  const std::vector<std::string> pins = {"--devices", "4", "--parallelism.tensor_parallel_degree=2",
                                         "--parallelism.pipeline_parallel_degree=2",
                                         "--parallelism.pipeline_parallel_schedule=1f1b"};
  const auto explain = [&](const std::string& subject) {
    std::vector<std::string> args = {"plan", "explain", open_, subject};
    args.insert(args.end(), pins.begin(), pins.end());
    return Run(args);
  };
  EXPECT_THAT(explain("stage 0"), HasSubstr("layer 2 from stage 1 to stage 0"));
  const std::string weights = explain("*.c_attn.weight");
  EXPECT_THAT(weights, HasSubstr("*"));
  EXPECT_THAT(weights, HasSubstr("{tensor}"));
}

TEST_F(PlanCommand, ASavedPlanIsReplayedComparedAndRun) {
  const std::string saved = dir_.File("p.plan.toml");
  const std::string shown = Run({"plan", open_, "--devices", "2", "--save", saved, "--trace",
                                 dir_.File("t.json"), "--svg", dir_.File("p.svg")});
  EXPECT_TRUE(FileExists(dir_.File("t.json")));
  EXPECT_TRUE(FileExists(dir_.File("p.svg")));
  const json first = json::parse(Run({"plan", open_, "--devices", "2", "--json"}));
  const json replayed = json::parse(Run({"plan", open_, "--plan", saved, "--json"}));
  EXPECT_EQ(replayed["forecast"], first["forecast"]);
  EXPECT_EQ(replayed["params"], first["params"]);
  EXPECT_TRUE(replayed["search"].is_null());
  const std::string same = Run({"plan", "diff", open_, saved, "--devices", "2"});
  EXPECT_THAT(same, HasSubstr("(no keys differ)"));
  const std::string other = WriteJob("other.toml",
                                     "[parallelism]\ntensor_parallel_degree = 2\n"
                                     "pipeline_parallel_degree = 1\n"
                                     "data_parallel_replicate_degree = 1\n");
  const json diff = json::parse(Run({"plan", "diff", saved, other, "--devices", "2", "--json"}));
  EXPECT_EQ(diff["a"]["file"], saved);
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string run =
      Run({"--address", cluster().address(), "submit", open_, "--plan", saved, "-q"});
  EXPECT_THAT(run, HasSubstr("SUCCEEDED"));
  std::string layout = first["layout"]["text"];
  layout = layout.substr(0, layout.find(" layers="));
  EXPECT_THAT(run, HasSubstr(layout));
}

TEST_F(PlanCommand, APlanThatContradictsThePinOfTheJobIsRefused) {
  const std::string job = WriteJob("pinned.toml", "[parallelism]\ntensor_parallel_degree = 2\n");
  const std::string plan = Write("p.toml", "[parallelism]\ntensor_parallel_degree = 4\n");
  const Failure refused = Fails({"plan", job, "--plan", plan, "--devices", "4"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr("p.toml:2:26"));
  EXPECT_THAT(refused.text, HasSubstr("pinned.toml"));
}

TEST_F(PlanCommand, APlanOfAnotherJobIsSaidToBeOne) {
  const std::string saved = dir_.File("p.plan.toml");
  Run({"plan", open_, "--devices", "4", "--parallelism.tensor_parallel_degree=4", "--save", saved});
  const std::string other = WriteJob(
      "other.toml", "[parallelism]\ntensor_parallel_degree = 2\n[optimizer]\nname = \"sgd\"\n");
  const Failure refused = Fails({"plan", other, "--plan", saved, "--devices", "4"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text,
              HasSubstr("p.plan.toml is the plan of another job (" + open_ + "), and not of "));
  // Of the same job with another pin the pin is what is wrong.
  const std::string pinned = WriteJob("pinned.toml", "[parallelism]\ntensor_parallel_degree = 2\n");
  EXPECT_THAT(Fails({"plan", pinned, "--plan", saved, "--devices", "4"}).text,
              Not(HasSubstr("another job")));
}

TEST_F(PlanCommand, AWrongWhatIfIsNamedOnce) {
  const Failure wrong =
      Fails({"plan", open_, "--devices", "4", "--what-if", "parallelism.nosuch=3"});
  EXPECT_THAT(wrong.text, HasSubstr("error: --what-if parallelism.nosuch=3: "));
  EXPECT_THAT(wrong.text, Not(HasSubstr("--set")));
}

TEST_F(PlanCommand, TheSecondPlanComesFromTheCache) {
  const std::string cache = dir_.File("plans");
  const std::vector<std::string> plan = {"plan", open_, "--devices", "4"};
  const std::string first = Run(plan, cache);
  EXPECT_THAT(first, Not(HasSubstr("found in the cache")));
  const std::string second = Run(plan, cache);
  EXPECT_THAT(second, HasSubstr("found in the cache"));
  std::vector<std::string> anew = plan;
  anew.push_back("--no-plan-cache");
  EXPECT_EQ(Run(anew, cache), first);
}

}  // namespace
}  // namespace meshwright::testing
