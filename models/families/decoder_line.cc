#include "models/families/decoder_line.h"

#include <utility>

namespace meshwright::models {
namespace {

// A family says its limit of positions where there is a table, or a base that no key changes.
DenseWords WordsOf(const DecoderConfig& config) {
  const bool turned = config.places == DecoderPlaces::kTurned && config.turned == 0;
  return {.kv_heads = config.says_kv_heads,
          .positions = config.places != DecoderPlaces::kSlopes && !turned,
          .rope_base = turned};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, DecoderConfig& config) {
  MW_TRY(ApplyDense(family, spec, WordsOf(config), config));
  if (!config.drops_embedding) config.embedding_dropout = 0;
  Override(config.kv_heads, spec.kv_heads);
  Override(config.rope_base, spec.rope_base);
  return OkStatus();
}

Model ModelOf(const std::string& family, const DecoderConfig& config) {
  const DenseWords words = WordsOf(config);
  Model model = DenseModel(family, config, words, MakeDecoder(config));
  if (words.kv_heads) model.sizes.kv_heads = config.kv_head_count();
  return model;
}

DecoderConfig SmallDecoder(DecoderConfig of_family) {
  of_family.vocabulary = 256;
  of_family.width = 64;
  of_family.inner = 0;
  of_family.layers = 2;
  of_family.heads = 4;
  if (of_family.positions > 0) of_family.positions = 256;
  return of_family;
}

Status ReadDecoderRope(const HfConfig& json, DecoderConfig& config) {
  const std::string key = json.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  for (const std::string& name : {std::string("rope_theta"), key + ".rope_theta"}) {
    MW_TRY(json.Read(name, config.rope_base));
  }
  for (const std::string& name :
       {std::string("partial_rotary_factor"), key + ".partial_rotary_factor"}) {
    MW_TRY(json.Read(name, config.rope_part));
  }
  MW_TRY(ReadRopeScaling(json, key, config.positions, config.rope_scaling));
  // The positions of what is stretched by the length of a text have no end.
  if (config.rope_scaling.kind == RopeKind::kDynamic) config.positions = 0;
  return OkStatus();
}

void WriteDecoderRope(const DecoderConfig& config, HfWriter& json) {
  for (const char* old : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) json.Remove(old);
  WriteRope(config.rope(), "rope_parameters", json);
  if (config.rope_scaling.kind == RopeKind::kDynamic) {
    json.Set("max_position_embeddings", config.rope_scaling.original);
  }
}

DecoderNames BloomNames() {
  return {.embedding = "transformer.word_embeddings",
          .embedding_norm = "transformer.word_embeddings_layernorm",
          .final_norm = "transformer.ln_f",
          .blocks = "transformer.h",
          .norm = "input_layernorm",
          .mlp_norm = "post_attention_layernorm",
          .qkv = "self_attention.query_key_value",
          .out = "self_attention.dense",
          .up = "mlp.dense_h_to_4h",
          .down = "mlp.dense_4h_to_h"};
}

std::vector<Family> DecoderFamilies() {
  std::vector<Family> families;
  for (FamilyRow<DecoderConfig>& row :
       std::vector<FamilyRow<DecoderConfig>>{GptNeoxFamily(), GptjFamily(), OptFamily(),
                                             PhiFamily(), BloomFamily(), FalconFamily()}) {
    families.push_back(MakeFamily(std::move(row)));
  }
  return families;
}

}  // namespace meshwright::models
