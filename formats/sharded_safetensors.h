// Weights in several safetensors files, as Hugging Face writes large models:
//
//   model.safetensors.index.json  {"metadata":{..},
//   "weight_map":{"NAME":"model-00001-of-00002.safetensors", ..}}
//
// Thread rule: pure functions but for the files that they read and write. Source: the sharded
// checkpoints of transformers (save_pretrained).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright::formats {

// By the name of a tensor, the file that has it, relative to the index. Errors: kInvalidArgument
// when the text is no such index or a file is not one of the index's own folder.
Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text);

// Writes what the index at `index_path` lists into one file, by tensors in the order of the format:
// equal shards give equal bytes. Errors: kInvalidArgument naming a tensor that its shard lacks;
// kUnimplemented naming one whose type is none of the graph; those of SafetensorsFile and
// SafetensorsWriter, all with the path of the index.
Status MergeShards(const std::string& index_path, const std::string& path);

}  // namespace meshwright::formats
