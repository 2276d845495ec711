#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "client/balance.h"
#include "config/key_sections.h"

namespace meshwright::config {

namespace {

// "Named sizes: gpt2 has 1.5B, 124M ..; ..".
const std::string& FlavorDoc() {
  static const std::string doc = [] {
    std::vector<std::string> families;
    for (const std::string& name : models::ModelNames()) {
      families.push_back(fmt::format("{} has {}", name, fmt::join(models::Flavors(name), ", ")));
    }
    return fmt::format("Named sizes: {}. The size keys below override it. Empty: debug.",
                       fmt::join(families, "; "));
  }();
  return doc;
}

}  // namespace

std::vector<ConfigKey> JobAndModelKeys() {
  return {
      {"job", "name", "Name of the job, for people; one line.", MW_AT(name)},
      {"job", "owner",
       "Whose it is, for people; default: the name in the certificate of who "
       "submits it, else USER@HOST.",
       MW_AT(owner)},
      {"job", "description", "Free text, kept with the run.", MW_AT(description)},
      {"job", "priority",
       "Jobs of a higher one are placed first; of equals the older one. From -1000 to 1000.",
       MW_AT(queue.priority)},
      {"job", "preemptible",
       "A job of a higher priority that waits may have this one saved and take its devices; it "
       "goes back to its place in the queue. Needs checkpoint.enable.",
       MW_AT(queue.preemptible)},
      {"job", "max_queue_wait_seconds",
       "It ends when it has waited so long for its first devices; 0: it waits for ever.",
       MW_AT(queue.max_wait_s)},
      {"model", "name", "Model family.", MW_AT(model.name), KeyKind::kChoice, models::ModelNames()},
      {"model", "flavor", FlavorDoc(), MW_AT(model.flavor)},
      {"model", "hf_path",
       "Hugging Face config.json, or the folder with it; replaces name and flavor. The weights of "
       "the folder (model.safetensors, whole or in shards) are what the job starts from.",
       MW_AT(hf_path)},
      {"model", "from_scratch",
       "With hf_path: draw the weights anew instead of loading those of the folder.",
       MW_AT(from_scratch)},
      {"model", "dim", "Width of the residual stream.", MW_AT(model.width)},
      {"model", "ffn_dim", "Inner width of the MLP.", MW_AT(model.inner)},
      {"model", "n_layers", "Transformer blocks.", MW_AT(model.layers)},
      {"model", "n_heads", "Attention heads; divides dim.", MW_AT(model.heads)},
      {"model", "n_kv_heads",
       "Key/value heads of grouped-query attention (LLaMA's line and mixtures); divides n_heads.",
       MW_AT(model.kv_heads)},
      {"model", "vocab_size", "Rows of the embedding; the byte tokenizer needs 256.",
       MW_AT(model.vocabulary)},
      {"model", "max_seq_len",
       "Learned positions (gpt2, gptj, opt, bert); default: the flavor's, or training.seq_len for "
       "gpt2 without a flavor.",
       MW_AT(model.positions)},
      {"model", "dropout",
       "Rate on embeddings, attention and residual branches (not LLaMA's line and mixtures).",
       MW_AT(model.dropout)},
      {"model", "norm_eps", "Epsilon of the norms.", MW_AT(model.epsilon)},
      {"model", "rope_theta",
       "Base of the rotary positions (not gpt2, gptj, opt, bloom, bert, t5, bart).",
       MW_AT(model.rope_base)},
      {"model", "attention_window",
       "Tokens that a token sees: itself and those before it (LLaMA's line and mixtures); 0: all "
       "before it.",
       MW_AT(model.attention_window)},
      {"model", "tie_embeddings", "Use the token embedding as the output head.", MW_AT(model.tied)},
      {"model", "document_separator",
       "Token that ends a document: tokens attend to their own document only; -1: to all before.",
       MW_AT(model.document_separator)},
      {"model", "n_labels",
       "Classes of a row, of which bert and vit say one (lines with \"text\", or \"image\", and "
       "\"label\"); 0: none, bert says which tokens were hidden; by itself as the folder says.",
       MW_AT(model.labels)},
      {"model", "label_names", "Names of all classes; by itself those of a folder of images.",
       MW_AT(model.label_names)},
      {"model", "mask_token",
       "Id of the token that stands where bert is to say which token was there; by itself the mask "
       "of the tokenizer.",
       MW_AT(model.mask_token)},
      {"model", "image_size", "Pixels of an image's sides (vit); data are brought to it.",
       MW_AT(model.image)},
      {"model", "patch_size", "Pixels of the sides of a patch, which is a token (vit).",
       MW_AT(model.patch)},
  };
}

// Of models with experts.

std::vector<ConfigKey> MixtureKeys() {
  std::vector<std::string> routers = {models::kOfFamily};
  std::vector<std::string> forms = routers;
  for (std::string& name : models::RouterNames()) routers.push_back(std::move(name));
  for (std::string& name : client::BalanceFormNames()) forms.push_back(std::move(name));
  return {
      {"model", "n_experts", "Experts of each layer; ffn_dim is the width of one.",
       MW_AT(model.mixture.experts)},
      {"model", "experts_per_token", "Experts that the router gives a token to.",
       MW_AT(model.mixture.experts_per_token)},
      {"model", "router",
       "How experts are chosen and weighed (docs/mixtures.md): softmax takes the largest "
       "probabilities, softmax_of_top a softmax over the logits of those chosen, noisy the same "
       "with noise while training, sigmoid a score for each expert and a bias that balances; with "
       "expert_choice experts take tokens, not causally.",
       MW_AT(model.mixture.router), KeyKind::kChoice, routers},
      {"model", "normalise_weights",
       "The weights of a token's experts add up to one (routers softmax and sigmoid).",
       MW_AT(model.mixture.normalised)},
      {"model", "expert_groups", "Groups of neighbouring experts (router sigmoid).",
       MW_AT(model.mixture.groups)},
      {"model", "expert_groups_per_token",
       "Groups that a token may take experts of: those whose best two have the largest sum (router "
       "sigmoid).",
       MW_AT(model.mixture.groups_per_token)},
      {"model", "routed_scale", "What experts say is weighed by this, too (router sigmoid).",
       MW_AT(model.mixture.scale)},
      {"model", "router_bias_rate",
       "How far the bias of an expert moves in a step, against its load (router sigmoid).",
       MW_AT(model.mixture.bias_rate)},
      {"model", "capacity_factor",
       "Room of an expert among the tokens of a row, in times its fair share; what finds none is "
       "dropped, second choices first. 0: nothing is dropped.",
       MW_AT(model.mixture.capacity_factor)},
      {"model", "expert_slots_factor",
       "Where replicas share experts and nothing is dropped: room of a replica for choices of a "
       "row, in times its fair share, from 1; a step that wants more fails. 0: for all.",
       MW_AT(model.mixture.slots_factor)},
      {"model", "shared_ffn_dim",
       "Width of an MLP that all tokens pass beside their experts; 0: none.",
       MW_AT(model.mixture.shared_inner)},
      {"model", "first_dense_layers", "Layers at the start that have an MLP and no experts.",
       MW_AT(model.mixture.dense_layers)},
      {"model", "dense_ffn_dim", "Width of the MLP of those layers.",
       MW_AT(model.mixture.dense_inner)},
      {"model", "balance_loss", "Weight of the loss that makes the router use all experts alike.",
       MW_AT(model.mixture.balance_loss)},
      {"model", "balance_form",
       "The form of that loss (docs/mixtures.md): of each row (sequence, gshard), or of the whole "
       "batch (switch, mixtral), which with several microbatches costs a forward more, and in a "
       "pipeline wants one.",
       MW_AT(model.mixture.balance_form), KeyKind::kChoice, forms},
      {"model", "z_loss", "Weight of the loss that keeps the router's logits small.",
       MW_AT(model.mixture.z_loss)},
  };
}

}  // namespace meshwright::config
