// GPT-J: attention and MLP read one norm of x together; neighbouring pairs turn; the head has a
// bias.
#include "models/families/decoder_line.h"

namespace meshwright::models {
namespace {

DecoderConfig Gptj() {
  return {.positions = 2048,
          .drops_embedding = true,
          .turned = 64,
          .rope_neighbours = true,
          .residual = DecoderResidual::kTogether,
          .attention_bias = false,
          .output_bias = false,
          .head_bias = true,
          .names = {.embedding = "transformer.wte",
                    .final_norm = "transformer.ln_f",
                    .blocks = "transformer.h",
                    .norm = "ln_1",
                    .q = "attn.q_proj",
                    .k = "attn.k_proj",
                    .v = "attn.v_proj",
                    .out = "attn.out_proj",
                    .up = "mlp.fc_in",
                    .down = "mlp.fc_out"}};
}

std::map<std::string, DecoderConfig> GptjFlavors() {
  DecoderConfig debug = SmallDecoder(Gptj());
  debug.turned = 8;
  DecoderConfig large = Gptj();
  large.vocabulary = 50400;
  large.width = 4096;
  large.layers = 28;
  large.heads = 16;
  return {{"debug", debug}, {"6B", large}};
}

Status ReadGptj(const HfConfig& json, DecoderConfig& config) {
  if (json.IsNull("rotary_dim")) {
    return Unimplemented("config.json: rotary_dim null is not supported; write a number");
  }
  MW_TRY(CheckPositive({{"rotary_dim", config.turned}}));
  MW_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "activation_function", "gelu_new"));
  return OkStatus();
}

void WriteGptj(const DecoderConfig& config, HfWriter& json) {
  json.Set("activation_function", ActivationName(config.activation));
}

}  // namespace

FamilyRow<DecoderConfig> GptjFamily() {
  return {.name = "gptj",
          .type = "gptj",
          .architecture = "GPTJForCausalLM",
          .flavors = GptjFlavors,
          .defaults = Gptj,
          .keys = {{"vocab_size", &DecoderConfig::vocabulary, true},
                   {"n_positions", &DecoderConfig::positions, true},
                   {"n_embd", &DecoderConfig::width, true},
                   {"n_layer", &DecoderConfig::layers, true},
                   {"n_head", &DecoderConfig::heads, true},
                   {"n_inner", &DecoderConfig::inner},
                   {"rotary_dim", &DecoderConfig::turned},
                   {"layer_norm_epsilon", &DecoderConfig::epsilon},
                   {"embd_pdrop", &DecoderConfig::embedding_dropout},
                   {"resid_pdrop", &DecoderConfig::residual_dropout},
                   {"attn_pdrop", &DecoderConfig::attention_dropout},
                   {"tie_word_embeddings", &DecoderConfig::tied}},
          .read = ReadGptj,
          .write = WriteGptj};
}

}  // namespace meshwright::models
