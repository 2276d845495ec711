#include "models/rope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "models/hf_config.h"
#include "models/hf_writer.h"

namespace meshwright::models {
namespace {

struct RopeKindName {
  const char* name;
  RopeKind kind;
};
constexpr RopeKindName kRopeKinds[] = {
    {"default", RopeKind::kPlain},     {"linear", RopeKind::kLinear},
    {"dynamic", RopeKind::kDynamic},   {"yarn", RopeKind::kYarn},
    {"longrope", RopeKind::kLongRope}, {"llama3", RopeKind::kLlama3},
    {"su", RopeKind::kLongRope},  // of Phi-3's first files
};

const char* NameOf(RopeKind kind) {
  for (const RopeKindName& row : kRopeKinds) {
    if (row.kind == kind) return row.name;
  }
  return "default";
}

double Turns(double frequency, double positions) {
  return positions * frequency / (2 * std::numbers::pi);
}

// Pairs that turn often keep their speed, slow ones are slowed down, and between them is a ramp.
double Llama3Frequency(const RopeScaling& scaling, double plain) {
  const double turns = Turns(plain, static_cast<double>(scaling.original));
  if (turns < scaling.low) return plain / scaling.factor;
  if (turns > scaling.high) return plain;
  const double kept = (turns - scaling.low) / (scaling.high - scaling.low);
  return (1 - kept) * plain / scaling.factor + kept * plain;
}

struct YarnRamp {
  double low = 0;
  double high = 0;
};

// The pairs between which the ramp is: those that make `fast` and `slow` turns.
YarnRamp RampOf(const Rope& rope) {
  const auto turned = static_cast<double>(rope.turned);
  const auto original = static_cast<double>(rope.scaling.original);
  const auto pair_of = [&](double turns) {
    return turned * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.base));
  };
  YarnRamp ramp{pair_of(rope.scaling.fast), pair_of(rope.scaling.slow)};
  if (rope.scaling.whole) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, turned - 1)};
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

// The base of a longer sequence than the model was made for.
double DynamicBase(const Rope& rope, int64_t tokens) {
  const auto made_for = static_cast<double>(rope.scaling.original);
  const double length = std::max(static_cast<double>(tokens), made_for);
  const double factor = rope.scaling.factor;
  const auto turned = static_cast<double>(rope.turned);
  return rope.base * std::pow(factor * length / made_for - (factor - 1), turned / (turned - 2));
}

}  // namespace

