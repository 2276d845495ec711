// Phi-3 and 4-mini: files have q, k and v as one tensor, gate and up as another; positions are
// stretched by longrope and may turn a part of each head only.
#include <fmt/format.h>

#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, LlamaConfig> Phi3Flavors() {
  LlamaConfig debug = SmallLlama();
  debug.fused = true;
  return {{"debug", debug},
          {"mini-4k",
           {.vocabulary = 32064,
            .width = 3072,
            .inner = 8192,
            .layers = 32,
            .heads = 32,
            .positions = 4096,
            .attention_window = 2047,
            .fused = true}}};
}

Status ReadPhi3(const HfConfig& json, LlamaConfig& config) {
  for (const char* key : {"resid_pdrop", "embd_pdrop"}) MW_TRY(json.RefuseOther(key, 0.0));
  MW_TRY(ReadSlidingWindow(json, 0, config));
  const std::string key = json.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  for (const char* name : {".type", ".rope_type"}) {
    std::string kind;
    MW_TRY(json.Read(key + name, kind));
    // transformers takes it for longrope here, and for itself elsewhere.
    if (kind == "yarn") {
      return Unimplemented(
          fmt::format("config.json: {}{} = 'yarn' is not supported of phi3, where it means "
                      "'longrope'; write that",
                      key, name));
    }
  }
  for (const std::string& part :
       {std::string("partial_rotary_factor"), key + ".partial_rotary_factor"}) {
    MW_TRY(json.Read(part, config.rope_part));
  }
  constexpr int64_t kUsual = 4096;
  config.rope_scaling.original = kUsual;
  return ReadLlamaForms(json, config);
}

void WritePhi3(const LlamaConfig& config, HfWriter& json) {
  WriteLlamaForms(config, json);
  json.Remove("partial_rotary_factor");
  json.Set("rope_parameters.partial_rotary_factor", config.rope_part);
  if (config.rope_scaling.kind != RopeKind::kPlain) {
    json.Set("original_max_position_embeddings", config.rope_scaling.original);
  }
  WriteSlidingWindow(config, json);
}

}  // namespace

FamilyRow<LlamaConfig> Phi3Family() {
  return {.name = "phi3",
          .type = "phi3",
          .architecture = "Phi3ForCausalLM",
          .flavors = Phi3Flavors,
          .defaults = [] { return LlamaConfig{.fused = true}; },
          .keys = LlamaKeys(false),
          .read = ReadPhi3,
          .write = WritePhi3,
          .pads = true};
}

}  // namespace meshwright::models
