// What becomes of a file's weights that its owner may not expect, in words for people.
//
// Thread rule: a pure function.
#pragma once

#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace meshwright::formats {

// Tensors of the graph's params that the file lacks, which are drawn anew, and numbers that are
// rounded to a narrower type. REQUIRES that CheckWeights is OK.
std::vector<std::string> NotesOfWeights(const SafetensorsFile& file, const ir::Graph& graph);

}  // namespace meshwright::formats
