// BLOOM: no positions but scores that fall with the distance; a norm behind the embedding.
#include "models/families/decoder_line.h"

namespace meshwright::models {
namespace {

DecoderConfig Bloom() {
  return {.places = DecoderPlaces::kSlopes,
          .embedding_norm = true,
          .tied = true,
          .files = QkvFiles::kOfHeads,
          .names = BloomNames()};
}

std::map<std::string, DecoderConfig> BloomFlavors() {
  DecoderConfig small = Bloom();
  small.vocabulary = 250880;
  small.width = 1024;
  small.layers = 24;
  small.heads = 16;
  return {{"debug", SmallDecoder(Bloom())}, {"560m", small}};
}

Status ReadBloom(const HfConfig& json, DecoderConfig&) {
  return json.RefuseOther("apply_residual_connection_post_layernorm", false);
}

void WriteBloom(const DecoderConfig&, HfWriter&) {}

}  // namespace

FamilyRow<DecoderConfig> BloomFamily() {
  return {.name = "bloom",
          .type = "bloom",
          .architecture = "BloomForCausalLM",
          .flavors = BloomFlavors,
          .defaults = Bloom,
          .keys = {{"vocab_size", &DecoderConfig::vocabulary, true},
                   {"hidden_size|n_embed", &DecoderConfig::width, true},
                   {"n_layer|num_hidden_layers", &DecoderConfig::layers, true},
                   {"n_head|num_attention_heads", &DecoderConfig::heads, true},
                   {"layer_norm_epsilon", &DecoderConfig::epsilon},
                   {"hidden_dropout", &DecoderConfig::residual_dropout},
                   {"attention_dropout", &DecoderConfig::attention_dropout},
                   {"tie_word_embeddings", &DecoderConfig::tied}},
          .read = ReadBloom,
          .write = WriteBloom,
          .says = [](const DecoderConfig& config) { return config.inner == 0; }};
}

}  // namespace meshwright::models
