#include "checkpoint/assign.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "checkpoint/cover.h"
#include "checkpoint/digest.h"

namespace meshwright::checkpoint {
namespace {

uint64_t Hash(const std::string& text) { return DigestOf(std::string_view(text)).low; }

using Holders = std::vector<size_t>;                                    // devices
using BoxesOfStage = std::map<std::pair<ir::Dims, ir::Dims>, Holders>;  // by offset and size
using StagesOfTensor = std::map<StageIndex, BoxesOfStage>;

}  // namespace

std::vector<std::vector<std::string>> AssignBoxes(const std::vector<ir::Program>& programs) {
  std::map<std::string, StagesOfTensor> tensors;
  for (size_t device = 0; device < programs.size(); ++device) {
    for (const ir::Slot& slot : programs[device].slots) {
      if (!slot.persistent) continue;
      const ir::Box box = Explicit(slot.box, slot.global_dims);
      if (IsEmpty(box)) continue;
      tensors[slot.name][programs[device].stage][{box.offset, box.size}].push_back(device);
    }
  }
  std::vector<std::vector<std::string>> names(programs.size());
  for (const auto& [name, stages] : tensors) {
    const auto stage =
        std::next(stages.begin(), static_cast<ptrdiff_t>(Hash(name) % stages.size()));
    for (const auto& [place, holders] : stage->second) {
      const std::string key = name + ToText(ir::Box{place.first, place.second});
      names[holders[Hash(key) % holders.size()]].push_back(name);
    }
  }
  return names;
}

}  // namespace meshwright::checkpoint
