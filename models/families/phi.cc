// Phi-1, 1.5 and 2: attention and MLP read one norm of x together; a part of each head turns; all
// products and the head have biases.
#include "models/families/decoder_line.h"

namespace meshwright::models {
namespace {

DecoderConfig Phi() {
  return {.positions = 2048,
          .says_kv_heads = true,
          .drops_embedding = true,
          .rope_part = 0.5,
          .residual = DecoderResidual::kTogether,
          .head_bias = true,
          .names = {.embedding = "model.embed_tokens",
                    .final_norm = "model.final_layernorm",
                    .blocks = "model.layers",
                    .norm = "input_layernorm",
                    .q = "self_attn.q_proj",
                    .k = "self_attn.k_proj",
                    .v = "self_attn.v_proj",
                    .out = "self_attn.dense",
                    .up = "mlp.fc1",
                    .down = "mlp.fc2"}};
}

std::map<std::string, DecoderConfig> PhiFlavors() {
  DecoderConfig large = Phi();
  large.vocabulary = 51200;
  large.width = 2560;
  large.inner = 10240;
  large.layers = 32;
  large.heads = 32;
  large.rope_part = 0.4;
  return {{"debug", SmallDecoder(Phi())}, {"2", large}};
}

Status ReadPhi(const HfConfig& json, DecoderConfig& config) {
  MW_TRY(json.RefuseOther("qk_layernorm", false));
  MW_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "hidden_act", "gelu_new"));
  return ReadDecoderRope(json, config);
}

void WritePhi(const DecoderConfig& config, HfWriter& json) {
  json.Set("hidden_act", ActivationName(config.activation));
  json.Set("intermediate_size", config.inner_width());
  json.Set("num_key_value_heads", config.kv_head_count());
  WriteDecoderRope(config, json);
  json.Set("rope_parameters.partial_rotary_factor", config.rope_part);
}

}  // namespace

FamilyRow<DecoderConfig> PhiFamily() {
  return {.name = "phi",
          .type = "phi",
          .architecture = "PhiForCausalLM",
          .flavors = PhiFlavors,
          .defaults = Phi,
          .keys = {{"vocab_size", &DecoderConfig::vocabulary, true},
                   {"hidden_size", &DecoderConfig::width, true},
                   {"intermediate_size", &DecoderConfig::inner, true},
                   {"num_hidden_layers", &DecoderConfig::layers, true},
                   {"num_attention_heads", &DecoderConfig::heads, true},
                   {"num_key_value_heads", &DecoderConfig::kv_heads},
                   {"max_position_embeddings", &DecoderConfig::positions},
                   {"layer_norm_eps", &DecoderConfig::epsilon},
                   {"embd_pdrop", &DecoderConfig::embedding_dropout},
                   {"resid_pdrop", &DecoderConfig::residual_dropout},
                   {"attention_dropout", &DecoderConfig::attention_dropout},
                   {"tie_word_embeddings", &DecoderConfig::tied}},
          .read = ReadPhi,
          .write = WritePhi,
          .pads = true};
}

}  // namespace meshwright::models
