#include "config/job_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/file.h"
#include "config/config_keys.h"
#include "config/key_ranges.h"

namespace meshwright::config {
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
  source.environment_names.clear();
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
  EXPECT_EQ(config->parallel.pipeline, 0);
  EXPECT_EQ(config->parallel.schedule, "gpipe");
}

TEST(JobConfig, UnknownKeyIsAnErrorWithPositionAndNearestName) {
  EXPECT_EQ(Error("[parallelism]\ntensor_paralel_degree = 2\n"),
            "job.toml:2:1: unknown key 'tensor_paralel_degree' in [parallelism] (did you mean "
            "'tensor_parallel_degree'?)");
  EXPECT_NE(Error("[trainig]\nsteps = 2\n")
                .find("job.toml:1:2: unknown section [trainig] (did you mean 'training'?)"),
            std::string::npos);
  EXPECT_NE(Error("[model]\nlr = 1.0\n").find("write optimizer.lr"), std::string::npos);
  EXPECT_NE(Error("steps = 5\n").find("it belongs to [training]"), std::string::npos);
}

TEST(JobConfig, WrongTypeNamesKeyWantedTypeAndValue) {
  EXPECT_EQ(Error("[training]\nsteps = \"many\"\n"),
            "job.toml:2:9: training.steps must be an integer, is 'many'");
  EXPECT_EQ(Error("[training]\nsteps = 1.5\n"),
            "job.toml:2:9: training.steps must be an integer, is 1.5");
  EXPECT_EQ(Error("[training]\nseed = -1\n"),
            "job.toml:2:8: training.seed is -1; it must be at least 0");
  EXPECT_NE(Error("[checkpoint]\nlast_save = 1\n").find("must be true or false, is 1"),
            std::string::npos);
  EXPECT_NE(Error("[optimizer]\nlr = true\n").find("must be a number, is true"), std::string::npos);
  EXPECT_NE(Error("[optimizer]\nname = \"adagrad\"\n").find("must be one of: adamw, sgd"),
            std::string::npos);
  EXPECT_NE(Error("[parallelism]\ntensor_parallel_degree = 0\n").find("-1 or \"auto\", is 0"),
            std::string::npos);
  EXPECT_NE(Error("[model]\ndim = [1]\n").find("must be an integer"), std::string::npos);
}

TEST(JobConfig, SaysHowAJobIsSavedAndRecovers) {
  const auto prepare = [](std::vector<std::string> overrides) {
    return PrepareJob(*ParseJobConfig(Source(kJob, std::move(overrides))));
  };
  const auto job = prepare({});
  ASSERT_TRUE(job.has_value()) << job.error();
  EXPECT_EQ(job->request.fault_tolerance, ir::FaultToleranceSpec())
      << "on, unless it says otherwise";
  EXPECT_FALSE(job->request.checkpoint.enable);
  const auto other = prepare({"fault_tolerance.enable=false", "fault_tolerance.max_recoveries=0",
                              "fault_tolerance.elastic=off", "fault_tolerance.min_devices=3",
                              "fault_tolerance.max_wait_for_spare_seconds=0",
                              "fault_tolerance.stall_seconds=7", "fault_tolerance.snapshot_every=4",
                              "fault_tolerance.copies=2", "fault_tolerance.orphan_grace_seconds=9",
                              "checkpoint.enable=true", "checkpoint.interval=20",
                              "checkpoint.interval_seconds=30", "checkpoint.keep_latest_k=2"});
  ASSERT_TRUE(other.has_value()) << other.error();
  EXPECT_EQ(other->request.fault_tolerance,
            (ir::FaultToleranceSpec{false, 0, ir::Elastic::kOff, 3, 0, 7, 4, 2, 9}));
  const auto off = prepare({"fault_tolerance.snapshot_every=0"});
  EXPECT_EQ(off->request.fault_tolerance.snapshot_every, 0);
  EXPECT_EQ(prepare({"fault_tolerance.snapshot_every=auto"})->request, job->request);
  EXPECT_EQ(prepare({"fault_tolerance.max_wait_for_spare_seconds=auto"})->request, job->request);
  EXPECT_EQ(prepare({"fault_tolerance.elastic=shrink"})->request.fault_tolerance.elastic,
            ir::Elastic::kShrink);
  EXPECT_EQ(other->request.checkpoint, (ir::CheckpointSpec{true, {}, 20, 30, 2}));
}

