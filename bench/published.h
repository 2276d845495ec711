// Layouts that others ran, or that ran out of memory there: does the planner agree?
//
// A case is a published model with its published degrees, microbatch and schedule on its published
// cards. The plan is made, nothing runs. Beside its memory stands a closed form: bytes of weights,
// gradients and optimizer state per parameter as the publication's software keeps them, and bytes
// that the backward needs of a layer.
//
// Thread rule: the caller's thread. Source: the cases are of Korthikanti et al., "Reducing
// activation recomputation in large transformer models", MLSys'23, table 3; Llama team, "The Llama
// 3 herd of models", arXiv 2407.21783, table 4; Hagemann et al., "Efficient parallelization layouts
// for large-scale distributed model training", 2023, and the tables of all runs that they published
// with it. The closed form of activations is Korthikanti's, equations 2 to 4.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meshwright::bench {

struct PublishedModel {
  bool gated = false;  // a LLaMA: SwiGLU, no dropout, an own head; else a GPT with dropout
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // a GPT's: as heads
  int64_t hidden = 0;    // of the feed-forward net
  int64_t vocabulary = 0;
};

struct PublishedLayout {
  std::string_view name;
  const PublishedModel* model = nullptr;
  std::string_view card;  // a known profile
  int64_t sequence = 0;
  int64_t batch = 0;
  int64_t data = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t rows = 1;  // of a microbatch
  int64_t zero = 0;
  int64_t gradient_bytes = 4;  // per parameter, as their software keeps them
  bool ran = true;             // else it ran out of memory
};

std::span<const PublishedLayout> PublishedLayouts();

// Of the fullest stage.
struct PublishedBytes {
  double state = 0;        // weights, gradients, optimizer
  double activations = 0;  // of the microbatches in flight, and logits where the head is there
  double total() const { return state + activations; }
};
// As their software needs it: 2 bytes a weight, gradient_bytes, 12 for the optimizer and its copy
// of the weight, split as ZeRO's stage says; and per layer and element of a token
//   34 / tensor                         of a GPT (16 bits, with masks of dropout)
//   (12 + 4 kv_heads / heads + 6 hidden / width) / tensor   the same list of a LLaMA
// without attention's scores, which no kernel keeps any more. In flight is 1F1B's first stage.
PublishedBytes ClosedForm(const PublishedLayout& layout);

struct PublishedResult {
  std::string layout;       // of the plan; empty: refused
  std::string refusal;      // why
  double plan_bytes = 0;    // of the fullest device
  double usable_bytes = 0;  // of a card
  double plan_s = 0;
};
// Plans the case, with the backward making norms and activation functions again as their fused
// kernels do. Errors: as config::LoadJobConfig and search::FindLayout, but a refusal for memory.
Result<PublishedResult> PlanPublished(const PublishedLayout& layout);

// One line of JSON. "met": it ran there and the plan fits the card within 1.1 of the closed form,
// or it ran out of memory there and is refused.
std::string FormatPublished(const PublishedLayout& layout, const PublishedResult& result);
bool IsMet(const PublishedLayout& layout, const PublishedResult& result);

}  // namespace meshwright::bench
