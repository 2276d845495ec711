// Gemma 3, its text model: Gemma 2 without caps, with norms of each head's queries and keys and
// positions of their own in the layers with a window, of which five follow each other.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

LlamaConfig Gemma3Defaults() {
  LlamaConfig config = Gemma2Defaults();
  config.score_cap = 0;
  config.logit_cap = 0;
  config.rope_base = 1e6;
  config.window_rope_base = 10000;
  config.head_norm = HeadNorm::kEach;
  config.windowed = {true, true, true, true, true, false};
  return config;
}

std::map<std::string, LlamaConfig> Gemma3Flavors() {
  LlamaConfig debug = SmallGemma2();
  const LlamaConfig usual = Gemma3Defaults();
  debug.layers = 6;
  debug.score_cap = 0;
  debug.logit_cap = 0;
  debug.rope_base = usual.rope_base;
  debug.window_rope_base = usual.window_rope_base;
  debug.head_norm = usual.head_norm;
  debug.windowed = usual.windowed;
  LlamaConfig small = usual;
  small.vocabulary = 262144;
  small.width = 1152;
  small.inner = 6912;
  small.layers = 26;
  small.heads = 4;
  small.kv_heads = 1;
  small.attention_window = 512;
  return {{"debug", debug}, {"1B", small}};
}

constexpr char kOfFull[] = "rope_parameters.full_attention";
constexpr char kOfSliding[] = "rope_parameters.sliding_attention";

Status ReadGemma3(const HfConfig& json, LlamaConfig& config) {
  int64_t period = 6;
  MW_TRY(json.Read("sliding_window_pattern", period));
  MW_TRY(CheckPositive({{"sliding_window_pattern", period}}));
  config.windowed.assign(static_cast<size_t>(period), true);
  config.windowed.back() = false;
  MW_TRY(ReadGemma2(json, config));
  MW_TRY(json.Read("rope_local_base_freq", config.window_rope_base));
  if (!json.Has("rope_parameters")) return OkStatus();
  MW_TRY(json.Read(std::string(kOfFull) + ".rope_theta", config.rope_base));
  MW_TRY(json.Read(std::string(kOfSliding) + ".rope_theta", config.window_rope_base));
  MW_TRY(ReadRopeScaling(json, kOfFull, config.positions, config.rope_scaling));
  RopeScaling of_window;
  MW_TRY(ReadRopeScaling(json, kOfSliding, config.positions, of_window));
  if (of_window.kind == RopeKind::kPlain) return OkStatus();
  return Unimplemented(
      "config.json: rope_parameters.sliding_attention is stretched, which is not supported");
}

void WriteGemma3(const LlamaConfig& config, HfWriter& json) {
  WriteGemma2(config, json);
  json.Remove("sliding_window_pattern");
  json.Remove("rope_local_base_freq");
  json.Clear("rope_parameters");
  const int64_t turned = config.head_width();
  WriteRope({config.rope_base, turned, config.rope_scaling}, kOfFull, json);
  WriteRope({config.window_rope_base, turned, {}}, kOfSliding, json);
}

}  // namespace

FamilyRow<LlamaConfig> Gemma3Family() {
  return {.name = "gemma3",
          .type = "gemma3_text",
          .architecture = "Gemma3ForCausalLM",
          .flavors = Gemma3Flavors,
          .defaults = Gemma3Defaults,
          .keys = Gemma2Keys(),
          .read = ReadGemma3,
          .write = WriteGemma3,
          .pads = true};
}

}  // namespace meshwright::models