TEST(JobConfig, TakesTorchTitansKeysOfCheckpoints) {
  const std::string text = std::string(kJob) + R"([checkpoint]
enable = true
async_mode = "disabled"
load_step = 40
exclude_from_loading = ["opt.*", "wte"]
last_save_in_hf = true
export_dtype = "bfloat16"
)";
  const auto config = ParseJobConfig(Source(text));
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->load_step, 40);
  EXPECT_EQ(config->exclude_from_loading, (std::vector<std::string>{"opt.*", "wte"}));
  const auto prepared = PrepareJob(*config);
  ASSERT_TRUE(prepared) << prepared.error();
  EXPECT_TRUE(prepared->request.checkpoint.waits);
  EXPECT_TRUE(prepared->request.checkpoint.last_save_in_hf);
  EXPECT_EQ(prepared->request.checkpoint.export_dtype, ir::DType::kBF16);

  const auto by_default = ParseJobConfig(Source(kJob));
  EXPECT_FALSE(PrepareJob(*by_default)->request.checkpoint.waits);
  EXPECT_EQ(by_default->load_step, -1);
  const auto in_words =
      ParseJobConfig(Source(kJob, {"checkpoint.exclude_from_loading=opt.*, wte"}));
  ASSERT_TRUE(in_words) << in_words.error();
  EXPECT_EQ(in_words->exclude_from_loading, config->exclude_from_loading);
  EXPECT_NE(Error(kJob, {"checkpoint.exclude_from_loading=[1]"}).find("a list of texts"),
            std::string::npos);
  EXPECT_NE(Error(kJob, {"checkpoint.export_dtype=float64"}).find("one of: float32"),
            std::string::npos);
  const auto without =
      PrepareJob(*ParseJobConfig(Source(kJob, {"checkpoint.last_save_in_hf=true"})));
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message().find("checkpoint.last_save_in_hf needs"), std::string::npos)
      << without.error();
}

TEST(JobConfig, SaysHowAJobWaits) {
  const auto job = PrepareJob(*ParseJobConfig(
      Source(kJob, {"job.priority=-7", "job.preemptible=true", "job.max_queue_wait_seconds=60"})));
  ASSERT_TRUE(job.has_value()) << job.error();
  EXPECT_EQ(job->request.queue, (ir::QueueSpec{-7, true, 60}));
  EXPECT_NE(Error("", {"job.priority=1001"}).find("job.priority is 1001"), std::string::npos);
  EXPECT_NE(Error("", {"job.max_queue_wait_seconds=-1"}).find("is -1; it must be"),
            std::string::npos);
}

