// Degrees of parallelism: resolves "auto" and rejects what does not fit, saying what would.
//
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

// data auto: the devices that tensor x pipeline leave over, reduced until the batch divides.
// microbatches auto: 1 without a pipeline, else the largest divisor of the rows per data shard that
// is at most 2 x pipeline. Errors: kInvalidArgument naming the degree, the number it must divide
// and the values that would fit.
Result<Layout> ResolveLayout(const ir::JobRequest& job, int64_t device_count, int64_t layer_count);

// What contradicts itself whatever the cluster is: meshes and grids beside degrees, parts that are
// not the model's layers, layers that it does not have. Errors: kInvalidArgument naming both.
Status CheckPins(const ir::ParallelSpec& pins, int64_t layer_count);

// What to tell the user when "auto" leaves devices without work: how many work, and a batch or
// degrees that would use all. "" when all work or the user chose the number.
std::string IdleDevicesNote(const ir::JobRequest& job, const Layout& layout, int64_t device_count);

// "2x2": the sizes of the axes of a tensor group, at most 65536 devices in all. Errors:
// kInvalidArgument naming the size.
Result<std::vector<int64_t>> ParseTensorAxes(const std::string& text);

// Decides in `spec` what the layout's degrees are, and its microbatches, schedule, chunks, sequence
// parallelism and ZeRO. Layers of parts, recomputation and shardings stay as they are.
void PinDegrees(const Layout& layout, ir::ParallelSpec& spec);

// A kind of what a device holds, and the pin that says in which memory it is.
struct MemoryPin {
  const char* kind;  // the pin's key is parallelism.KIND_memory
  std::string ir::ParallelSpec::*memory;
  bool may_lie_on_disk;
};
// From what costs least to move.
inline constexpr std::array<MemoryPin, 4> kMemoryPins = {{
    {"optimizer", &ir::ParallelSpec::optimizer_memory, true},
    {"weights", &ir::ParallelSpec::weights_memory, true},
    {"gradients", &ir::ParallelSpec::gradients_memory, false},
    {"activations", &ir::ParallelSpec::activations_memory, false},
}};

// "1, 2, 4": the divisors of n up to `limit`.
std::string DivisorList(int64_t n, int64_t limit);

}  // namespace meshwright::planner
