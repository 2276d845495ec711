// What the backward of each layer computes again, and how job files and reports write it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::planner {

// What the backward of a layer makes again instead of keeping it, each with what the one before
// does: what the forward gathered of blocks that are there (planner/partition.cc), norms and
// activation functions, all of the layer (planner/recompute.h).
enum class Recompute : uint8_t { kNone, kGathers, kSelective, kFull };

// Of a layer: -1 is none. `modes`: per layer; empty: kNone.
Recompute ModeOfLayer(const std::vector<Recompute>& modes, int layer);

// `mode` in the layers that `layers` lists ("0-5,11"; empty: all), kNone in the others. A range may
// name a mode of its own, which counts instead: what FormatRecompute writes by runs.
// Errors: kInvalidArgument with the form, or naming the layer that the model does not have.
Result<std::vector<Recompute>> RecomputeOfLayers(Recompute mode, const std::string& layers,
                                                 int layer_count);

// "none", "full", or by runs: "0-5 full, 6-11 none".
std::string FormatRecompute(const std::vector<Recompute>& modes);

// Decides in `spec` that layers recompute so. Empty: none does.
void PinRecompute(const std::vector<Recompute>& modes, ir::ParallelSpec& spec);

}  // namespace meshwright::planner
