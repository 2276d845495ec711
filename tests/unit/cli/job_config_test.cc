#include "cli/job_config.h"

#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "cli/config_keys.h"

namespace meshwright::cli {
namespace {

constexpr char kJob[] = R"([job]
name = "bytes"

[model]
name = "GPT2"
dim = 64
n_layers = 2
n_heads = 4
vocab_size = 256

[optimizer]
name = "AdamW"
lr = 1e-3

[training]
dataset_path = "corpus.txt"
global_batch_size = 16
seq_len = 32
steps = 100

[parallelism]
data_parallel_replicate_degree = "auto"
tensor_parallel_degree = 2
pipeline_parallel_degree = -1
pipeline_parallel_schedule = "GPipe"
)";

ConfigSource Source(std::string text, std::vector<std::string> overrides = {}) {
  ConfigSource source;
  source.text = std::move(text);
  source.overrides = std::move(overrides);
  source.environment = [](const std::string&) { return std::nullopt; };
  return source;
}

std::string Error(std::string text, std::vector<std::string> overrides = {}) {
  const auto config = ParseJobConfig(Source(std::move(text), std::move(overrides)));
  return config ? "no error" : config.error().message();
}

TEST(JobConfig, ReadsTorchTitanSectionsAndKeys) {
  const auto config = ParseJobConfig(Source(kJob));
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->name, "bytes");
  EXPECT_EQ(config->model.name, "gpt2");
  EXPECT_EQ(config->model.width, 64);
  EXPECT_EQ(config->optimizer.name, "adamw");
  EXPECT_EQ(config->optimizer.lr, 1e-3);
  EXPECT_EQ(config->train.global_batch, 16);
  EXPECT_EQ(config->train.sequence, 32);
  EXPECT_EQ(config->parallel.data, 0);
  EXPECT_EQ(config->parallel.tensor, 2);
  EXPECT_EQ(config->parallel.pipeline, 1);
  EXPECT_EQ(config->parallel.schedule, "gpipe");
}

TEST(JobConfig, UnknownKeyIsAnErrorWithPositionAndNearestName) {
  EXPECT_EQ(Error("[parallelism]\ntensor_paralel_degree = 2\n"),
            "job.toml:2:1: unknown key 'tensor_paralel_degree' in [parallelism] (did you mean "
            "'tensor_parallel_degree'?)");
  EXPECT_NE(Error("[trainig]\nsteps = 2\n")
                .find("job.toml:1:2: unknown section [trainig] (did you mean 'training'?)"),
            std::string::npos);
  EXPECT_NE(Error("[model]\nlr = 1.0\n").find("it belongs to [optimizer]"), std::string::npos);
  EXPECT_NE(Error("steps = 5\n").find("it belongs to [training]"), std::string::npos);
}

TEST(JobConfig, WrongTypeNamesKeyWantedTypeAndValue) {
  EXPECT_EQ(Error("[training]\nsteps = \"many\"\n"),
            "job.toml:2:9: training.steps must be an integer, is 'many'");
  EXPECT_EQ(Error("[training]\nsteps = 1.5\n"),
            "job.toml:2:9: training.steps must be an integer, is 1.5");
  EXPECT_NE(Error("[training]\nseed = -1\n").find("training.seed must be an integer"),
            std::string::npos);
  EXPECT_NE(Error("[checkpoint]\nlast_save = 1\n").find("must be true or false, is 1"),
            std::string::npos);
  EXPECT_NE(Error("[optimizer]\nlr = true\n").find("must be a number, is true"), std::string::npos);
  EXPECT_NE(Error("[optimizer]\nname = \"lion\"\n").find("must be one of: adamw, sgd"),
            std::string::npos);
  EXPECT_NE(Error("[parallelism]\ntensor_parallel_degree = 0\n").find("-1 or \"auto\", is 0"),
            std::string::npos);
  EXPECT_NE(Error("[model]\ndim = [1]\n").find("must be an integer"), std::string::npos);
}

TEST(JobConfig, SyntaxErrorsHaveAPosition) {
  EXPECT_EQ(Error("[model]\ndim = = 3\n").substr(0, 11), "job.toml:2:");
}

TEST(JobConfig, OverridesBeatEnvironmentBeatsFile) {
  ConfigSource source =
      Source("[training]\nsteps = 1\nseq_len = 1\nseed = 1\n", {"training.steps=3"});
  source.environment = [](const std::string& name) -> std::optional<std::string> {
    const std::map<std::string, std::string> values = {{"MESHWRIGHT__TRAINING__STEPS", "2"},
                                                       {"MESHWRIGHT__TRAINING__SEQ_LEN", "2"}};
    const auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
  const auto config = ParseJobConfig(source);
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->train.steps, 3);
  EXPECT_EQ(config->train.sequence, 2);
  EXPECT_EQ(config->train.seed, 1u);
}

