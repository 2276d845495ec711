// The jobs that commands have for themselves: they are told apart from those of people.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ToolSessions : public FaultFixture {
 protected:
  ProcessOutput Say(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address()});
    const auto output = RunMeshwright(args);
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output.has_value()) return {};
    EXPECT_TRUE(output->exit.ok()) << output->stdout_text << output->stderr_text;
    return *output;
  }

  // A session ends a moment after its command.
  bool HaveEnded() {
    return WaitUntil(
        [this] {
          const auto jobs = client().List().value();
          return std::all_of(jobs.begin(), jobs.end(),
                             [](const auto& job) { return client::IsTerminal(job.state); });
        },
        20'000);
  }
};

TEST_F(ToolSessions, AreLeftOutOnceTheyHaveEnded) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const std::string data = Write("data.txt", SampleText(9'000));
  Say({"submit", "-q", Write("job.toml", JobFile(data, 1, 1, 4))});
  EXPECT_EQ(Say({"jobs"}).stderr_text, "");
  Say({"predict", "1", "hello"});
  Say({"evaluate", "1", "--batches", "1"});
  ASSERT_TRUE(HaveEnded());

  const ProcessOutput listed = Say({"jobs"});
  EXPECT_THAT(listed.stdout_text, AllOf(HasSubstr("\n1 "), Not(HasSubstr("of job 1"))));
  EXPECT_THAT(listed.stderr_text, HasSubstr("2 ended sessions"));
  const auto all_are_there = [&] {
    const ProcessOutput all = Say({"jobs", "--all"});
    EXPECT_THAT(all.stdout_text, AllOf(HasSubstr("\n1 "), HasSubstr("prediction of job 1"),
                                       HasSubstr("evaluation of job 1")));
    EXPECT_EQ(all.stderr_text, "");
    const json jobs = json::parse(Say({"jobs", "-o", "json"}).stdout_text);
    ASSERT_EQ(jobs.size(), 3u);
    std::map<int, std::string> tools;
    for (const json& job : jobs) tools[job["id"]] = job["tool"];
    EXPECT_EQ(tools, (std::map<int, std::string>{{1, ""}, {2, "predict"}, {3, "evaluate"}}));
  };
  all_are_there();
  EXPECT_THAT(Say({"describe", "2"}).stdout_text, HasSubstr("session of  predict"));
  const std::string bundle = dir_.File("bundle.tar");
  Say({"support-bundle", "--out", bundle, "--sessions", "1"});
  EXPECT_THAT(ReadFile(bundle).value(),
              AllOf(HasSubstr("/jobs/1/"), HasSubstr("/jobs/3/"), Not(HasSubstr("/jobs/2/"))));
  // The next controller knows it, too.
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  all_are_there();
  EXPECT_THAT(Say({"jobs"}).stderr_text, HasSubstr("2 ended sessions"));
}

TEST_F(ToolSessions, AreListedWhileTheyRunAndHaveNamesOfTools) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const auto connect = [this](const std::string& tool) {
    client::Client::Options options;
    options.address = cluster().address();
    options.tool = tool;
    return client::Client::Connect(options).value();
  };
  const auto strange = connect("No tool!")->Submit(ByteJob(1, 1, 1, kForeverSteps));
  ASSERT_FALSE(strange.has_value());
  EXPECT_THAT(strange.error().message(), HasSubstr("tool must have at most 32 characters"));
  const ir::BlobRef text = client().UploadFile(Write("data.txt", SampleText(9'000))).value();
  ir::JobRequest job = ByteJob(1, 1, 1, kForeverSteps);
  job.data.blob = text;
  const auto id = connect("chat")->Submit(job);
  ASSERT_TRUE(id.has_value()) << id.error();
  const ProcessOutput listed = Say({"jobs"});
  EXPECT_THAT(listed.stdout_text, HasSubstr("\n1 "));
  EXPECT_EQ(listed.stderr_text, "");
  ASSERT_TRUE(client().Cancel(*id).ok());
  (void)EndOf(*id);
}

}  // namespace
}  // namespace meshwright::testing