TEST(JobConfig, KeysOfRecoveryAndCheckpointsHaveRanges) {
  const auto refusal = [](const char* setting) { return Error("", {setting}); };
  EXPECT_NE(refusal("fault_tolerance.max_recoveries=-1").find("is -1; it must be"),
            std::string::npos);
  EXPECT_NE(refusal("fault_tolerance.min_devices=0").find("is 0; it must be"), std::string::npos);
  EXPECT_NE(refusal("fault_tolerance.max_wait_for_spare_seconds=-2").find("must be an integer"),
            std::string::npos);
  EXPECT_NE(refusal("fault_tolerance.stall_seconds=-1").find("is -1; it must be"),
            std::string::npos);
  EXPECT_NE(refusal("fault_tolerance.orphan_grace_seconds=-1").find("is -1; it must be"),
            std::string::npos);
  EXPECT_NE(refusal("fault_tolerance.elastic=grow").find("must be one of: off, shrink, replan"),
            std::string::npos);
  EXPECT_NE(refusal("fault_tolerance.copies=-1").find("is -1; it must be"), std::string::npos);
  EXPECT_NE(refusal("fault_tolerance.snapshot_every=-2").find("must be an integer"),
            std::string::npos);
  EXPECT_NE(refusal("checkpoint.interval=-1").find("is -1; it must be"), std::string::npos);
  EXPECT_NE(refusal("checkpoint.keep_latest_k=-1").find("is -1; it must be"), std::string::npos);
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
  EXPECT_EQ(config->parallel.tensor, 0);
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

TEST(JobConfig, ValuesOutOfRangeNameKeyPositionAndRange) {
  EXPECT_EQ(Error("[training]\nsteps = 0\n"),
            "job.toml:2:9: training.steps is 0; it must be in [1, 1e+12]");
  EXPECT_EQ(Error("[validation]\nfraction = 0.9\n"),
            "job.toml:2:12: validation.fraction is 0.9; it must be in [0, 0.5]");
  EXPECT_EQ(Error("[parallelism]\ntensor_parallel_degree = 70000\n"),
            "job.toml:2:26: parallelism.tensor_parallel_degree is 70000; it must be in [1, 65536]");
  for (const char* setting : {"metrics.log_freq=0",
                              "validation.interval=-1",
                              "validation.batches=-1",
                              "parallelism.gradient_bucket_bytes=0",
                              "training.max_norm=-1",
                              "training.seq_len=0",
                              "training.global_batch_size=-1",
                              "training.steps_per_launch=0",
                              "lr_scheduler.min_lr=-1",
                              "lr_scheduler.total_steps=-5",
                              "lr_scheduler.power=0",
                              "lr_scheduler.cycles=0",
                              "lr_scheduler.warmup_steps=-1",
                              "optimizer.beta1=1",
                              "optimizer.eps=0",
                              "optimizer.lr=nan",
                              "model.norm_eps=-1",
                              "model.rope_theta=0",
                              "model.dropout=1",
                              "model.n_layers=100000",
                              "model.dim=0",
                              "parallelism.tensor_parallel_degree=65537"}) {
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    const std::string error = Error("", {setting});
    EXPECT_EQ(error.substr(0, 6), "--set ") << error;
    EXPECT_NE(error.find(key + " is "), std::string::npos) << error;
    EXPECT_NE(error.find("; it must be "), std::string::npos) << error;
  }
}

TEST(JobConfig, IntegersThatNoDoubleHoldsAreNumbers) {
  const auto config = ParseJobConfig(Source("", {"training.seed=9007199254740993"}));
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->train.seed, 9007199254740993u);
  EXPECT_NE(Error("", {"optimizer.lr=9007199254740993"})
                .find("optimizer.lr is 9007199254740993; it must be "),
            std::string::npos);
}

std::string Notes(std::vector<std::string> overrides) {
  const auto config = ParseJobConfig(Source("", std::move(overrides)));
  if (!config) return "error: " + config.error().message();
  std::string text;
  for (const std::string& note : config->notes) text += note + "\n";
  return text;
}

TEST(JobConfig, SwitchesAreTrueFalseOrAuto) {
  const ConfigKey* key = FindKey("parallelism", "enable_sequence_parallel");
  ASSERT_NE(key, nullptr);
  const std::vector<std::pair<std::string, std::optional<bool>>> cases = {
      {"auto", std::nullopt}, {"\"auto\"", std::nullopt}, {"true", true}, {"false", false}};
  for (const auto& [text, value] : cases) {
    const auto config =
        ParseJobConfig(Source(kJob, {"parallelism.enable_sequence_parallel=" + text}));
    ASSERT_TRUE(config.has_value()) << config.error();
    EXPECT_EQ(config->parallel.sequence_parallel, value) << text;
    EXPECT_EQ(FormatValue(*key, *config), value ? text : "\"auto\"");
  }
  EXPECT_EQ(JobConfig().parallel.sequence_parallel, std::nullopt);
  for (const char* bad : {"maybe", "1", "-1"}) {
    EXPECT_NE(Error(std::string("[parallelism]\nenable_sequence_parallel = ") +
                    (bad == std::string("maybe") ? "\"maybe\"" : bad) + "\n")
                  .find("must be true, false or \"auto\""),
              std::string::npos)
        << bad;
  }
}

