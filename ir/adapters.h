// LoRA as a rewrite of a graph: y = x W becomes y + scale * (dropout(x) A) B, for every product of
// a weight W that a target names, whatever model the product is part of.
//
//   %3 = einsum "bsd,dthe->bsthe" (%x, %W)          A [d, r], B [r, t, h, e]
//   ->  %4 = einsum "bsd,dr->bsr"     (%x, %A)
//       %5 = einsum "bsr,rthe->bsthe" (%4, %B)
//       %6 = add (%3, scale(%5))
//
// A and B are params like any other. A has the dims of W that the product sums over, B those that
// it keeps, so either is split over devices as W is (attributes kBesideAttr and kBesideDimsAttr
// tell the planner). All other params become frozen, but for those of the modules to save.
//
// A starts uniform in +-1/sqrt(inputs), B at 0, as in PEFT. What a file of weights lacks of them is
// drawn (kDrawnAttr). Exported they have PEFT's names and shapes, A [r, in] and B [out, r], and A
// carries what PEFT's adapter_config.json says (formats/adapters.h).
//
// Thread rule: pure functions. Source: Hu et al., "LoRA", ICLR'22; Kalajdzievski, "rsLoRA", 2023;
// file names: PEFT 0.21.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

struct LoraSpec {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 16;
  bool rank_stabilized = false;  // scale alpha / sqrt(rank) instead of alpha / rank
  double dropout = 0;            // of the adapters' inputs
  // Modules by name, as PEFT matches a list: "q_proj" is every module whose name is that or ends
  // with ".q_proj". "all-linear" is every product of a weight but the head.
  std::vector<std::string> target_modules = {};
  std::vector<std::string> modules_to_save = {};  // trained as a whole, matched alike
  double scale() const;
  friend bool operator==(const LoraSpec&, const LoraSpec&) = default;
};

inline constexpr char kAllLinear[] = "all-linear";

// Attributes of params that an adapter is made of.
inline constexpr char kBesideAttr[] = "beside";           // str: the param that it is split like
inline constexpr char kBesideDimsAttr[] = "beside_dims";  // ints: that one's dim per dim, or -1
inline constexpr char kDrawnAttr[] = "drawn";             // int 1: a file of weights may lack it
inline constexpr char kSavedAttr[] = "saved";             // int 1: of a module to save
// Of an A, what PEFT's configuration says: reals, ints and strs.
inline constexpr char kLoraAlphaAttr[] = "lora_alpha";
inline constexpr char kLoraStabilizedAttr[] = "lora_rank_stabilized";
inline constexpr char kLoraDropoutAttr[] = "lora_dropout";
inline constexpr char kLoraTargetsAttr[] = "lora_targets";
inline constexpr char kLoraOfAttr[] = "lora_of";                     // str: the weight in files
inline constexpr char kLoraInputsFirstAttr[] = "lora_inputs_first";  // int 1: it lies as [in, out]

// A name without its last part: the module of "h.0.attn.c_attn.weight" is "h.0.attn.c_attn".
std::string ModuleOf(const std::string& param_name);

// The graph with adapters. The same for every graph of a model: names tell which belong together.
// Errors: kInvalidArgument: rank, alpha or dropout out of range, a target or a module to save that
// fits nothing (with the modules that there are), a target whose weight is no matrix of a product
// (an embedding, a norm, experts) or is used as something else too (a tied head).
Result<Graph> WithAdapters(const Graph& graph, const LoraSpec& spec);

}  // namespace meshwright::ir
