#include "models/family_row.h"

#include <utility>

#include "models/families/families.h"

namespace meshwright::models {

Status RefuseField(const std::string& model, const char* field, bool set) {
  if (!set) return OkStatus();
  return InvalidArgument(fmt::format("model '{}' has no {}; remove it", model, field));
}

Status RefuseExperts(const std::string& model, const MixtureSpec& spec) {
  for (const auto& [field, set] :
       {std::pair("n_experts", spec.experts.has_value()),
        std::pair("experts_per_token", spec.experts_per_token.has_value()),
        std::pair("router", spec.router != kOfFamily),
        std::pair("normalise_weights", spec.normalised.has_value()),
        std::pair("expert_groups", spec.groups.has_value()),
        std::pair("expert_groups_per_token", spec.groups_per_token.has_value()),
        std::pair("routed_scale", spec.scale.has_value()),
        std::pair("router_bias_rate", spec.bias_rate.has_value()),
        std::pair("capacity_factor", spec.capacity_factor.has_value()),
        std::pair("expert_slots_factor", spec.slots_factor.has_value()),
        std::pair("shared_ffn_dim", spec.shared_inner.has_value()),
        std::pair("first_dense_layers", spec.dense_layers.has_value()),
        std::pair("dense_ffn_dim", spec.dense_inner.has_value()),
        std::pair("balance_loss", spec.balance_loss.has_value()),
        std::pair("balance_form", spec.balance_form != kOfFamily),
        std::pair("z_loss", spec.z_loss.has_value())}) {
    MW_TRY(RefuseField(model, field, set));
  }
  return OkStatus();
}

Status RefuseOthers(const std::string& family, const ModelSpec& spec, const DenseWords& words) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "n_kv_heads", !words.kv_heads && spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "max_seq_len", !words.positions && spec.positions.has_value()));
  MW_TRY(RefuseField(family, "rope_theta", !words.rope_base && spec.rope_base.has_value()));
  return RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0);
}

Result<Activation> ReadActivation(const HfConfig& json, const char* key, const char* usual) {
  std::string name = usual;
  MW_TRY(json.Read(key, name));
  return ParseActivation(key, name);
}

std::string SummaryOf(const Model& model, const std::string& sizes) {
  return fmt::format("{}: {} layers, {}, vocabulary {}, {:.2f} M params", model.name, model.layers,
                     sizes, model.vocabulary, static_cast<double>(model.param_count) / 1e6);
}

// Where documents end with it, one wants it trained.
Status NotePadToken(const HfConfig& json, Model& model) {
  if (!json.Has("pad_token_id")) return OkStatus();
  int64_t token = 0;
  MW_TRY(json.Read("pad_token_id", token));
  model.notes.push_back(
      fmt::format("config.json: pad_token_id {} has no effect: its embedding is trained like every "
                  "other, where transformers leaves it as it is",
                  token));
  return OkStatus();
}

}  // namespace meshwright::models
