#include "checkpoint/assign.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "checkpoint/cover.h"
#include "checkpoint/digest.h"

namespace meshwright::checkpoint {
namespace {

uint64_t Hash(const std::string& text) { return DigestOf(std::string_view(text)).low; }

using Holders = std::vector<size_t>;                                    // devices
using BoxesOfStage = std::map<std::pair<ir::Dims, ir::Dims>, Holders>;  // by offset and size
struct HeldTensor {
  std::map<StageIndex, BoxesOfStage> stages;
  int64_t elements = 0;
  int64_t element_bytes = 0;
};

// Of one of the stages that have all of the tensor; where none has, stages share its boxes.
BoxesOfStage BoxesOf(const std::string& name, const HeldTensor& tensor) {
  std::vector<const BoxesOfStage*> whole;
  BoxesOfStage shared;
  for (const auto& [stage, boxes] : tensor.stages) {
    int64_t elements = 0;
    for (const auto& [place, holders] : boxes) {
      elements += Volume({place.first, place.second});
      Holders& all = shared[place];
      all.insert(all.end(), holders.begin(), holders.end());
    }
    if (elements == tensor.elements) whole.push_back(&boxes);
  }
  if (!whole.empty()) return *whole[Hash(name) % whole.size()];
  for (auto& [place, holders] : shared) std::sort(holders.begin(), holders.end());
  return shared;
}

}  // namespace

std::vector<StateBox> StateBoxes(const std::vector<ir::Program>& programs) {
  std::map<std::string, HeldTensor> tensors;
  for (size_t device = 0; device < programs.size(); ++device) {
    for (const ir::Slot& slot : programs[device].slots) {
      if (!slot.persistent) continue;
      const ir::Box box = Explicit(slot.box, slot.global_dims);
      if (IsEmpty(box)) continue;
      HeldTensor& tensor = tensors[slot.name];
      tensor.stages[programs[device].stage][{box.offset, box.size}].push_back(device);
      tensor.elements = slot.global_dims.empty()
                            ? slot.type.elements()
                            : ir::TensorType{slot.type.dtype, slot.global_dims}.elements();
      tensor.element_bytes = ir::DTypeBytes(slot.type.dtype);
    }
  }
  std::vector<StateBox> boxes;
  for (const auto& [name, tensor] : tensors) {
    for (const auto& [place, holders] : BoxesOf(name, tensor)) {
      const ir::Box box{place.first, place.second};
      boxes.push_back({name, name + ToText(box), Volume(box) * tensor.element_bytes, holders});
    }
  }
  return boxes;
}

std::vector<std::vector<std::string>> AssignBoxes(const std::vector<ir::Program>& programs) {
  std::vector<std::vector<std::string>> names(programs.size());
  for (const StateBox& box : StateBoxes(programs)) {
    names[box.holders[Hash(box.key) % box.holders.size()]].push_back(box.tensor);
  }
  return names;
}

namespace {

// Workers in the order in which they are asked to keep a box.
std::vector<std::string> InOrderFor(const std::string& key, const std::set<std::string>& workers) {
  std::vector<std::pair<uint64_t, std::string>> hashed;
  for (const std::string& worker : workers) hashed.emplace_back(Hash(key + "/" + worker), worker);
  std::sort(hashed.begin(), hashed.end());
  std::vector<std::string> ordered;
  for (auto& [hash, worker] : hashed) ordered.push_back(std::move(worker));
  return ordered;
}

}  // namespace

SnapshotPlan PlanSnapshots(const std::vector<StateBox>& boxes,
                           const std::vector<std::string>& worker_of, int64_t copies,
                           const std::set<std::string>& keepers) {
  SnapshotPlan plan;
  plan.slots.resize(worker_of.size());
  const std::set<std::string> all(worker_of.begin(), worker_of.end());
  for (const StateBox& box : boxes) {
    std::map<std::string, Holders> devices;
    for (const size_t device : box.holders) devices[worker_of[device]].push_back(device);
    std::set<std::string> holding;
    for (const auto& [worker, of_worker] : devices) holding.insert(worker);
    auto wanted = static_cast<size_t>(1 + copies);
    const std::vector<std::string> first = InOrderFor(box.key, holding);
    for (const std::string& worker : first) {
      if (wanted == 0) break;
      --wanted;
      const Holders& of_worker = devices.at(worker);
      plan.slots[of_worker[Hash(box.key) % of_worker.size()]].push_back(box.tensor);
    }
    std::vector<std::string> others = InOrderFor(box.key, all);
    const std::vector<std::string> beside = InOrderFor(box.key, keepers);
    others.insert(others.end(), beside.begin(), beside.end());
    for (const std::string& worker : others) {
      if (wanted == 0) break;
      if (holding.contains(worker)) continue;
      --wanted;
      plan.copies.push_back({box.key, first.front(), worker});
    }
  }
  return plan;
}

}  // namespace meshwright::checkpoint
