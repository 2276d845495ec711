// The examples of models with an encoder, with processes: rows of texts are made of the files
// beside them, two workers share the model, and what comes back is a folder of Hugging Face.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "base/file.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

class EncoderExamples : public FaultFixture {
 protected:
  // A copy of the example beside its data: rows are kept beside the texts.
  std::string Copy(const std::string& name) {
    const std::string folder = MESHWRIGHT_SOURCE_DIR "/examples/";
    for (const char* ending : {".toml", ".jsonl", ""}) {
      if (!std::filesystem::exists(folder + name + ending)) continue;
      std::filesystem::copy(folder + name + ending, cluster().File(name + ending),
                            std::filesystem::copy_options::recursive);
    }
    return cluster().File(name + ".toml");
  }

  // Trains it; the loss fell below `bound`.
  client::JobInfo Train(int64_t id, const std::string& name, double bound,
                        const std::vector<std::string>& settings) {
    std::vector<std::string> args = {"--address", cluster().address(), "submit", Copy(name), "-q"};
    for (const std::string& setting : settings) args.insert(args.end(), {"--set", setting});
    const auto run = RunMeshwright(args, {}, 120'000);
    EXPECT_TRUE(run.has_value()) << run.error();
    if (!run.has_value()) return {};
    EXPECT_TRUE(run->exit.ok()) << run->stdout_text << run->stderr_text;
    const auto ended = client().Wait(id, 60'000);
    EXPECT_TRUE(ended.has_value()) << ended.error();
    if (!ended.has_value()) return {};
    EXPECT_EQ(ended->state, client::JobState::kSucceeded) << ended->message;
    EXPECT_LT(ended->loss, bound);
    return *ended;
  }

  std::string TextOf(const std::vector<std::string>& args) {
    const auto run = RunMeshwright(args, {}, 60'000);
    EXPECT_TRUE(run.has_value()) << run.error();
    return run.has_value() ? run->stdout_text + run->stderr_text : "";
  }
};

TEST_F(EncoderExamples, TrainAndComeBack) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const client::JobInfo classifier =
      Train(1, "bert-classifier", 0.4, {"parallelism.data_parallel_replicate_degree=2"});
  EXPECT_THAT(classifier.layout, HasSubstr("data=2"));
  const client::JobInfo pairs = Train(
      2, "t5-pairs", 2.0,
      {"parallelism.pipeline_parallel_degree=2", "training.steps=100", "checkpoint.enable=true"});
  EXPECT_THAT(pairs.layout, HasSubstr("pipeline=2"));
  const client::JobInfo images =
      Train(3, "vit-shapes", 0.5,
            {"parallelism.data_parallel_replicate_degree=2", "checkpoint.enable=true"});
  EXPECT_THAT(images.layout, HasSubstr("data=2"));
  // Rows are asked about as they are: a folder of images, lines of texts, without labels.
  for (const auto& [job, data, rows] : {std::tuple("3", "vit-shapes", "72 rows"),
                                        std::tuple("1", "bert-classifier.jsonl", " rows")}) {
    EXPECT_THAT(TextOf({"--address", cluster().address(), "predict", job, "--data",
                        cluster().File(data), "--out", cluster().File("answers.jsonl")}),
                HasSubstr(rows));
    const std::string answers = ReadFile(cluster().File("answers.jsonl")).value_or("");
    EXPECT_THAT(answers, HasSubstr("\"logits\":["));
    EXPECT_THAT(answers, HasSubstr("\"label\":"));
  }
  // And one text by itself; who reads no text says how it is asked.
  EXPECT_THAT(TextOf({"--address", cluster().address(), "predict", "1", "cat"}),
              HasSubstr("class:\n"));
  EXPECT_THAT(TextOf({"--address", cluster().address(), "predict", "2", "cat"}),
              HasSubstr("meshwright generate 2"));
  EXPECT_THAT(TextOf({"--address", cluster().address(), "predict", "3", "cat"}),
              HasSubstr("reads images"));
  const std::string vision = cluster().File("vision");
  TextOf({"--address", cluster().address(), "checkpoint", "export", "3", vision});
  const std::string vision_config = ReadFile(vision + "/config.json").value_or("");
  EXPECT_THAT(vision_config, HasSubstr("\"patch_size\": 6"));
  EXPECT_THAT(vision_config, HasSubstr("\"1\": \"disc\"")) << "classes have their folders' names";
  EXPECT_THAT(vision_config, HasSubstr("\"disc\": 1"));
  EXPECT_THAT(ReadFile(vision + "/preprocessor_config.json").value_or(""),
              HasSubstr("\"height\": 24"));
  const std::string folder = cluster().File("export");
  const std::string exported =
      TextOf({"--address", cluster().address(), "checkpoint", "export", "2", folder});
  EXPECT_TRUE(FileExists(folder + "/model.safetensors")) << exported;
  EXPECT_THAT(ReadFile(folder + "/config.json").value_or(""),
              HasSubstr("T5ForConditionalGeneration"));
  // The encoder reads the prompt, on the two stages that trained, and the decoder writes.
  EXPECT_THAT(TextOf({"--address", cluster().address(), "generate", "2", "many: cat"}),
              HasSubstr(" per second; end: "));
  // The same of pairs: how likely the decoder finds the targets that it learnt.
  const std::string held = cluster().File("t5-pairs.jsonl");
  EXPECT_THAT(TextOf({"--address", cluster().address(), "-o", "json", "evaluate", "2", "--data",
                      held, "--limit", "5"}),
              HasSubstr("\"perplexity\":"));
  EXPECT_THAT(TextOf({"--address", cluster().address(), "evaluate", "2", "--data", held,
                      "--loss-on", "answers"}),
              HasSubstr("leave out --format text and --loss-on answers"));
  // What two stages did is told beside what was forecast, and opens where a forecast does.
  const std::string story = TextOf({"--address", cluster().address(), "why", "2"});
  EXPECT_THAT(story, HasSubstr("bubble, waiting for stages"));
  EXPECT_THAT(story, HasSubstr("exposed communication"));
  const std::string trace = cluster().File("trace.json");
  TextOf({"--address", cluster().address(), "timeline", "2", "-o", trace});
  const std::string events = ReadFile(trace).value_or("");
  EXPECT_THAT(events, HasSubstr("\"traceEvents\""));
  EXPECT_THAT(events, HasSubstr("\"name\":\"stage 1\""));
}

}  // namespace
}  // namespace meshwright::testing
