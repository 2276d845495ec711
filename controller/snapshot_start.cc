#include "controller/snapshot_start.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/cover.h"

namespace meshwright::controller {
namespace {

using checkpoint::StoredBox;

// The slots of one snapshot.
using Slots = std::vector<std::pair<const SnapshotHolder*, const proto::HeldSlot*>>;

// A box that is there already gets another holder. Errors: kDataLoss: with other digests.
Status AddBox(const StoredBox& box, size_t file, SnapshotStart::Tensor& tensor) {
  std::vector<StoredBox>& boxes = tensor.stored.boxes;
  const auto same = std::find_if(boxes.begin(), boxes.end(),
                                 [&](const StoredBox& other) { return other.box == box.box; });
  const auto index = static_cast<size_t>(same - boxes.begin());
  if (same == boxes.end()) {
    boxes.push_back(box);
    boxes.back().file = static_cast<int32_t>(file);
    tensor.holders.emplace_back();
  } else if (same->digests != box.digests) {
    return DataLoss(fmt::format("box {} is not the same", checkpoint::ToText(box.box)));
  }
  tensor.holders[index].push_back({file, box.begin_bytes});
  return OkStatus();
}

Status AddSlot(const SnapshotHolder& holder, const proto::HeldSlot& slot, SnapshotStart& start) {
  MW_ASSIGN_OR_RETURN(const checkpoint::Shards shards, checkpoint::ParseShards(slot.shards));
  if (shards.files.size() != 1) {
    return DataLoss(fmt::format("slot '{}' is {} files", slot.slot, shards.files.size()));
  }
  const size_t file = start.files.size();
  const std::string name = fmt::format("{}/{}/{}", holder.worker, slot.mesh_gen.value(), slot.slot);
  start.files.push_back({holder.worker,
                         {holder.address, holder.process_id, slot.mesh_gen, slot.secret, slot.slot},
                         {name, shards.files.front().bytes}});
  for (const auto& [tensor, stored] : shards.tensors) {
    const auto [it, added] = start.tensors.try_emplace(tensor);
    if (added) {
      it->second.stored.type = stored.type;
      it->second.stored.kind = stored.kind;
    } else if (it->second.stored.type != stored.type || it->second.stored.kind != stored.kind) {
      return DataLoss(fmt::format("tensor '{}' has two types", tensor));
    }
    for (const StoredBox& box : stored.boxes) {
      MW_TRY(AddBox(box, file, it->second)
                 .WithContext(fmt::format("worker '{}', tensor '{}'", holder.worker, tensor)));
    }
  }
  return OkStatus();
}

// Errors: kDataLoss: they are no cover of all tensors, or do not fit together.
Result<SnapshotStart> Assemble(const SnapshotId& id, const Slots& slots,
                               const std::set<std::string>& tensors) {
  SnapshotStart start;
  start.id = id;
  for (const auto& [holder, slot] : slots) MW_TRY(AddSlot(*holder, *slot, start));
  for (const std::string& name : tensors) {
    if (!start.tensors.contains(name)) {
      return Fail(DataLoss(fmt::format("nobody holds tensor '{}'", name)));
    }
  }
  checkpoint::Manifest manifest;
  manifest.step = id.step;
  for (const SnapshotFile& file : start.files) manifest.files.push_back(file.file);
  for (const auto& [name, tensor] : start.tensors) manifest.tensors[name] = tensor.stored;
  MW_TRY(checkpoint::CheckManifest(manifest));
  return start;
}

}  // namespace

SnapshotChoice ChooseSnapshot(const std::vector<SnapshotHolder>& holders,
                              const std::set<std::string>& tensors,
                              const std::function<bool(const SnapshotId&)>& allowed) {
  // Nobody knows what would be whole.
  if (tensors.empty()) return {};
  std::map<SnapshotId, Slots, std::greater<>> snapshots;
  for (const SnapshotHolder& holder : holders) {
    for (const proto::HeldSlot& slot : holder.slots) {
      snapshots[{slot.step, slot.mesh_gen}].emplace_back(&holder, &slot);
    }
  }
  SnapshotChoice choice;
  for (const auto& [id, slots] : snapshots) {
    if (!allowed(id)) continue;
    Result<SnapshotStart> start = Assemble(id, slots, tensors);
    if (start.has_value()) {
      choice.start = *std::move(start);
      return choice;
    }
    choice.notes.push_back(
        fmt::format("the snapshot of step {} is not whole: {}", id.step, start.error().message()));
  }
  return choice;
}

SnapshotFiles FilesFor(const SnapshotStart& start, const std::string& worker) {
  SnapshotFiles files;
  checkpoint::Manifest manifest;
  manifest.step = start.id.step;
  std::map<size_t, int32_t> numbers;  // of the files that are used
  const auto number_of = [&](size_t file) {
    const auto [it, added] = numbers.emplace(file, static_cast<int32_t>(manifest.files.size()));
    if (added) {
      manifest.files.push_back(start.files[file].file);
      files.sources.push_back(start.files[file].source);
    }
    return it->second;
  };
  for (const auto& [name, tensor] : start.tensors) {
    checkpoint::StoredTensor& stored = manifest.tensors[name];
    stored = tensor.stored;
    for (size_t i = 0; i < stored.boxes.size(); ++i) {
      const auto& holders = tensor.holders[i];
      const std::string key = name + checkpoint::ToText(stored.boxes[i].box) + "/" + worker;
      auto holder = std::find_if(holders.begin(), holders.end(), [&](const auto& each) {
        return start.files[each.file].worker == worker;
      });
      if (holder == holders.end()) {
        const uint64_t hash = checkpoint::DigestOf(std::string_view(key)).low;
        holder = holders.begin() + static_cast<ptrdiff_t>(hash % holders.size());
      }
      stored.boxes[i].file = number_of(holder->file);
      stored.boxes[i].begin_bytes = holder->begin_bytes;
    }
  }
  files.manifest = checkpoint::FormatManifest(manifest);
  return files;
}

}  // namespace meshwright::controller
