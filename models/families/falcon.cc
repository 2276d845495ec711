// Falcon: attention and MLP side by side, of one norm or of two; queries share keys and values, in
// its first models all of them one.
#include "models/families/decoder_line.h"

namespace meshwright::models {
namespace {

DecoderConfig Falcon() {
  return {.positions = 2048,
          .residual = DecoderResidual::kTogether,
          .attention_bias = false,
          .output_bias = false,
          .mlp_bias = false,
          .tied = true,
          .activation = Activation::kGeluErf,
          .names = BloomNames()};
}

std::map<std::string, DecoderConfig> FalconFlavors() {
  DecoderConfig small = Falcon();
  small.kv_heads = 1;
  small.files = QkvFiles::kOfOneHead;
  DecoderConfig debug = SmallDecoder(small);
  small.vocabulary = 65024;
  small.width = 4544;
  small.layers = 32;
  small.heads = 71;
  DecoderConfig large = Falcon();
  large.vocabulary = 65024;
  large.width = 8192;
  large.layers = 60;
  large.heads = 128;
  large.kv_heads = 8;
  large.files = QkvFiles::kOfHeads;
  large.residual = DecoderResidual::kSideBySide;
  large.names.norm = "ln_attn";
  large.names.mlp_norm = "ln_mlp";
  return {{"debug", debug}, {"7B", small}, {"40B", large}};
}

// Its first models have one key for all queries or one for each, its newer ones any number.
Status ReadFalconHeads(const HfConfig& json, bool newer, DecoderConfig& config) {
  bool one_key = true;
  MW_TRY(json.Read("multi_query", one_key));
  if (!newer) config.kv_heads = one_key ? 1 : 0;
  config.files = config.kv_heads == 1 ? QkvFiles::kOfOneHead : QkvFiles::kOfHeads;
  return OkStatus();
}

Status ReadFalcon(const HfConfig& json, DecoderConfig& config) {
  MW_TRY(json.RefuseOther("alibi", false));
  MW_TRY(json.RefuseOther("attention_dropout", 0.0));
  bool newer = false;
  bool parallel = true;
  MW_TRY(json.Read("new_decoder_architecture", newer));
  MW_TRY(json.Read("parallel_attn", parallel));
  if (newer && !parallel) {
    return Unimplemented(
        "config.json: parallel_attn = false with new_decoder_architecture is not supported; only "
        "true");
  }
  int64_t norms = newer ? 2 : 1;
  MW_TRY(json.Read("num_ln_in_parallel_attn", norms));
  const bool two = newer && norms == 2;
  if (two) {
    config.names.norm = "ln_attn";
    config.names.mlp_norm = "ln_mlp";
  }
  config.residual = two        ? DecoderResidual::kSideBySide
                    : parallel ? DecoderResidual::kTogether
                               : DecoderResidual::kInTurn;
  config.output_bias = config.attention_bias;
  config.mlp_bias = config.attention_bias;
  MW_TRY(ReadFalconHeads(json, newer, config));
  MW_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "activation", "gelu"));
  return ReadDecoderRope(json, config);
}

void WriteFalcon(const DecoderConfig& config, HfWriter& json) {
  const bool two = config.residual == DecoderResidual::kSideBySide;
  const bool of_one_key = config.kv_head_count() == 1;
  const bool newer = two || (!of_one_key && config.kv_head_count() != config.heads);
  json.Set("alibi", false);
  json.Set("new_decoder_architecture", newer);
  json.Set("parallel_attn", config.residual != DecoderResidual::kInTurn);
  json.Set("num_ln_in_parallel_attn", int64_t{two ? 2 : 1});
  json.Set("multi_query", of_one_key);
  json.Set("num_kv_heads", newer ? config.kv_head_count() : config.heads);
  json.Set("ffn_hidden_size", config.inner_width());
  json.Set("activation", ActivationName(config.activation));
  WriteDecoderRope(config, json);
}

}  // namespace

FamilyRow<DecoderConfig> FalconFamily() {
  return {.name = "falcon",
          .type = "falcon",
          .architecture = "FalconForCausalLM",
          .flavors = FalconFlavors,
          .defaults = Falcon,
          .keys = {{"vocab_size", &DecoderConfig::vocabulary, true},
                   {"hidden_size", &DecoderConfig::width, true},
                   {"num_hidden_layers|n_layer", &DecoderConfig::layers, true},
                   {"num_attention_heads|n_head", &DecoderConfig::heads, true},
                   {"num_kv_heads", &DecoderConfig::kv_heads},
                   {"ffn_hidden_size", &DecoderConfig::inner},
                   {"max_position_embeddings", &DecoderConfig::positions},
                   {"layer_norm_epsilon", &DecoderConfig::epsilon},
                   {"hidden_dropout", &DecoderConfig::residual_dropout},
                   {"bias", &DecoderConfig::attention_bias},
                   {"tie_word_embeddings", &DecoderConfig::tied}},
          .read = ReadFalcon,
          .write = WriteFalcon};
}

}  // namespace meshwright::models
