// Adapters in files, as PEFT has them: a folder with adapter_config.json and
// adapter_model.safetensors.
//
// What a job with adapters writes ("tuned" weights) is one file: the model's weights as they were,
// the adapters beside them under PEFT's names, and PEFT's configuration in the file's metadata. So
// it says by itself what it is: WriteAdapter() takes the adapters out of it, MergeAdapter() adds
// them to the weights, JoinAdapter() makes such a file of a model and an adapter.
//
//   metadata "adapter_config"                              {"peft_type":"LORA","r":8,..}
//   "transformer.h.0.attn.c_attn.weight"                   W
//   "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"  A [r, in]
//   "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"  B [out, r]
//
// A weight of a module to save lies in the tuned file under the model's name, and in PEFT's file
// behind "base_model.model.".
//
// Thread rule: pure functions but for the files that they read and write. Source: PEFT 0.21
// (utils/save_and_load.py, tuners/lora).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/safetensors.h"
#include "ir/adapters.h"
#include "ir/graph.h"

namespace meshwright::formats {

inline constexpr char kAdapterWeights[] = "adapter_model.safetensors";
inline constexpr char kAdapterConfig[] = "adapter_config.json";

struct AdapterConfig {
  ir::LoraSpec lora;
  bool fan_in_fan_out = false;  // weights lie as [in, out], as those of GPT-2
  std::string base_model = {};
};

// Errors: kInvalidArgument: no JSON, or a key of another type; kUnimplemented naming the key of
// what is no plain LoRA (DoRA, biases, ranks by pattern, targets by regular expression).
Result<AdapterConfig> ParseAdapterConfig(std::string_view json);
std::string FormatAdapterConfig(const AdapterConfig& config);

// Metadata of the tuned weights of a model; empty for one without adapters.
std::map<std::string, std::string> AdapterMetadata(const ir::Graph& model);

// What the metadata of a tuned file say; nothing in a file of plain weights. Errors: as
// ParseAdapterConfig.
Result<std::optional<AdapterConfig>> AdapterConfigOf(const SafetensorsFile& file);

// The adapters of a tuned file as PEFT's folder, which is made. Errors: kInvalidArgument: the file
// has none; those of the files.
Status WriteAdapter(const SafetensorsFile& tuned, const std::string& folder,
                    const std::string& base_model);

// A tuned file of the weights at `base` and PEFT's folder. Errors: kInvalidArgument naming a tensor
// of the folder whose module the weights do not have; as ParseAdapterConfig.
Status JoinAdapter(const std::string& base, const std::string& folder, const std::string& path);

// The weights with the adapters added: W + scale * B A, computed in f64 and rounded once; of the
// type `dtype`, or each of its own. Errors: kInvalidArgument naming what does not fit together.
Status MergeAdapter(const SafetensorsFile& tuned, const std::string& path,
                    std::optional<ir::DType> dtype = {});

}  // namespace meshwright::formats
