// OPT: learned positions, whose table has two rows in front that no place has, and ReLU; in one
// size norms are behind attention and MLP, and embeddings narrower than the blocks.
#include "models/families/decoder_line.h"

namespace meshwright::models {
namespace {

DecoderConfig Opt() {
  return {.positions = 2048,
          .residual_dropout = 0.1,
          .places = DecoderPlaces::kLearned,
          .rows_in_front = 2,
          .tied = true,
          .activation = Activation::kRelu,
          .names = {.embedding = "model.decoder.embed_tokens",
                    .places = "model.decoder.embed_positions",
                    .project_in = "model.decoder.project_in",
                    .project_out = "model.decoder.project_out",
                    .final_norm = "model.decoder.final_layer_norm",
                    .blocks = "model.decoder.layers",
                    .norm = "self_attn_layer_norm",
                    .mlp_norm = "final_layer_norm",
                    .q = "self_attn.q_proj",
                    .k = "self_attn.k_proj",
                    .v = "self_attn.v_proj",
                    .out = "self_attn.out_proj",
                    .up = "fc1",
                    .down = "fc2"}};
}

std::map<std::string, DecoderConfig> OptFlavors() {
  DecoderConfig small = Opt();
  small.residual_dropout = 0;
  const DecoderConfig debug = SmallDecoder(small);
  small.vocabulary = 50272;
  small.width = 768;
  small.layers = 12;
  small.heads = 12;
  DecoderConfig behind = small;
  behind.width = 1024;
  behind.layers = 24;
  behind.heads = 16;
  behind.embedding_width = 512;
  behind.residual = DecoderResidual::kBehind;
  behind.final_norm = false;
  return {{"debug", debug}, {"125m", small}, {"350m", behind}};
}

Status ReadOpt(const HfConfig& json, DecoderConfig& config) {
  MW_TRY(json.RefuseOther("layerdrop", 0.0));
  MW_TRY(json.RefuseOther("layer_norm_elementwise_affine", true));
  bool before = true;
  bool no_final_norm = false;
  MW_TRY(json.Read("do_layer_norm_before", before));
  MW_TRY(json.Read("_remove_final_layer_norm", no_final_norm));
  config.residual = before ? DecoderResidual::kInTurn : DecoderResidual::kBehind;
  config.final_norm = before && !no_final_norm;
  config.output_bias = config.attention_bias;
  config.mlp_bias = config.attention_bias;
  MW_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "activation_function", "relu"));
  return OkStatus();
}

void WriteOpt(const DecoderConfig& config, HfWriter& json) {
  const bool before = config.residual != DecoderResidual::kBehind;
  json.Set("do_layer_norm_before", before);
  json.Set("_remove_final_layer_norm", before && !config.final_norm);
  json.Set("activation_function", ActivationName(config.activation));
  json.Set("ffn_dim", config.inner_width());
  json.Set("word_embed_proj_dim", config.table_width());
}

}  // namespace

FamilyRow<DecoderConfig> OptFamily() {
  return {.name = "opt",
          .type = "opt",
          .architecture = "OPTForCausalLM",
          .flavors = OptFlavors,
          .defaults = Opt,
          .keys = {{"vocab_size", &DecoderConfig::vocabulary, true},
                   {"max_position_embeddings", &DecoderConfig::positions, true},
                   {"hidden_size", &DecoderConfig::width, true},
                   {"ffn_dim", &DecoderConfig::inner, true},
                   {"num_hidden_layers", &DecoderConfig::layers, true},
                   {"num_attention_heads", &DecoderConfig::heads, true},
                   {"word_embed_proj_dim", &DecoderConfig::embedding_width},
                   {"dropout", &DecoderConfig::residual_dropout},
                   {"attention_dropout", &DecoderConfig::attention_dropout},
                   {"enable_bias", &DecoderConfig::attention_bias},
                   {"tie_word_embeddings", &DecoderConfig::tied}},
          .read = ReadOpt,
          .write = WriteOpt,
          .pads = true};
}

}  // namespace meshwright::models