std::vector<double> RopeFrequencies(const Rope& rope, int64_t tokens) {
  const RopeScaling& scaling = rope.scaling;
  const double base = scaling.kind == RopeKind::kDynamic ? DynamicBase(rope, tokens) : rope.base;
  const std::vector<double>& factors =
      tokens > scaling.original ? scaling.long_factors : scaling.short_factors;
  const YarnRamp ramp = scaling.kind == RopeKind::kYarn ? RampOf(rope) : YarnRamp();
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rope.turned / 2; ++i) {
    const auto place = static_cast<double>(i);
    const double plain = std::pow(base, -2 * place / static_cast<double>(rope.turned));
    double frequency = plain;
    if (scaling.kind == RopeKind::kLinear) frequency = plain / scaling.factor;
    if (scaling.kind == RopeKind::kLlama3) frequency = Llama3Frequency(scaling, plain);
    if (scaling.kind == RopeKind::kLongRope) frequency = plain / factors[static_cast<size_t>(i)];
    if (scaling.kind == RopeKind::kYarn) {
      const double slowed = std::clamp((place - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
      frequency = plain / scaling.factor * slowed + plain * (1 - slowed);
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

ValueId Turn(client::Builder& builder, ValueId x, const Rope& rope) {
  const client::Dims dims = builder.dims(x);
  if (dims.size() != 4) return x;  // after an error
  const bool part = rope.turned < dims[3];
  ValueId turning = part ? builder.Slice(x, 3, 0, rope.turned) : x;
  if (rope.neighbours) {
    const client::Dims pairs = {dims[0], dims[1], dims[2], rope.turned / 2, 2};
    turning = builder.Transpose(builder.Reshape(turning, pairs), {0, 1, 2, 4, 3});
    turning = builder.Reshape(turning, {dims[0], dims[1], dims[2], rope.turned});
  }
  const RopeScaling& scaling = rope.scaling;
  // Over pages a step has few tokens of long texts; all steps turn by one length.
  const int64_t longest = builder.pages() ? builder.pages()->shape.positions : dims[1];
  ValueId turned = scaling.kind == RopeKind::kPlain
                       ? builder.Rotary(turning, rope.base)
                       : builder.Rotary(turning, RopeFrequencies(rope, longest));
  if (scaling.amplitude != 1) turned = builder.Scale(turned, scaling.amplitude);
  if (!part) return turned;
  return builder.Concat({turned, builder.Slice(x, 3, rope.turned, dims[3] - rope.turned)}, 3);
}

namespace {

// 0.1 mscale ln(factor) + 1.
double YarnAmplitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

double ScoreGrowth(const RopeScaling& scaling) {
  if (scaling.kind == RopeKind::kPlain || scaling.mscale_all == 0) return 1;
  const double amplitude = YarnAmplitude(scaling.factor, scaling.mscale_all);
  return amplitude * amplitude;
}

namespace {

Status ReadYarn(const HfConfig& json, const std::string& at, RopeScaling& scaling) {
  double mscale = 0;
  MW_TRY(json.Read(at + "mscale", mscale));
  MW_TRY(json.Read(at + "mscale_all_dim", scaling.mscale_all));
  const double mscale_all = scaling.mscale_all;
  scaling.amplitude = mscale != 0 && mscale_all != 0 ? YarnAmplitude(scaling.factor, mscale) /
                                                           YarnAmplitude(scaling.factor, mscale_all)
                                                     : YarnAmplitude(scaling.factor, 1);
  MW_TRY(json.Read(at + "beta_fast", scaling.fast));
  MW_TRY(json.Read(at + "beta_slow", scaling.slow));
  return json.Read(at + "truncate", scaling.whole);
}

Status ReadLongRope(const HfConfig& json, const std::string& at, RopeScaling& scaling) {
  for (const char* key : {"short_factor", "long_factor"}) {
    MW_TRY(json.RequireKey(at + key));
  }
  MW_TRY(json.Read(at + "short_factor", scaling.short_factors));
  MW_TRY(json.Read(at + "long_factor", scaling.long_factors));
  const auto original = static_cast<double>(scaling.original);
  scaling.amplitude =
      scaling.factor <= 1 ? 1 : std::sqrt(1 + std::log(scaling.factor) / std::log(original));
  return OkStatus();
}

Result<RopeKind> ReadKind(const HfConfig& json, const std::string& key) {
  std::string name = "default";
  MW_TRY(json.Read(key + ".type", name));
  MW_TRY(json.Read(key + ".rope_type", name));
  std::vector<std::string> known;
  for (const RopeKindName& row : kRopeKinds) {
    if (name == row.name) return row.kind;
    known.emplace_back(row.name);
  }
  return Fail(
      Unimplemented(fmt::format("config.json: {}.rope_type '{}' is not supported; known: {}", key,
                                name, fmt::join(known, ", "))));
}

}  // namespace

Status ReadRopeScaling(const HfConfig& json, const std::string& key, int64_t positions,
                       RopeScaling& scaling) {
  if (!json.Has(key)) return OkStatus();
  const std::string at = key + ".";
  if (!json.Has(at + "rope_type") && !json.Has(at + "type") && json.Has(at + "factor")) {
    return Unimplemented(fmt::format(
        "config.json: {} has a factor and no rope_type; write one, or null for none", key));
  }
  MW_ASSIGN_OR_RETURN(scaling.kind, ReadKind(json, key));
  if (scaling.kind == RopeKind::kPlain) return OkStatus();
  if (scaling.original == 0) scaling.original = positions;
  MW_TRY(json.Read(at + "original_max_position_embeddings", scaling.original));
  MW_TRY(json.Read("original_max_position_embeddings", scaling.original));
  // transformers stretches dynamic ones from where max_position_embeddings ends.
  if (scaling.kind == RopeKind::kDynamic) scaling.original = positions;
  if (scaling.kind != RopeKind::kLinear && scaling.original < 1) {
    return InvalidArgument(fmt::format(
        "config.json: {} needs max_position_embeddings, or original_max_position_embeddings", key));
  }
  if (scaling.kind == RopeKind::kLongRope || scaling.kind == RopeKind::kYarn) {
    scaling.factor = static_cast<double>(positions) /
                     static_cast<double>(std::max<int64_t>(scaling.original, 1));
  } else {
    MW_TRY(json.RequireKey(at + "factor"));
  }
  MW_TRY(json.Read(at + "factor", scaling.factor));
  if (scaling.kind == RopeKind::kLlama3) {
    for (const char* part : {"low_freq_factor", "high_freq_factor"}) {
      MW_TRY(json.RequireKey(at + part));
    }
    MW_TRY(json.Read(at + "low_freq_factor", scaling.low));
    MW_TRY(json.Read(at + "high_freq_factor", scaling.high));
  }
  if (scaling.kind == RopeKind::kYarn) MW_TRY(ReadYarn(json, at, scaling));
  if (scaling.kind == RopeKind::kLongRope) MW_TRY(ReadLongRope(json, at, scaling));
  const bool has_amplitude = scaling.kind == RopeKind::kYarn || scaling.kind == RopeKind::kLongRope;
  return has_amplitude ? json.Read(at + "attention_factor", scaling.amplitude) : OkStatus();
}

void WriteRope(const Rope& rope, const std::string& key, HfWriter& json) {
  const RopeScaling& scaling = rope.scaling;
  const std::string at = key + ".";
  json.Clear(key);
  json.Set(at + "rope_theta", rope.base);
  json.Set(at + "rope_type", NameOf(scaling.kind));
  if (scaling.kind == RopeKind::kPlain) return;
  json.Set(at + "factor", scaling.factor);
  if (scaling.kind != RopeKind::kLinear && scaling.kind != RopeKind::kDynamic) {
    json.Set(at + "original_max_position_embeddings", scaling.original);
  }
  if (scaling.kind == RopeKind::kLlama3) {
    json.Set(at + "low_freq_factor", scaling.low);
    json.Set(at + "high_freq_factor", scaling.high);
    return;
  }
  if (scaling.kind == RopeKind::kYarn) {
    json.Set(at + "beta_fast", scaling.fast);
    json.Set(at + "beta_slow", scaling.slow);
    json.Set(at + "truncate", scaling.whole);
    if (scaling.mscale_all != 0) json.Set(at + "mscale_all_dim", scaling.mscale_all);
  } else if (scaling.kind == RopeKind::kLongRope) {
    json.Set(at + "short_factor", scaling.short_factors);
    json.Set(at + "long_factor", scaling.long_factors);
  } else {
    return;
  }
  json.Set(at + "attention_factor", scaling.amplitude);
}

Status Validate(const Rope& rope) {
  MW_TRY(CheckAboveZero("rope_theta", rope.base, 1e12));
  const RopeScaling& scaling = rope.scaling;
  if (rope.turned < 2 || rope.turned % 2 != 0) {
    return InvalidArgument(fmt::format(
        "model: {} elements of a head turn with their positions; pairs need an even number",
        rope.turned));
  }
  if (scaling.kind == RopeKind::kDynamic && rope.turned < 4) {
    return InvalidArgument("model: dynamic rope needs heads of which at least 4 elements turn");
  }
  MW_TRY(CheckAboveZero("rope factor", scaling.factor, 1e6));
  MW_TRY(CheckAboveZero("rope attention_factor", scaling.amplitude, 1e6));
  if (scaling.kind == RopeKind::kLlama3 && !(scaling.low < scaling.high)) {
    return InvalidArgument(
        fmt::format("model: rope low_freq_factor {} is not below high_freq_factor {}", scaling.low,
                    scaling.high));
  }
  if (scaling.kind != RopeKind::kLongRope) return OkStatus();
  for (const auto& [name, factors] : {std::pair("short_factor", &scaling.short_factors),
                                      std::pair("long_factor", &scaling.long_factors)}) {
    if (static_cast<int64_t>(factors->size()) != rope.turned / 2) {
      return InvalidArgument(fmt::format("model: rope {} has {} numbers for {} pairs of a head",
                                         name, factors->size(), rope.turned / 2));
    }
    for (const double factor : *factors) MW_TRY(CheckAboveZero(name, factor, 1e9));
  }
  return OkStatus();
}

}  // namespace meshwright::models