TEST(JobConfig, ValuesWithoutEffectAreNoted) {
  EXPECT_EQ(Notes({}), "");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"optimizer.momentum=0.9"}, "optimizer.momentum has no effect but with sgd"},
      {{"optimizer.name=sgd", "optimizer.beta1=0.8"}, "no effect with sgd"},
      {{"training.local_batch_size=3", "training.global_batch_size=13"},
       "training.local_batch_size has no effect"},
      {{"lr_scheduler.min_lr=1e-5"}, "lr_scheduler.min_lr has no effect"},
      {{"lr_scheduler.total_steps=7"}, "lr_scheduler.total_steps has no effect"},
      {{"lr_scheduler.decay_type=cosine", "lr_scheduler.total_steps=7"},
       "lr_scheduler.total_steps 7 is below training.steps 100"},
      {{"lr_scheduler.warmup_steps=100"}, "ends in its warm-up"},
      {{"lr_scheduler.decay_type=cosine", "lr_scheduler.power=2"}, "lr_scheduler.power has no"},
      {{"lr_scheduler.decay_type=polynomial", "lr_scheduler.cycles=2"},
       "lr_scheduler.cycles has no effect with decay_type \"polynomial\""},
      {{"parallelism.enable_sequence_parallel=true", "parallelism.tensor_parallel_degree=1"},
       "enable_sequence_parallel has no effect"},
      {{"parallelism.zero_stage=1", "parallelism.data_parallel_replicate_degree=1"},
       "zero_stage has no effect"},
      {{"activation_checkpoint.layers=\"0-1\"", "activation_checkpoint.mode=none"},
       "activation_checkpoint.layers has no effect"},
      {{"training.allow_tf32=true", "training.dtype=bfloat16"},
       "training.allow_tf32 has no effect"},
      {{"training.allow_tf32=true", "parallelism.device=cpu"}, "training.allow_tf32 has no effect"},
      {{"validation.fraction=0"}, "no validation runs"},
      {{"validation.batches=0", "validation.interval=5"}, "validation.interval has no effect"},
      {{"training.loss_scale=8"}, "loss_scale and loss_scale_window have no effect"},
      {{"parallelism.offload_chunk_bytes=9"}, "offload_chunk_bytes has no effect"},
      {{"parallelism.zero_min_weight_bytes=1", "parallelism.zero_stage=0"},
       "zero_min_weight_bytes has no effect"},
      {{"parallelism.zero_stage=1", "parallelism.zero_weights_degree=2"}, "from stage 3 on"},
  };
  for (const auto& [overrides, text] : cases) {
    EXPECT_NE(Notes(overrides).find(text), std::string::npos) << Notes(overrides);
  }
  EXPECT_EQ(Notes({"validation.fraction=0", "validation.batches=0"}), "");
  for (const char* mode : {"none", "auto"}) {
    EXPECT_EQ(Notes({"activation_checkpoint.layers=\"0-1 full\"",
                     fmt::format("activation_checkpoint.mode={}", mode)}),
              "")
        << "a range with a mode of its own";
  }
}

TEST(JobConfig, ContradictionsNameBothKeysAndThePosition) {
  EXPECT_EQ(Error("[lr_scheduler]\ndecay_type = \"linear\"\nmin_lr = 1.0\n"),
            "job.toml:3:10: lr_scheduler.min_lr 1 is above optimizer.lr 0.0003; a decay goes down: "
            "lower min_lr");
  EXPECT_EQ(Error("[job]\nname = \"a\\nb\"\n").substr(0, 22), "job.toml:2:8: job.name");
}

TEST(JobConfig, UnknownVariablesOfTheEnvironmentAreErrors) {
  ConfigSource source = Source("");
  source.environment_names = {"MESHWRIGHT__TRAINING__STEPS", "MESHWRIGHT__TRAINING__STEP"};
  const auto config = ParseJobConfig(source);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message().find(
                "MESHWRIGHT__TRAINING__STEP: there is no such key (did you mean "
                "'MESHWRIGHT__TRAINING__STEPS'?)"),
            std::string::npos)
      << config.error();
}

TEST(JobConfig, ResolvedTextHasNoZeroThatStandsForAnotherKey) {
  const auto config = ParseJobConfig(Source("", {"training.steps=70"}));
  ASSERT_TRUE(config) << config.error();
  const std::string text = FormatJobConfig(*config);
  EXPECT_NE(text.find("total_steps = 70"), std::string::npos) << text;
  EXPECT_NE(text.find("global_batch_size = 8"), std::string::npos) << text;
}

