// What becomes of a file's weights that its owner may not expect, in words for people.
//
// Thread rule: a pure function.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace meshwright::formats {

// Tensors of the graph's params that the file lacks, which are drawn anew, tensors that the model
// has no place for, and numbers that are rounded to a narrower type. REQUIRES that CheckWeights is
// OK.
std::vector<std::string> NotesOfWeights(const SafetensorsFile& file, const ir::Graph& graph);

// Those that are not among the ones that were `read`, but for what a model computes itself.
std::vector<std::string> TensorsLeft(const SafetensorsFile& file,
                                     const std::set<std::string>& read);

}  // namespace meshwright::formats
