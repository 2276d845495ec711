#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_int.h"
#include "base/text.h"
#include "client/trainer.h"
#include "config/config_keys.h"
#include "config/data_rows.h"
#include "config/job_config.h"
#include "config/tuning.h"
#include "ir/rate_schedule.h"
#include "search/sharding_pins.h"

namespace meshwright::config {
namespace {

// What is done to pixels before a model of images sees them stands in a file of its own.
std::string WithImageProcessor(std::string config, const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.has_value()) return config;
  auto json = nlohmann::ordered_json::parse(config, nullptr, /*allow_exceptions=*/false);
  const auto processor = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !processor.is_object()) return config;
  for (const char* key : {"image_mean", "image_std"}) {
    if (processor.contains(key) && !json.contains(key)) json[key] = processor[key];
  }
  return json.dump();
}

Result<std::string> ReadHfConfig(const std::string& hf_path) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(hf_path, error);
  auto text = ReadFile(is_file ? hf_path : hf_path + "/config.json");
  if (!text) {
    const bool missing = text.error().code() == StatusCode::kNotFound;
    return Fail(
        Status(text.error().code(),
               text.error().message() +
                   (missing ? "; it is a folder on this machine, and nothing is downloaded: "
                              "`hf download NAME --local-dir FOLDER` brings one"
                            : ""))
            .WithContext("model.hf_path"));
  }
  const std::string folder =
      is_file ? std::filesystem::path(hf_path).parent_path().string() : hf_path;
  return WithImageProcessor(*std::move(text), folder + "/preprocessor_config.json");
}

// Room for a sequence longer than the model has positions for.
const char* LongerSequenceFix(const JobConfig& config) {
  return config.hf_path.empty() ? "raise model.max_seq_len"
                                : "lower training.seq_len, since the positions of a Hugging Face "
                                  "model are fixed";
}

// "job.toml:12:9: ", or "" for a key that has its default.
std::string Place(const JobConfig& config, const std::string& key) {
  const auto origin = config.origins.find(key);
  return origin == config.origins.end() ? "" : origin->second + ": ";
}

Result<models::Model> MakeConfiguredModel(const JobConfig& config) {
  models::ModelSpec spec = config.model;
  if (!config.hf_path.empty()) {
    MW_ASSIGN_OR_RETURN(spec.hf_config, ReadHfConfig(config.hf_path));
  } else if (spec.name == "gpt2" && spec.flavor.empty() && !spec.positions) {
    // Free sizes: as many positions as the job uses.
    spec.positions = config.train.sequence;
  }
  auto made = models::MakeModel(spec);
  if (!made && !config.hf_path.empty()) {
    return Fail(made.error().WithContext(fmt::format("model.hf_path {}", config.hf_path)));
  }
  MW_ASSIGN_OR_RETURN(models::Model model, std::move(made));
  const bool tokens = model.rows.kind != models::SampleKind::kImage;
  // A folder that is asked, not trained, reads texts by a tokenizer of its own.
  const bool asked = !config.hf_path.empty() && config.dataset_path.empty();
  if (config.dataset_format == "bytes" && tokens && !asked && model.vocabulary < 256) {
    return Fail(InvalidArgument(fmt::format(
        "{}model.vocab_size is {}; the byte tokenizer makes tokens 0..255 and needs 256",
        Place(config, "model.vocab_size"), model.vocabulary)));
  }
  if (model.max_sequence > 0 && config.train.sequence > model.max_sequence) {
    return Fail(
        InvalidArgument(fmt::format("{}training.seq_len is {}; the model has {} positions: {}",
                                    Place(config, "training.seq_len"), config.train.sequence,
                                    model.max_sequence, LongerSequenceFix(config))));
  }
  return model;
}

ir::DType DTypeOf(const std::string& name) {
  if (name == "float64") return ir::DType::kF64;
  if (name == "float16") return ir::DType::kF16;
  return name == "bfloat16" ? ir::DType::kBF16 : ir::DType::kF32;
}

}  // namespace

namespace {

ir::CheckpointSpec CheckpointOf(const JobConfig& config) {
  ir::CheckpointSpec spec = config.checkpoint;
  spec.waits = config.async_mode == "disabled";
  spec.export_dtype = DTypeOf(config.export_dtype);
  return spec;
}

ir::FaultToleranceSpec Tolerance(const JobConfig& config) {
  ir::FaultToleranceSpec spec = config.fault_tolerance;
  for (const ir::Elastic elastic : ir::kElastics) {
    if (config.elastic == ir::ElasticName(elastic)) spec.elastic = elastic;
  }
  return spec;
}

}  // namespace

HiddenTokens HiddenTokensOf(const JobConfig& config) {
  models::ModelSpec spec = config.model;
  HiddenTokens hidden;
  hidden.mask = spec.mask_token;
  hidden.said_by = "model.mask_token";
  if (!config.hf_path.empty()) {
    auto text = ReadHfConfig(config.hf_path);
    if (!text.has_value()) return {};  // which is an error of PrepareJob
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!hidden.mask && json.is_object() && json.contains("mask_token_id")) {
      hidden.mask = FindJsonInt<int64_t>(json["mask_token_id"]);
      hidden.said_by = fmt::format("mask_token_id of the config.json of {}", config.hf_path);
    }
    spec.hf_config = *std::move(text);
  }
  // One that every vocabulary has: what a tokenizer says is not known yet.
  spec.mask_token = 0;
  const auto model = models::MakeModel(spec);
  hidden.any = model.has_value() && model->functions.corrupt;
  return hidden;
}