TEST(KeyOfField, FindsTheKeyOfEveryFieldOfARequest) {
  const auto key = [](std::string_view field) {
    const ConfigKey* found = KeyOfField(field);
    return found == nullptr ? "" : fmt::format("{}.{}", found->section, found->name);
  };
  EXPECT_EQ(key("train.global_batch"), "training.global_batch_size");
  EXPECT_EQ(key("train.compute_dtype"), "training.dtype");
  EXPECT_EQ(key("parallel.zero"), "parallelism.zero_stage");
  EXPECT_EQ(key("optimizer.max_norm"), "training.max_norm");
  EXPECT_EQ(key("data.validation_fraction"), "validation.fraction");
  EXPECT_EQ(key("steps"), "");
}

TEST(AtKey, NamesTheKeyAndItsPlaceAndLeavesEverythingElse) {
  JobConfig config;
  config.origins["training.steps"] = "job.toml:2:9";
  const Status status = InvalidField("train.steps", "is 0; unlike train.sequence");
  EXPECT_EQ(AtKey(status, config).message(),
            "job.toml:2:9: training.steps is 0; unlike train.sequence");
  EXPECT_EQ(AtKey(InvalidField("train.seed", "is odd"), config).message(), "training.seed is odd");
  EXPECT_EQ(AtKey(InvalidField("nothing", "is odd"), config).message(), "nothing is odd");
  EXPECT_EQ(AtKey(InvalidArgument("train.steps is 0"), config).message(), "train.steps is 0");
}

TEST(PrepareJob, TheNumberOfAScheduleIsInItsName) {
  const auto job = PrepareJob(*ParseJobConfig(
      Source(kJob, {"lr_scheduler.decay_type=polynomial", "lr_scheduler.power=2.5"})));
  ASSERT_TRUE(job.has_value()) << job.error();
  EXPECT_EQ(job->request.optimizer.schedule, "polynomial:2.5");
}

TEST(KeyRanges, RowsAreKeysAndDefaultsAreInside) {
  int rows = 0;
  for (const ConfigKey& key : ConfigKeys()) {
    const KeyRange* range = FindRange(key.section, key.name);
    if (range == nullptr) continue;
    ++rows;
    const std::string value = FormatValue(key, JobConfig());
    if (!value.empty() && value != "\"auto\"") {
      EXPECT_TRUE(range->Has(std::stod(value))) << key.section << "." << key.name;
    }
  }
  EXPECT_EQ(rows, 96) << "a row of the ranges names no key";
  EXPECT_FALSE(FindRange("training", "steps")->Has(std::nan("")));
}

// What a range lets through but the job's own check refuses would lose its position.
TEST(KeyRanges, ErrorsOfTheJobItselfAreInWordsOfTheFile) {
  auto config = ParseJobConfig(Source(kJob));
  ASSERT_TRUE(config);
  config->train.log_every = 0;
  config->origins["metrics.log_freq"] = "job.toml:9:1";
  EXPECT_EQ(PrepareJob(*config).error().message().substr(0, 34),
            "job.toml:9:1: metrics.log_freq is ");
}

