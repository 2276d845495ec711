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
// kAverages: the means of weights (ir/averages.h) in the place of those that have one; an error
// where the checkpoint has none.
enum class ExportedWeights : uint8_t { kOwn, kAverages };
Status ExportWeights(Reader& reader, const ir::Graph& model, const std::string& path,
                     std::optional<ir::DType> dtype = std::nullopt,
                     ExportedWeights which = ExportedWeights::kOwn);

// The same as a folder, which is made: model.safetensors, or where that is larger than
// `most_file_bytes` several files and model.safetensors.index.json, which says what is where.
// Errors: as above.
inline constexpr int64_t kMostExportBytes = int64_t{5} << 30;
Status ExportFolder(Reader& reader, const ir::Graph& model, const std::string& folder,
                    std::optional<ir::DType> dtype = std::nullopt,
                    int64_t most_file_bytes = kMostExportBytes,
                    ExportedWeights which = ExportedWeights::kOwn);

// The weights of a save that is not committed yet, as its folder hf/. temporary: where its files
// are. Errors: as above.
inline constexpr const char* kExportName = "hf";
Status ExportSave(const std::string& temporary, const Manifest& manifest, const ir::Graph& model,
                  ir::DType dtype);

// Floats of one type as floats of another one, rounded to nearest even. REQUIRES float types.
std::vector<std::byte> ConvertFloats(std::span<const std::byte> bytes, ir::DType from,
                                     ir::DType to);

}  // namespace meshwright::checkpoint
