// Weights of a checkpoint as one safetensors file, under the names and in the layout in which the
// model's params are exported: what Hugging Face's readers take.
//
// Box by box: the memory is that of the largest box, whatever the size of the model. Thread rule:
// one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/reader.h"
#include "ir/dtype.h"
#include "ir/graph.h"

namespace meshwright::checkpoint {

// `model` has the params: the graph of the job's main program. dtype: of the weights that are
// floats; nothing: as they are stored. Errors: kDataLoss, as Reader; kInvalidArgument naming a
// param that the checkpoint has otherwise; those of SafetensorsWriter.
Status ExportWeights(Reader& reader, const ir::Graph& model, const std::string& path,
                     std::optional<ir::DType> dtype = std::nullopt);

// Floats of one type as floats of another one, rounded to nearest even. REQUIRES float types.
std::vector<std::byte> ConvertFloats(std::span<const std::byte> bytes, ir::DType from,
                                     ir::DType to);

}  // namespace meshwright::checkpoint