TEST(JobConfig, OverridesTakeTomlValuesAndBareWords) {
  const auto config = ParseJobConfig(
      Source("", {"optimizer.lr=1e-4", "job.name=my run", "checkpoint.last_save=false",
                  "training.dataset_path=\"a=b.txt\"", "parallelism.tensor_parallel_degree=auto"}));
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->optimizer.lr, 1e-4);
  EXPECT_EQ(config->name, "my run");
  EXPECT_FALSE(config->last_save);
  EXPECT_EQ(config->dataset_path, "a=b.txt");
  EXPECT_EQ(config->parallel.tensor, 1);
}

TEST(JobConfig, BadOverridesSayHowToWriteThem) {
  EXPECT_NE(Error("", {"steps=3"}).find("write section.key=value"), std::string::npos);
  EXPECT_NE(Error("", {"training.step=3"}).find("did you mean 'steps'?"), std::string::npos);
  EXPECT_NE(Error("", {"training.steps=abc"}).find("training.steps must be an integer, is 'abc'"),
            std::string::npos);
  EXPECT_NE(Error("", {"training.steps=1\nx = 2"}).find("must be an integer"), std::string::npos);
}

TEST(JobConfig, LocalBatchTimesReplicasIsTheGlobalBatch) {
  const char* replicas = "parallelism.data_parallel_replicate_degree=4";
  const auto config = ParseJobConfig(Source("", {"training.local_batch_size=3", replicas}));
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->train.global_batch, 12);
  EXPECT_NE(Error("", {"training.local_batch_size=3"}).find("needs a number"), std::string::npos);
  EXPECT_NE(Error("", {"training.local_batch_size=3", "training.global_batch_size=13", replicas})
                .find("set one of them"),
            std::string::npos);
}

TEST(JobConfig, ResolvedTextParsesToTheSameConfiguration) {
  const auto config =
      ParseJobConfig(Source(kJob, {"job.description=say \"hi\"\\", "model.dropout=0.1"}));
  ASSERT_TRUE(config) << config.error();
  const std::string text = FormatJobConfig(*config);
  const auto again = ParseJobConfig(Source(text));
  ASSERT_TRUE(again) << again.error() << "\n" << text;
  EXPECT_EQ(FormatJobConfig(*again), text);
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_EQ(FormatValue(key, *again), FormatValue(key, *config))
        << key.section << "." << key.name;
  }
}

TEST(PrepareJob, MakesAValidRequest) {
  const auto config = ParseJobConfig(Source(kJob));
  ASSERT_TRUE(config);
  const auto job = PrepareJob(*config);
  ASSERT_TRUE(job) << job.error();
  EXPECT_EQ(job->request.optimizer.total_steps, 100);
  EXPECT_EQ(
      job->request.loss
          .type(
              job->request.loss.NodesOf(ir::Op::kFeed).empty()
                  ? ValueId(0)
                  : job->request.loss.node(job->request.loss.NodesOf(ir::Op::kFeed)[0]).outputs[0])
          .ToString(),
      "i32[16,33]");
  EXPECT_NE(job->request.config_text.find("steps = 100"), std::string::npos);
  EXPECT_EQ(job->model.max_sequence, 32);
}

TEST(PrepareJob, DtypeReachesTheWeights) {
  const auto config = ParseJobConfig(Source(kJob, {"training.dtype=float64"}));
  ASSERT_TRUE(config);
  const auto job = PrepareJob(*config);
  ASSERT_TRUE(job) << job.error();
  EXPECT_EQ(job->request.loss.type(job->request.loss.Output("loss_sum")).dtype, ir::DType::kF64);
}

TEST(PrepareJob, RefusesModelsThatDoNotFitTheData) {
  const auto prepare = [](std::vector<std::string> overrides) {
    return PrepareJob(*ParseJobConfig(Source(kJob, std::move(overrides)))).error().message();
  };
  EXPECT_NE(prepare({"model.vocab_size=100"}).find("needs 256"), std::string::npos);
  EXPECT_NE(prepare({"model.max_seq_len=16"}).find("raise model.max_seq_len"), std::string::npos);
  EXPECT_NE(prepare({"model.hf_path=/nowhere"}).find("/nowhere/config.json"), std::string::npos);
}

TEST(ConfigReference, DocumentIsUpToDate) {
  const auto text = ReadFile(MESHWRIGHT_SOURCE_DIR "/docs/config.md");
  ASSERT_TRUE(text) << text.error();
  EXPECT_EQ(*text, ConfigReferenceMarkdown()) << "run: meshwright config docs > docs/config.md";
}

TEST(ConfigReference, EveryKeyIsDocumentedOnce) {
  std::map<std::string, int> seen;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_GT(key.doc.size(), 3u) << key.name;
    EXPECT_EQ(++seen[std::string(key.section) + "." + std::string(key.name)], 1);
  }
  EXPECT_NE(ConfigSchemaJson().find("\"tensor_parallel_degree\""), std::string::npos);
}

}  // namespace
}  // namespace meshwright::cli
