// The weights that a finished job saved, and whether two jobs saved the same.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::testing {

using Weights = std::map<std::string, std::vector<double>>;

// Every f32 or f64 tensor of a safetensors file. Errors: as ir::SafetensorsFile::Open.
Result<Weights> ReadWeights(const std::string& path);

// Fails the test where a name is missing or an entry differs by more than `tolerance` times the
// largest entry of its tensor. `layout` names the run in messages.
void ExpectWeightsNear(const Weights& expected, const Weights& actual, double tolerance,
                       const std::string& layout);

}  // namespace meshwright::testing
