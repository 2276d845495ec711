// Transformers with layer norms and an MLP of two products: GPT-J, GPT-NeoX, OPT, Phi, BLOOM and
// Falcon. One model; what tells the families apart is in the config, and each family's own values
// in models/families/.
//
// Params carry the names and, on export, the layout of Hugging Face's models: nn.Linear stores
// [out, in], here weights are [in, out] with heads as dims of their own. Layers 0..layers-1 are the
// blocks; the embedding belongs to layer 0, final norm, head and loss to the last.
//
// Thread rule: values. Sources: Wang and Komatsuzaki 2021 (GPT-J), Black et al. 2022 (NeoX), Zhang
// et al. 2022 (OPT), Le Scao et al. 2022 (BLOOM), Almazrouei et al. 2023 (Falcon); slopes: Press et
// al. 2022.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"
#include "models/rope.h"

namespace meshwright::models {

// How a block knows where tokens are.
enum class DecoderPlaces : uint8_t {
  kLearned,  // a table, added to the embedding
  kTurned,   // rotary
  kSlopes    // ALiBi: scores fall with the distance, in each head at a speed of its own
};

// How a block adds what attention and MLP say of x.
enum class DecoderResidual : uint8_t {
  kInTurn,      // attention of a norm of x, then the MLP of a norm of the sum
  kBehind,      // the same, with the norms of the sums
  kTogether,    // both of one norm of x
  kSideBySide,  // both of x, each of its own norm
};

// How files have the products of queries, keys and values.
enum class QkvFiles : uint8_t {
  kApart,
  kOfHeads,    // one tensor: of each head of keys its queries, its key and its value
  kOfOneHead,  // the same where all queries share one key and value; split by the heads of queries
};

// Where params are: of the model, and, from `norm` on, of a block.
struct DecoderNames {
  std::string embedding;
  std::string embedding_norm = {};
  std::string places = {};
  std::string project_in = {};  // between narrow embeddings and blocks
  std::string project_out = {};
  std::string final_norm;
  std::string head = "lm_head";
  std::string blocks;  // "transformer.h"
  std::string norm;
  std::string mlp_norm = {};
  std::string q = {};
  std::string k = {};
  std::string v = {};
  std::string qkv = {};
  std::string out;
  std::string up;
  std::string down;
};

struct DecoderConfig {
  int64_t vocabulary = 0;
  int64_t positions = 0;  // longest sequence; 0: any
  int64_t width = 0;
  int64_t inner = 0;  // 0: 4 * width
  int64_t layers = 0;
  int64_t heads = 0;            // divides width
  int64_t kv_heads = 0;         // divides heads; 0: heads
  bool says_kv_heads = false;   // a job may say how many
  int64_t embedding_width = 0;  // 0: width
  double epsilon = 1e-5;
  double embedding_dropout = 0;
  bool drops_embedding = false;  // a job's rate of dropout is that of the embedding, too
  double residual_dropout = 0;
  double attention_dropout = 0;
  DecoderPlaces places = DecoderPlaces::kTurned;
  int64_t rows_in_front = 0;  // of a learned table, which no place has
  double rope_base = 10000;
  double rope_part = 1;  // the share of a head that turns
  int64_t turned = 0;    // the same in elements; 0: by rope_part
  RopeScaling rope_scaling = {};
  bool rope_neighbours = false;  // Rope::neighbours
  DecoderResidual residual = DecoderResidual::kInTurn;
  bool final_norm = true;
  bool embedding_norm = false;
  bool attention_bias = true;  // of q, k and v
  bool output_bias = true;     // of what heads say together
  bool mlp_bias = true;
  bool head_bias = false;
  bool tied = false;
  Activation activation = Activation::kGeluTanh;
  QkvFiles files = QkvFiles::kApart;
  DecoderNames names = {};
  int64_t document_separator = -1;  // as Gpt2Config
  int64_t ignore_index = -100;

  int64_t head_size() const { return width / heads; }
  int64_t kv_head_count() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t inner_width() const { return inner > 0 ? inner : 4 * width; }
  int64_t table_width() const { return embedding_width > 0 ? embedding_width : width; }
  Rope rope() const {
    const auto part = static_cast<int64_t>(rope_part * static_cast<double>(head_size()));
    return {rope_base, turned > 0 ? turned : part, rope_scaling, rope_neighbours};
  }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const DecoderConfig& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeDecoder(const DecoderConfig& config);

// Trained values by formula.
int64_t ParamCount(const DecoderConfig& config);

}  // namespace meshwright::models
