// The state between a runtime's persistent slots and the rest of the world: weights as tiles of
// files, out at the end of a job and in at its start; any tensor as clients read and write it.
//
// Thread rule: the control thread of the runtime.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/safetensors.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "proto/messages.h"
#include "worker/data_feed.h"
#include "worker/link.h"
#include "worker/runtime.h"

namespace meshwright::worker {

// The persistent slots that local ranks hold: per rank, slot name -> slot.
using StateSlots = std::map<int, std::map<std::string, ir::Slot>>;
StateSlots CollectStateSlots(const std::vector<ir::Program>& programs);

// The named tiles. Errors: kNotFound naming rank and slot; the device's.
Result<std::vector<proto::TensorTile>> ReadTiles(const std::vector<proto::RankTiles>& ranks,
                                                 const StateSlots& slots, JobRuntime& runtime);

// Every local rank takes its block of each tensor. Errors: kInvalidArgument naming a tensor whose
// type is not that of the slot; the device's.
Status WriteTensors(const std::vector<proto::NamedTensor>& tensors, const StateSlots& slots,
                    JobRuntime& runtime);

// The file that weights start from, mapped: LoadWeights reads no more of it than the local tiles.
// Errors: those of data::FileSet (one in place is verified) and SafetensorsFile::Open.
Result<std::shared_ptr<const formats::SafetensorsFile>> OpenWeights(const FilePlaces& places,
                                                                    const ir::FileRef& file);

// Fills every weight of the local ranks, and every mean of one, with its tile of the file; what may
// be drawn stays as it is where the file lacks it.
// Errors: kNotFound, kInvalidArgument naming tensor, wanted and found shape.
Status LoadWeights(const formats::SafetensorsFile& file, const ir::Graph& loss,
                   const StateSlots& slots, JobRuntime& runtime);

// Of a tile: the controller holds one of every worker that sends.
inline constexpr int64_t kTileBytes = int64_t{4} << 20;

// Tiles of the named slots, one after the other, each of kTileBytes at most.
// Errors of the source: kNotFound naming rank and slot.
ControllerLink::TileSource MakeTileSource(MeshGeneration mesh_gen,
                                          const std::vector<proto::RankTiles>& ranks,
                                          const StateSlots& slots, JobRuntime& runtime);

}  // namespace meshwright::worker
