#include "search/choose_memory.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.h"

namespace meshwright::search {
namespace {

struct PlacedKind {
  const char* name;
  std::string ir::ParallelSpec::* memory;
  size_t farthest;  // of kMemories
};

constexpr std::array<const char*, 3> kMemories = {"device", "host", "disk"};  // by distance
constexpr std::array<PlacedKind, 4> kPlacedKinds = {{
    {"optimizer", &ir::ParallelSpec::optimizer_memory, 2},
    {"weights", &ir::ParallelSpec::weights_memory, 2},
    {"gradients", &ir::ParallelSpec::gradients_memory, 1},
    {"activations", &ir::ParallelSpec::activations_memory, 1},
}};
constexpr const char* kOpenMemory = "auto";

// Decides the kinds from `kind` on, in each way.
void Decide(size_t kind, size_t distance, ir::ParallelSpec spec,
            std::vector<std::vector<ir::ParallelSpec>>& by_distance) {
  if (kind == kPlacedKinds.size()) {
    if (by_distance.size() <= distance) by_distance.resize(distance + 1);
    by_distance[distance].push_back(std::move(spec));
    return;
  }
  const PlacedKind& placed = kPlacedKinds[kind];
  if (spec.*placed.memory != kOpenMemory) {
    Decide(kind + 1, distance, std::move(spec), by_distance);
    return;
  }
  for (size_t far = 0; far <= placed.farthest; ++far) {
    spec.*placed.memory = kMemories[far];
    Decide(kind + 1, distance + far, spec, by_distance);
  }
}

}  // namespace

bool LeavesMemoryOpen(const ir::ParallelSpec& parallel) {
  for (const PlacedKind& placed : kPlacedKinds) {
    if (parallel.*placed.memory == kOpenMemory) return true;
  }
  return false;
}

std::vector<std::vector<ir::ParallelSpec>> MemoryChoices(const ir::ParallelSpec& parallel) {
  std::vector<std::vector<ir::ParallelSpec>> by_distance;
  Decide(0, 0, parallel, by_distance);
  MW_CHECK(!by_distance.empty() && by_distance.front().size() == 1)
      << "nothing is moved in more than one way";
  return by_distance;
}

std::string MemoryText(const ir::ParallelSpec& asked, const ir::ParallelSpec& chosen) {
  std::string text;
  for (const PlacedKind& placed : kPlacedKinds) {
    if (asked.*placed.memory != kOpenMemory || chosen.*placed.memory == kMemories[0]) continue;
    const bool disk = chosen.*placed.memory == kMemories[2];
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", placed.name,
                        disk ? "on the disk" : "in the memory of the host");
  }
  return text.empty() ? "all on the device" : text;
}

}  // namespace meshwright::search
