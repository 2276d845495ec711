// A job file: TOML with TorchTitan's section and key names -> JobConfig -> ir::JobRequest.
//
//   [model]
//   name = "gpt2"
//   n_layers = 4
//   [parallelism]
//   tensor_parallel_degree = 2      # a number is a constraint, -1 or "auto" leaves it to the
//   planner
//
// Later wins: built-in default < job file < environment MESHWRIGHT__SECTION__KEY < --set
// section.key=value. An unknown key is an error with file, line, column and the nearest known name,
// also in the environment; a value that has no effect is a note. Nothing is ignored silently. All
// keys: config/keys_of_*.cc.
//
// Thread rule: pure functions, except for reading the files that the configuration names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/fine_tuning.h"
#include "config/environment.h"
#include "ir/job.h"
#include "models/registry.h"

namespace meshwright::config {

class ConfigErrors;

struct JobConfig {
  std::string name = "job";
  std::string description;
  std::string owner;

  models::ModelSpec model;
  std::string hf_path;        // folder with config.json, or the file
  bool from_scratch = false;  // although the folder has weights

  ir::OptimizerSpec optimizer;
  double decay_power = 1;    // of the schedule polynomial (ir/rate_schedule.h)
  int64_t decay_cycles = 1;  // of cosine_with_restarts
  ir::ParallelSpec parallel = ir::OpenParallel();
  ir::TrainSpec train;
  ir::DataSpec data;  // the streams are filled when the files are found (cli/input_files.h)
  std::string dataset_path;
  std::string dataset_format = "bytes";
  std::string validation_path;
  std::vector<std::string> datasets;             // of a mixture (config/data_sets.h)
  std::vector<std::string> validation_datasets;  // by name
  std::string tokenizer = "byte";
  std::string loss_on = "all";  // or "answers"
  std::optional<bool> packing;  // empty: as loss_on says (config/data_rows.h)
  bool mask_whole_words = false;
  std::string dtype = "float32";
  std::string gradient_dtype = "float32";
  int64_t local_batch_size = 0;    // rows per data-parallel replica; 0: see global_batch_size
  int64_t global_batch_size = 0;   // 0: local_batch_size x replicas, or 8
  int64_t accumulation_steps = 0;  // pieces of a replica's batch; 0: as parallel.microbatches says

  ir::LoraSpec lora;
  std::string adapter_path;               // folder with adapters to start from
  std::vector<std::string> frozen;        // patterns of params
  std::vector<std::string> trainable;     // patterns; any: all others are frozen
  std::vector<std::string> param_groups;  // as ir::ParseParamGroup reads them
  ir::LossTerms loss_terms;
  double ema_decay = 0;  // 0: no means of weights

  std::string initial_load_path;
  bool last_save = true;
  ir::CheckpointSpec checkpoint;
  std::string async_mode = "async";
  std::string moments_dtype = "float32";
  std::string export_dtype = "float32";
  int64_t load_step = -1;                         // of the checkpoint to go on from; -1: the newest
  std::vector<std::string> exclude_from_loading;  // patterns of its tensors
  ir::FaultToleranceSpec fault_tolerance;
  ir::QueueSpec queue;
  std::string elastic = "replan";
  std::string tensorboard_dir;  // of who follows the job; empty: no records are written

  std::string folder;  // of the job file, where relative paths of data are looked for first

  // Where each key got its value: "job.toml:12:9", "--set ...", "environment ..."; by
  // "section.key".
  std::map<std::string, std::string> origins;
  std::vector<std::string> notes;  // what has no effect, for people
};

struct ConfigSource {
  std::string text;
  std::string file = "job.toml";  // for messages
  std::vector<std::string>
      overrides;  // "section.key=value", value in TOML syntax; bare words are text
  // A saved plan (config/saved_plan.h): its keys are pins on top of everything else. Empty: none.
  std::string decisions;
  std::string decisions_file = "plan.toml";
  Environment environment = ProcessEnvironment;
  std::vector<std::string> environment_names = ProcessEnvironmentNames("MESHWRIGHT__");
};

// Errors: kInvalidArgument "job.toml:14:1: unknown key ... (did you mean 'x'?)" or naming key,
// wanted type and value; or naming both places where decisions contradict what the job pins.
Result<JobConfig> ParseJobConfig(const ConfigSource& source);
// The same with all errors, of which that is the first (config/config_errors.h). The configuration
// counts only where there is none.
JobConfig ParseJobConfig(const ConfigSource& source, ConfigErrors& errors);
// Reads the file and that of the decisions, if any, then as above. Errors: kNotFound naming the
// path.
Result<JobConfig> LoadJobConfig(const std::string& path, std::vector<std::string> overrides,
                                const std::string& decisions_path = "");

// The resolved configuration as TOML: every key that has a value, "0: as another key says" replaced
// by that. Parsing it gives the same JobConfig but for origins and notes.
std::string FormatJobConfig(const JobConfig& config);

struct PreparedJob {
  ir::JobRequest request;  // complete but for the blobs
  models::Model model;
};
// An error about a field of the request, as one about the key that set it, with its place:
// "job.toml:9:1: training.steps is 0". Other errors stay as they are.
Status AtKey(const Status& status, const JobConfig& config);

// Builds the model and its loss graph; checks everything that needs no cluster.
// Errors: kInvalidArgument, kNotFound (hf_path).
Result<PreparedJob> PrepareJob(const JobConfig& config);
// A job with the programs and the driver of `own`, in the place of a model and its data; everything
// else is as the file says. Errors: kInvalidArgument naming the key or the program.
Result<ir::JobRequest> PrepareJob(const JobConfig& config, const ir::JobRequest& own);

// What the job's model hides of what it is trained on.
struct HiddenTokens {
  bool any = false;
  std::optional<int64_t> mask = {};  // what stands there, where the job or its folder says it
  std::string said_by = {};          // who does: "model.mask_token"
};
// Nothing of models that do not hide tokens, and of those that cannot be made.
HiddenTokens HiddenTokensOf(const JobConfig& config);

// JSON Schema (draft 2020-12) of a job file, for editors.
std::string ConfigSchemaJson();
// The reference of all keys as Markdown: docs/config.md.
std::string ConfigReferenceMarkdown();

}  // namespace meshwright::config