Status AtKey(const Status& status, const JobConfig& config) {
  const ConfigKey* key = status.field().empty() ? nullptr : KeyOfField(status.field());
  if (key == nullptr) return status;
  const std::string name = fmt::format("{}.{}", key->section, key->name);
  const Status called = status.WithFieldCalled(name);
  const auto origin = config.origins.find(name);
  return origin == config.origins.end() ? called : called.WithContext(origin->second);
}

namespace {

ir::TrainSpec TrainOf(const JobConfig& config) {
  ir::TrainSpec train = config.train;
  train.gradient_dtype = DTypeOf(config.gradient_dtype);
  return train;
}

// Everything but programs.
client::JobBuilder BuilderOf(const JobConfig& config) {
  client::JobBuilder builder(config.name);
  ir::OptimizerSpec optimizer = config.optimizer;
  optimizer.moments_dtype = DTypeOf(config.moments_dtype);
  const bool powers = optimizer.schedule == ir::kPolynomial;
  const double number = powers ? config.decay_power : static_cast<double>(config.decay_cycles);
  if ((powers || optimizer.schedule == ir::kRestarts) && number != 1) {
    optimizer.schedule += fmt::format(":{}", number);
  }
  builder.Train(TrainOf(config))
      .Optimizer(std::move(optimizer))
      .Parallel(config.parallel)
      .Data(config.data)
      .DType(DTypeOf(config.dtype))
      .SaveWeights(config.last_save)
      .Checkpoint(CheckpointOf(config))
      .FaultTolerance(Tolerance(config))
      .Queue(config.queue)
      .ConfigText(FormatJobConfig(config));
  return builder;
}

}  // namespace

Result<ir::JobRequest> PrepareJob(const JobConfig& config, const ir::JobRequest& own) {
  client::JobBuilder builder = BuilderOf(config);
  for (const ir::JobProgram& program : own.programs) builder.Program(program);
  builder.Driver(own.driver);
  if (own.driver.kind == ir::DriverKind::kClient) builder.SaveWeights(false);
  auto request = builder.Build();
  if (!request) return Fail(AtKey(request.error(), config));
  const Status checked = search::CheckJob(*request);
  if (!checked.ok()) return Fail(AtKey(checked, config));
  return request;
}

namespace {

// What an encoder says crosses more than one border of stages. Where a stage has several parts of
// the model, a validation would send it and what the next part reads in two orders.
Result<ir::ParallelSpec> ParallelOf(const JobConfig& config, const models::Model& model) {
  ir::ParallelSpec parallel = config.parallel;
  if (model.rows.kind != models::SampleKind::kPair) return parallel;
  if (parallel.schedule == "auto") parallel.schedule = "1f1b";
  for (const char* fits : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    if (parallel.schedule == fits) return parallel;
  }
  constexpr char kKey[] = "parallelism.pipeline_parallel_schedule";
  return Fail(InvalidArgument(fmt::format(
      "{}{} is \"{}\"; a stage of '{}', which has an encoder and a decoder, is one part of the "
      "model: gpipe, 1f1b, zb-h1 or zb-h2",
      Place(config, kKey), kKey, parallel.schedule, model.name)));
}

}  // namespace

Result<PreparedJob> PrepareJob(const JobConfig& config) {
  PreparedJob prepared;
  MW_ASSIGN_OR_RETURN(prepared.model, MakeConfiguredModel(config));
  client::JobBuilder builder = BuilderOf(config);
  if (prepared.model.rows.kind == models::SampleKind::kImage) {
    // A row is one label and no text: what counts tokens counts images.
    ir::TrainSpec train = TrainOf(config);
    train.sequence = 1;
    builder.Train(std::move(train));
  }
  MW_ASSIGN_OR_RETURN(ir::ParallelSpec parallel, ParallelOf(config, prepared.model));
  builder.Parallel(std::move(parallel));
  // What is trained can be asked: `meshwright predict`.
  const ir::DType dtype =
      DTypeOf(config.dtype) == ir::DType::kF64 ? ir::DType::kF64 : ir::DType::kF32;
  MW_ASSIGN_OR_RETURN(
      ir::JobProgram predict,
      client::PredictProgram({1, config.train.sequence, dtype}, prepared.model.functions));
  builder.Program(std::move(predict));
  MW_ASSIGN_OR_RETURN(const client::RowKind rows, RowKindOf(config));
  if (rows == client::RowKind::kWords && !prepared.model.functions.corrupt) {
    return Fail(InvalidArgument(fmt::format(
        "training.mask_whole_words is true, and model '{}' hides no tokens", prepared.model.name)));
  }
  MW_ASSIGN_OR_RETURN(ir::DataSpec data, DataWithoutFiles(config));
  builder.Data(std::move(data));
  auto request = builder.Build(prepared.model.functions, rows);
  if (!request) return Fail(AtKey(request.error(), config));
  MW_ASSIGN_OR_RETURN(const client::FineTuning tuning, TuningOf(config));
  MW_ASSIGN_OR_RETURN(prepared.request, client::WithFineTuning(*std::move(request), tuning));
  const ir::TrainedCount count = ir::CountTrained(prepared.request.main().graph);
  if (count.trained < count.all) {
    prepared.model.notes.push_back(fmt::format("{} of {} params are trained, the others are frozen",
                                               FormatCount(count.trained), FormatCount(count.all)));
  }
  const Status checked = search::CheckJob(prepared.request);
  if (!checked.ok()) return Fail(AtKey(checked, config));
  return prepared;
}

}  // namespace meshwright::config
