// examples/instruct.toml on processes: conversations of which the answers are learned, in rows that
// they share; the model is evaluated and asked by the tokenizer that the job names.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Instructions : public FaultFixture {
 protected:
  // What the command prints. Fails the test when it does not end well.
  std::string Said(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address()});
    const auto ran = RunMeshwright(args, {}, 120'000);
    EXPECT_TRUE(ran.has_value() && ran->exit.ok())
        << (ran ? ran->stdout_text + ran->stderr_text : ran.error().message());
    return ran ? ran->stdout_text : "";
  }
};

TEST_F(Instructions, AreLearntEvaluatedAndFollowed) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  // Tokens lie beside the texts: not in the tree.
  const std::string examples = dir_.File("examples");
  std::filesystem::copy(MESHWRIGHT_SOURCE_DIR "/examples", examples,
                        std::filesystem::copy_options::recursive);
  const std::string folder = examples + "/instruct";
  Said({"submit", "-q", examples + "/instruct.toml", "--set", "training.steps=120"});
  const auto jobs = cluster().client().List();
  ASSERT_TRUE(jobs.has_value() && !jobs->empty());
  EXPECT_LT((*jobs)[0].loss, 0.5) << "of about 5.8 without training";

  const auto eval = [&](const char* loss_on) {
    return json::parse(
        Said({"-o", "json", "eval", "1", "--data", folder + "/chats.jsonl", "--loss-on", loss_on}));
  };
  const json answers = eval("answers");
  const json all = eval("all");
  EXPECT_LT(answers.at("loss").get<double>(), 1.5);
  EXPECT_GT(answers.at("token_acc").get<double>(), 0.6);
  // Prompts were not learned.
  EXPECT_GT(all.at("loss").get<double>(), 2 * answers.at("loss").get<double>());
  EXPECT_GT(all.at("tokens").get<double>(), answers.at("tokens").get<double>());

  const std::string questions =
      Write("questions.jsonl",
            R"({"prompt":"<|user|>The lamp is red. What colour is it?<|end|><|assistant|>",)"
            R"("choices":["Red.<|end|>","s-t-o-n-e.<|end|>"],"answer":0})"
            "\n"
            R"({"prompt":"<|user|>Spell stone.<|end|><|assistant|>",)"
            R"("choices":["Red.<|end|>","s-t-o-n-e.<|end|>"],"answer":"s-t-o-n-e.<|end|>"})"
            "\n");
  const std::string samples = dir_.File("samples.jsonl");
  const json chosen = json::parse(Said(
      {"-o", "json", "eval", "1", "--data", questions, "--delimiter", "", "--samples", samples}));
  EXPECT_EQ(chosen.at("questions"), 2);
  EXPECT_EQ(chosen.at("acc"), 1.0);
  EXPECT_TRUE(std::filesystem::exists(samples));

  // The job knows its tokenizer: the answer is text, and ends where answers end.
  const std::string said = Said({"-o", "json", "generate", "1", "--greedy", "--max-new-tokens",
                                 "30", "<|user|>Spell stone.<|end|><|assistant|>"});
  EXPECT_THAT(json::parse(said).at("text").get<std::string>(), HasSubstr("-"));
}

}  // namespace
}  // namespace meshwright::testing