// Hidden tokens come of the data's windows, a text to look at from a client.
TEST(JobConfig, AnEncoderOfHiddenTokensCanBeAskedAboutTexts) {
  const auto config = ParseJobConfig(Source("[model]\nname = \"bert\"\nvocab_size = 264\n", {}));
  ASSERT_TRUE(config.has_value()) << config.error();
  const auto prepared = PrepareJob(*config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  EXPECT_EQ(prepared->request.programs.size(), 2u);
}

TEST(PrepareJob, MakesAValidRequest) {
  const auto config = ParseJobConfig(Source(kJob));
  ASSERT_TRUE(config);
  const auto job = PrepareJob(*config);
  ASSERT_TRUE(job) << job.error();
  EXPECT_EQ(job->request.optimizer.total_steps, 100);
  EXPECT_EQ(job->request.main()
                .graph
                .type(job->request.main().graph.NodesOf(ir::Op::kFeed).empty()
                          ? ValueId(0)
                          : job->request.main()
                                .graph.node(job->request.main().graph.NodesOf(ir::Op::kFeed)[0])
                                .outputs[0])
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
  EXPECT_EQ(job->request.main().graph.type(job->request.main().graph.Output("loss_sum")).dtype,
            ir::DType::kF64);
}

TEST(PrepareJob, Bfloat16IsMixedPrecision) {
  for (const bool mixed : {true, false}) {
    const char* name = mixed ? "training.dtype=bfloat16" : "training.dtype=float32";
    const auto config = ParseJobConfig(Source(kJob, {name}));
    ASSERT_TRUE(config) << config.error();
    const auto job = PrepareJob(*config);
    ASSERT_TRUE(job) << job.error();
    const ir::JobRequest& request = job->request;
    EXPECT_EQ(request.train.compute_dtype, mixed ? ir::DType::kBF16 : ir::DType::kF32);
    for (const NodeId id : request.main().graph.NodesOf(ir::Op::kParam)) {
      EXPECT_EQ(request.main().graph.type(request.main().graph.node(id).outputs[0]).dtype,
                ir::DType::kF32);
    }
  }
}

TEST(PrepareJob, GradientsMayWaitInTheTypeOfTheProducts) {
  const auto prepared = [](std::vector<std::string> overrides) {
    return PrepareJob(*ParseJobConfig(Source(kJob, std::move(overrides))));
  };
  const auto half = prepared({"training.dtype=float16", "training.gradient_dtype=float16",
                              "training.loss_scale=1024", "training.loss_scale_window=5"});
  ASSERT_TRUE(half) << half.error();
  EXPECT_EQ(half->request.train.compute_dtype, ir::DType::kF16);
  EXPECT_EQ(half->request.train.gradient_dtype, ir::DType::kF16);
  EXPECT_EQ(half->request.train.loss_scale, 1024);
  EXPECT_EQ(half->request.train.loss_scale_window, 5);
  const auto wrong = prepared({"training.gradient_dtype=bfloat16"});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message().find(
                "training.gradient_dtype is bf16, and a job that does not compute in 16 bits"),
            std::string::npos)
      << wrong.error();
}

TEST(PrepareJob, RefusesModelsThatDoNotFitTheData) {
  const auto prepare = [](std::vector<std::string> overrides) {
    return PrepareJob(*ParseJobConfig(Source(kJob, std::move(overrides)))).error().message();
  };
  EXPECT_NE(prepare({"model.vocab_size=100"}).find("needs 256"), std::string::npos);
  EXPECT_NE(prepare({"model.max_seq_len=16"}).find("raise model.max_seq_len"), std::string::npos);
  EXPECT_EQ(prepare({"model.max_seq_len=16"}).substr(0, 12), "job.toml:18:");
  EXPECT_NE(prepare({"model.hf_path=/nowhere"}).find("/nowhere/config.json"), std::string::npos);
}

TEST(PrepareJob, RefusesPinsThatContradictEachOtherWithoutACluster) {
  const auto config = ParseJobConfig(Source(kJob, {"parallelism.pipeline_parallel_meshes=2x1,1x1",
                                                   "parallelism.tensor_parallel_degree=2"}));
  ASSERT_TRUE(config) << config.error();
  const Status refused = PrepareJob(*config).error();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("parallelism.pipeline_parallel_meshes is '2x1,1x1'"),
            std::string::npos)
      << refused;
}

TEST(PrepareJob, TakesAHuggingFaceFolderOrFileAndNeverAnotherModel) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  const std::string file = folder->File("config.json");
  const auto prepare = [&](const std::string& path, std::vector<std::string> overrides = {}) {
    overrides.push_back("model.hf_path=" + path);
    return PrepareJob(*ParseJobConfig(Source("[training]\nseq_len = 32\n", overrides)));
  };
  const std::string sizes =
      R"({"model_type":"llama","vocab_size":256,"hidden_size":32,"intermediate_size":88,)"
      R"("num_hidden_layers":3,"num_attention_heads":4,"max_position_embeddings":64})";
  ASSERT_TRUE(WriteFileAtomic(file, sizes).ok());
  for (const std::string& path : {folder->path(), file}) {
    const auto job = prepare(path);
    ASSERT_TRUE(job) << job.error();
    EXPECT_EQ(job->model.layers, 3);
    EXPECT_EQ(job->model.max_sequence, 64);
  }
  EXPECT_NE(prepare(file, {"training.seq_len=65"}).error().message().find("64 positions"),
            std::string::npos);
  ASSERT_TRUE(WriteFileAtomic(file, "").ok());
  const auto empty = prepare(folder->path());
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message().find("config.json is empty"), std::string::npos);
  EXPECT_NE(empty.error().message().find(folder->path()), std::string::npos);
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
}  // namespace meshwright::config
