// Rotary positions of Hugging Face's models: how far pairs turn from one position to the next, and
// how models stretch that to longer texts than they were made for.
//
// A head has `turned` elements that turn, half-split into pairs (i, i + turned/2). Stretching
// depends on the length of the sequence for two kinds (dynamic, longrope): a graph has one length.
//
// Thread rule: values. Sources: Su et al. 2021; linear: Chen et al. 2023; yarn: Peng et al. 2023;
// longrope: Ding et al. 2024; llama3: Llama team 2024.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/layers.h"

namespace meshwright::models {

class HfConfig;
class HfWriter;

enum class RopeKind : uint8_t { kPlain, kLinear, kDynamic, kYarn, kLongRope, kLlama3 };

struct RopeScaling {
  RopeKind kind = RopeKind::kPlain;
  double factor = 1;     // by how much texts are longer
  int64_t original = 0;  // positions that the model was made for, before it was stretched
  double amplitude = 1;  // of what turns: yarn and longrope
  double low = 1;        // llama3: turns in `original` positions below which a pair is slowed down
  double high = 4;       // and above which it is not
  double fast = 32;      // the same of yarn
  double slow = 1;
  bool whole = true;      // yarn: pairs are told apart by whole indices
  double mscale_all = 0;  // yarn: by how much scores of latent attention grow; see ScoreGrowth
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};
};

struct Rope {
  double base = 10000;
  int64_t turned = 0;  // elements of a head, from the first on; even
  RopeScaling scaling = {};
  // Neighbours are a pair, not (i, i + turned/2). What turns comes out in another order, which
  // products of queries and keys do not see: first elements of the pairs, then the second ones.
  bool neighbours = false;
};

// Radians from a position to the next, of each pair, in a sequence of `tokens`.
std::vector<double> RopeFrequencies(const Rope& rope, int64_t tokens);

// x [b, s, h, e] by its places in the sequence.
ValueId Turn(client::Builder& builder, ValueId x, const Rope& rope);

// By how much the scores of latent attention grow where texts are stretched. Source: DeepSeek-V2
// 2024.
double ScoreGrowth(const RopeScaling& scaling);

// What a config.json says in the object `key` ("rope_parameters", or the older "rope_scaling"),
// which may be absent; `positions` is its max_position_embeddings, for which the model was made
// where neither the file nor `scaling.original` says otherwise. Errors: kInvalidArgument naming a
// key that the kind needs, kUnimplemented naming another kind.
Status ReadRopeScaling(const HfConfig& json, const std::string& key, int64_t positions,
                       RopeScaling& scaling);
// As Hugging Face's rope_parameters in the object `key`.
void WriteRope(const Rope& rope, const std::string& key, HfWriter& json);

// Errors: kInvalidArgument naming what does not fit.
Status Validate(const Rope& rope);

}  // namespace meshwright::models
