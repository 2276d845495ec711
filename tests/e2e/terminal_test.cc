// What a person at a terminal sees of the real binary: lines that fit, a live line, all errors at
// once, a job described, completion by bash itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class AtTheTerminal : public FaultFixture {
 protected:
  void SetUp() override { data_ = Write("data.txt", SampleText(9'000)); }

  // What the binary prints with the arguments; a failure unless it ends with `code`.
  std::string Said(const std::vector<std::string>& args, int code = 0) {
    const auto output = RunMeshwright(args, Environment());
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output) return "";
    EXPECT_EQ(output->exit.code, code) << Join(args, " ") << "\n"
                                       << output->stdout_text << output->stderr_text;
    return code == 0 ? output->stdout_text : output->stderr_text;
  }

  std::vector<std::pair<std::string, std::string>> Environment() const {
    if (!cluster_) return {};
    return {{"MESHWRIGHT_ADDRESS", cluster_->address()}};
  }

  // What a shell prints; `program` is in $M.
  std::string Shell(const std::string& script) {
    SubprocessOptions options;
    options.args = {"bash", "-c", script};
    options.env = Environment();
    options.env.emplace_back("M", MESHWRIGHT_BINARY);
    options.env.emplace_back("TERM", "xterm");
    const auto output = RunProcess(options, 30'000);
    EXPECT_TRUE(output.has_value()) << output.error();
    return output ? output->stdout_text : "";
  }

  // Of what bash would offer behind `line`.
  std::vector<std::string> Completed(const std::string& line) {
    const std::string text = Shell(
        "source <($M completion bash); complete -p meshwright > /dev/null || exit 1\n"
        "PATH=$(dirname $M):$PATH; COMP_LINE='" +
        line +
        "'; COMP_POINT=${#COMP_LINE}\n"
        "_meshwright; printf '%s\\n' \"${COMPREPLY[@]}\"");
    std::vector<std::string> lines = Split(text, '\n');
    std::erase(lines, "");
    return lines;
  }

  std::string data_;
};

TEST_F(AtTheTerminal, AllErrorsOfAFileAreToldAtOnceWithWhatIsMeant) {
  const std::string job = Write("bad.toml",
                                "[training]\nlearning_rate = 1\nbf16 = true\nstepz = 3\n"
                                "per_device_train_batch_size = 4\n");
  const std::string text = Said({"submit", job}, 2);
  EXPECT_THAT(text, StartsWith("error: 4 errors:\n  " + job));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("write optimizer.lr"), HasSubstr("write training.dtype = \"bfloat16\""),
            HasSubstr("did you mean 'steps'?"), HasSubstr("write training.local_batch_size")));
}

TEST_F(AtTheTerminal, ThePlanOfGpt2IsOneScreenWithTheForecastFirst) {
  const std::string job = std::string(MESHWRIGHT_SOURCE_DIR) + "/examples/gpt2-124m.toml";
  const std::string text = Said({"plan", job, "--devices", "16", "--no-plan-cache"});
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 24);
  EXPECT_LE(lines, 50) << text;
  EXPECT_LT(text.find("forecast   step"), text.find("plan: data="));
  EXPECT_THAT(text, HasSubstr("transformer.h.{0-11}.ln_1.{weight,bias}"));
  const std::string full = Said({"plan", job, "--devices", "16", "--no-plan-cache", "--full"});
  EXPECT_THAT(full, AllOf(HasSubstr("transformer.h.11.ln_1.bias"), HasSubstr("\nstage 3: F0")));
}

TEST_F(AtTheTerminal, AJobFollowedInEightyColumnsHasALiveLineAndIsDescribed) {
  StartWorkers(1);
  const std::string job = Write("job.toml", JobFile(data_, 1, 1, 40));
  const std::string screen =
      Shell("script -qec 'stty cols 80; $M submit " + job + "' /dev/null < /dev/null");
  EXPECT_THAT(screen, HasSubstr("\r\x1b[K["));
  EXPECT_THAT(screen, HasSubstr("40/40")) << screen;
  EXPECT_THAT(screen, HasSubstr("\x1b[32mSUCCEEDED\x1b[0m"));
  size_t step_lines = 0;
  for (std::string line : Split(screen, '\n')) {
    line = line.substr(line.rfind("\x1b[K") == std::string::npos ? 0 : line.rfind("\x1b[K") + 3);
    for (size_t at = line.find('\x1b'); at != std::string::npos; at = line.find('\x1b')) {
      line.erase(at, line.find('m', at) - at + 1);
    }
    std::erase(line, '\r');
    if (!line.starts_with("step: ")) continue;
    ++step_lines;
    EXPECT_LE(line.size(), 80u) << line;
  }
  EXPECT_GE(step_lines, 2u) << screen;
  // Elsewhere there are plain lines with all fields.
  const std::string plain = Said({"submit", job});
  EXPECT_THAT(plain, AllOf(HasSubstr("  memory: "), HasSubstr("  lr: "), Not(HasSubstr("\x1b"))));

  const std::vector<std::string> events = Split(Said({"logs", "2"}), '\n');
  EXPECT_EQ(Said({"logs", "2", "--lines", "2"}),
            events[events.size() - 3] + "\n" + events[events.size() - 2] + "\n");
  const std::string described = Said({"describe", "2"});
  EXPECT_THAT(described, StartsWith("job 2 "));
  EXPECT_THAT(described, AllOf(HasSubstr(" SUCCEEDED  step 40 of 40 (100 %)"), HasSubstr("owner  "),
                               HasSubstr("training.steps = 40"), HasSubstr("last events"),
                               HasSubstr("1 device of 1 worker")));
  const auto json = nlohmann::json::parse(Said({"-o", "json", "describe", "2"}));
  EXPECT_EQ(json["configuration"]["training.steps"], "40");
  for (const char* command : {"describe", "why", "timeline", "logs", "cancel", "wait"}) {
    EXPECT_EQ(Said({command, "999"}, 2), "error: there is no job 999\n") << command;
  }
}

TEST_F(AtTheTerminal, BashCompletesCommandsJobsAndKeys) {
  StartWorkers(1);
  const std::string job = Write("job.toml", JobFile(data_, 1, 1, 3));
  Said({"submit", job});
  using ::testing::ElementsAre;
  EXPECT_THAT(Completed("meshwright desc"), ElementsAre("describe"));
  EXPECT_THAT(Completed("meshwright describe "), ElementsAre("1"));
  EXPECT_THAT(Completed("meshwright worker drain "), ElementsAre("w0"));
  EXPECT_THAT(Completed("meshwright submit --set training.dtype=bx"), ElementsAre());
  EXPECT_THAT(Completed("meshwright submit --set training.dtype=bfl"), ElementsAre("bfloat16"))
      << "behind the last = only: bash has the rest";
  EXPECT_THAT(Completed("meshwright submit " + job.substr(0, job.size() - 2)), ElementsAre(job));
  // Without a controller nothing is offered, soon.
  EXPECT_THAT(Completed("meshwright --address 127.0.0.1:1 describe "), ElementsAre());
}

TEST_F(AtTheTerminal, ABadFolderForScratchIsRefusedBeforeAnythingStarts) {
  const std::string file = Write("file", "x");
  EXPECT_THAT(Said({"up", "--dir", dir_.File("run"), "--scratch-dir", dir_.File("none")}, 2),
              HasSubstr("--scratch-dir"));
  EXPECT_THAT(Said({"up", "--dir", dir_.File("run"), "--scratch-dir", file}, 2),
              HasSubstr("is no folder"));
}

}  // namespace
}  // namespace meshwright::testing
