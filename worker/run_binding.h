// RunBinding: where every value of an executable lives during one RUN, without addresses.
//
// Inputs live in their slots and temporaries in the workspace. An output is computed straight into
// its slot unless the slot is also an input (donated) whose old value is still needed: then it is
// computed into scratch and copied at the end. A node that needs the old value may itself write
// over it where its kernel works in place (adamw, add, ...; ops/kernel.h). A value that an op
// accumulates into is where its sum will be (ir::InPlaceChains). Outputs that are inputs, and
// repeated outputs, are copies.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::worker {

struct Place {
  enum class Area : uint8_t { kInput, kOutput, kWorkspace, kScratch };
  Area area = Area::kWorkspace;
  int64_t position = 0;  // input or output index; else a byte offset
  friend bool operator==(const Place&, const Place&) = default;
};

struct PlannedCopy {
  Place from;
  Place to;
  int64_t bytes = 0;
  friend bool operator==(const PlannedCopy&, const PlannedCopy&) = default;
};

struct RunBinding {
  std::vector<Place> values;        // per value of the graph
  std::vector<PlannedCopy> copies;  // after the last node, in this order
  int64_t scratch_bytes = 0;
};

// inputs, outputs: slots of the RUN, as many as the graph has `input` nodes and outputs; output
// slots are distinct.
RunBinding BindRun(const ir::Graph& graph, const ir::WorkspacePlan& workspace,
                   std::span<const SlotId> inputs, std::span<const SlotId> outputs);

}  // namespace meshwright::worker
