// What transformers makes of texts, as tools/hf_check/check_embeddings.py wrote it: a tiny BERT
// whose weights are made by formula, and a folder of it as a user has one.
//
// Thread rule: values.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "tests/truth_numbers.h"

namespace meshwright::testing {

struct EmbeddingTruth {
  nlohmann::json golden;

  static EmbeddingTruth Read() {
    const auto text = ReadFile(MESHWRIGHT_SOURCE_DIR "/tests/virtual/embedding_truth.json");
    MW_CHECK(text.has_value()) << text.error();
    return {nlohmann::json::parse(*text)};
  }

  std::string config() const { return golden["config"].dump(); }
  std::vector<std::string> texts() const { return golden["texts"].get<std::vector<std::string>>(); }
  std::vector<std::vector<int32_t>> ids() const {
    return golden["ids"].get<std::vector<std::vector<int32_t>>>();
  }
  // "mean", "cls" or "unit_mean".
  std::vector<std::vector<double>> vectors(const char* pooling) const {
    return golden[pooling].get<std::vector<std::vector<double>>>();
  }

  // In f64, under the names of a model without a head.
  Status WriteWeights(const std::string& path) const {
    const auto size = [&](const char* key) { return golden["config"][key].get<int64_t>(); };
    const int64_t width = size("hidden_size");
    const int64_t inner = size("intermediate_size");
    std::map<std::string, ir::Dims> shapes = {
        {"embeddings.word_embeddings.weight", {size("vocab_size"), width}},
        {"embeddings.position_embeddings.weight", {size("max_position_embeddings"), width}},
        {"embeddings.token_type_embeddings.weight", {2, width}}};
    const auto add = [&](const std::string& name, ir::Dims weight) {
      shapes[name + ".bias"] = {weight[0]};
      shapes[name + ".weight"] = std::move(weight);
    };
    add("embeddings.LayerNorm", {width});
    for (int64_t i = 0; i < size("num_hidden_layers"); ++i) {
      const std::string layer = "encoder.layer." + std::to_string(i) + ".";
      for (const char* part : {"query", "key", "value"}) {
        add(layer + "attention.self." + part, {width, width});
      }
      add(layer + "attention.output.dense", {width, width});
      add(layer + "attention.output.LayerNorm", {width});
      add(layer + "intermediate.dense", {inner, width});
      add(layer + "output.dense", {width, inner});
      add(layer + "output.LayerNorm", {width});
    }
    std::vector<formats::TensorSpec> tensors;
    for (const auto& [name, dims] : shapes) tensors.push_back({name, {ir::DType::kF64, dims}});
    MW_ASSIGN_OR_RETURN(const auto writer, formats::SafetensorsWriter::Create(path, tensors));
    for (const formats::TensorSpec& tensor : tensors) {
      std::vector<double> values;
      for (int64_t i = 0; i < tensor.type.elements(); ++i) {
        values.push_back(TruthWeight("", tensor.name, tensor.type.rank() == 1, i));
      }
      MW_TRY(writer->Write(tensor.name, 0, std::as_bytes(std::span(values))));
    }
    return writer->Finish();
  }

  // As sentence-transformers lays it out: means of length 1.
  Status WriteFolder(const std::string& folder) const {
    MW_TRY(MakeDirs(folder + "/1_Pooling"));
    MW_TRY(WriteFileAtomic(folder + "/config.json", config()));
    MW_TRY(WriteFileAtomic(folder + "/tokenizer.json", golden["tokenizer"].dump()));
    MW_TRY(WriteFileAtomic(
        folder + "/modules.json",
        R"([{"path":"","type":"sentence_transformers.models.Transformer"},)"
        R"({"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},)"
        R"({"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])"));
    MW_TRY(WriteFileAtomic(folder + "/1_Pooling/config.json",
                           R"({"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true})"));
    return WriteWeights(folder + "/model.safetensors");
  }
};

}  // namespace meshwright::testing
