// Where the weights that a job starts from are: found before a cluster is asked.
//
// checkpoint.initial_load_path says it outright. Else a Hugging Face folder (model.hf_path) is what
// `from_pretrained` takes it for: a model with its weights, unless model.from_scratch says
// otherwise.
//
// Thread rule: one thread; reads folders.
#pragma once

#include <string>

#include "base/result.h"
#include "config/job_config.h"

namespace meshwright::config {

struct StartingWeights {
  // A safetensors file, or the index of one that is in shards (formats/sharded_safetensors.h);
  // empty: random initialisation.
  std::string path;
  std::string key;           // that named it: "model.hf_path = \"llama\""; for messages
  std::string adapter = {};  // PEFT's folder, whose adapters come beside the weights; or ""
  std::string note = {};     // for people, where the folder has weights that are not taken; or ""
};

// The folder that lora.adapter_path names; "": none.
std::string AdapterFolder(const JobConfig& config);

// Errors name the key of the job file, the path and what to do: kNotFound, kPermissionDenied.
Result<StartingWeights> FindStartingWeights(const JobConfig& config);

}  // namespace meshwright::config
