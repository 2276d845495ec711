// GPT-NeoX (Pythia): attention and MLP read the same x, each by its own norm; a part of each head
// turns.
#include "models/families/decoder_line.h"

namespace meshwright::models {
namespace {

DecoderConfig GptNeox() {
  return {.positions = 2048,
          .drops_embedding = true,
          .rope_part = 0.25,
          .residual = DecoderResidual::kSideBySide,
          .activation = Activation::kGeluErf,
          .files = QkvFiles::kOfHeads,
          .names = {.embedding = "gpt_neox.embed_in",
                    .final_norm = "gpt_neox.final_layer_norm",
                    .head = "embed_out",
                    .blocks = "gpt_neox.layers",
                    .norm = "input_layernorm",
                    .mlp_norm = "post_attention_layernorm",
                    .qkv = "attention.query_key_value",
                    .out = "attention.dense",
                    .up = "mlp.dense_h_to_4h",
                    .down = "mlp.dense_4h_to_h"}};
}

std::map<std::string, DecoderConfig> GptNeoxFlavors() {
  DecoderConfig large = GptNeox();
  large.vocabulary = 50432;
  large.width = 6144;
  large.inner = 24576;
  large.layers = 44;
  large.heads = 64;
  DecoderConfig pythia = GptNeox();
  pythia.vocabulary = 50304;
  pythia.width = 768;
  pythia.inner = 3072;
  pythia.layers = 12;
  pythia.heads = 12;
  return {{"debug", SmallDecoder(GptNeox())}, {"20B", large}, {"pythia-160m", pythia}};
}

Status ReadGptNeox(const HfConfig& json, DecoderConfig& config) {
  bool side_by_side = true;
  MW_TRY(json.Read("use_parallel_residual", side_by_side));
  config.residual = side_by_side ? DecoderResidual::kSideBySide : DecoderResidual::kInTurn;
  config.output_bias = config.attention_bias;
  config.embedding_dropout = config.residual_dropout;
  MW_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "hidden_act", "gelu"));
  return ReadDecoderRope(json, config);
}

void WriteGptNeox(const DecoderConfig& config, HfWriter& json) {
  json.Set("use_parallel_residual", config.residual == DecoderResidual::kSideBySide);
  json.Set("hidden_act", ActivationName(config.activation));
  json.Set("intermediate_size", config.inner_width());
  for (const char* old : {"rotary_emb_base", "rotary_pct"}) json.Remove(old);
  WriteDecoderRope(config, json);
  json.Set("rope_parameters.partial_rotary_factor", config.rope_part);
}

}  // namespace

FamilyRow<DecoderConfig> GptNeoxFamily() {
  return {.name = "gpt-neox",
          .type = "gpt_neox",
          .architecture = "GPTNeoXForCausalLM",
          .flavors = GptNeoxFlavors,
          .defaults = GptNeox,
          .keys = {{"vocab_size", &DecoderConfig::vocabulary, true},
                   {"hidden_size", &DecoderConfig::width, true},
                   {"intermediate_size", &DecoderConfig::inner, true},
                   {"num_hidden_layers", &DecoderConfig::layers, true},
                   {"num_attention_heads", &DecoderConfig::heads, true},
                   {"max_position_embeddings", &DecoderConfig::positions},
                   {"rotary_emb_base", &DecoderConfig::rope_base},
                   {"rotary_pct", &DecoderConfig::rope_part},
                   {"layer_norm_eps", &DecoderConfig::epsilon},
                   {"hidden_dropout", &DecoderConfig::residual_dropout},
                   {"attention_dropout", &DecoderConfig::attention_dropout},
                   {"attention_bias", &DecoderConfig::attention_bias},
                   {"tie_word_embeddings", &DecoderConfig::tied}},
          .read = ReadGptNeox,
          .write = WriteGptNeox};
}

}  // namespace meshwright::models
