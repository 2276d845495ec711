// Models by name: from a job file's [model] section, or from a Hugging Face config.json.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/trainer.h"

namespace meshwright::models {

inline constexpr char kOfFamily[] = "family";  // in the place of a name: as the family has it

// Of models with experts only.
struct MixtureSpec {
  std::optional<int64_t> experts = {};
  std::optional<int64_t> experts_per_token = {};
  std::string router = kOfFamily;  // see RouterNames()
  std::optional<bool> normalised = {};
  std::optional<int64_t> groups = {};  // these four: of the router "sigmoid" only
  std::optional<int64_t> groups_per_token = {};
  std::optional<double> scale = {};
  std::optional<double> bias_rate = {};
  std::optional<double> capacity_factor = {};
  std::optional<double> slots_factor = {};
  std::optional<int64_t> shared_inner = {};
  std::optional<int64_t> dense_layers = {};
  std::optional<int64_t> dense_inner = {};
  std::optional<double> balance_loss = {};
  std::string balance_form = kOfFamily;  // or one of client::BalanceFormNames()
  std::optional<double> z_loss = {};
};

// What a user may say about a model. The flavor (or hf_config) gives the sizes, every set field
// overrides it.
struct ModelSpec {
  std::string name = "gpt2";                  // see ModelNames()
  std::string flavor = {};                    // see Flavors(); empty: "debug"
  std::optional<std::string> hf_config = {};  // text of a config.json; replaces name and flavor
  std::optional<int64_t> vocabulary = {};
  std::optional<int64_t> width = {};
  std::optional<int64_t> inner = {};
  std::optional<int64_t> layers = {};
  std::optional<int64_t> heads = {};
  std::optional<int64_t> kv_heads = {};   // of LLaMA's line
  std::optional<int64_t> positions = {};  // of learned ones
  std::optional<double> dropout = {};     // embedding and residual; not of LLaMA's line
  std::optional<double> epsilon = {};
  std::optional<double> rope_base = {};          // not gpt2, gptj and opt
  std::optional<int64_t> attention_window = {};  // llama and its kin
  std::optional<bool> tied = {};
  MixtureSpec mixture = {};
  std::optional<int64_t> document_separator = {};
  std::optional<int64_t> labels = {};         // classes of a row: bert, vit
  std::vector<std::string> label_names = {};  // of all classes, in their order; empty: as they are
  std::optional<int64_t> mask_token = {};     // of bert
  std::optional<int64_t> target_tokens = {};  // of a pair's second text: t5; else as the first
  std::optional<double> hidden_share = {};    // of the tokens of a text: bert, and t5 of texts
  std::optional<double> mean_span = {};       // tokens of a hidden span: t5 of texts
  std::optional<int64_t> image = {};          // pixels of a side: vit
  std::optional<int64_t> patch = {};          // likewise
};

// What a sample of the data is.
enum class SampleKind : uint8_t {
  kWindow,    // tokens, one window of all documents: what a job file reads by itself
  kPair,      // "source" and "target"
  kLabelled,  // "tokens", "types" (0, and 1 of a second text) and "label"
  kImage      // "pixels" and "label"
};

// Rows of whole texts, in tokens with padding behind, or of images.
struct ModelRows {
  SampleKind kind = SampleKind::kWindow;
  int64_t target_tokens = 0;  // of a pair; 0: as many as the source
  int64_t padding = 0;
  // Pairs are made of texts: such a share is hidden, in spans (data/spans.h). 0: the data are
  // pairs.
  double hidden_share = 0;
  double mean_span = 3;
  int64_t labels = 0;
  std::vector<std::string> label_names = {};  // in their order, where the model has names
  int64_t channels = 0;                       // of an image
  int64_t image = 0;                          // pixels of its sides
  bool asks = false;                          // rows are asked about: labels need not be there
};

// A class's name, or its number where the model has no names.
std::string LabelName(const ModelRows& rows, int64_t label);

struct Model {
  std::string name = {};
  std::string summary = {};  // "gpt2: 4 layers, width 192, 6 heads, vocabulary 256, 1.86 M params"
  client::TrainerFunctions functions = {};
  int64_t layers = 0;
  int64_t vocabulary = 0;
  int64_t max_sequence = 0;  // 0: any
  int64_t param_count = 0;
  std::vector<std::string> notes =
      {};  // what a config.json says and has no effect here, for people
  ModelRows rows = {};
  // What the model came to be made of: of a spec's sizes those that it has, all set.
  ModelSpec sizes = {};
  // The text of a config.json that says all of it, for transformers; empty for families that no
  // folder is read of.
  std::string hf_config = {};
};

// Errors: kInvalidArgument naming an unknown model or flavor (and the known ones), a field that the
// model does not have, or sizes that do not fit together; kUnimplemented for what a config.json
// asks beyond the models.
Result<Model> MakeModel(const ModelSpec& spec);

std::vector<std::string> ModelNames();
std::vector<std::string> RouterNames();
std::vector<std::string> Flavors(const std::string& model_name);  // empty for an unknown model

}  // namespace meshwright::models
