#include "worker/snapshot_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/guard.h"
#include "base/log.h"
#include "worker/available_memory.h"
#include "worker/snapshot_files.h"

namespace meshwright::worker {
namespace {

// What the mesh's own devices wrote, "own/34", its digests, "digests/34", and copies of what other
// workers have, "of/WORKER/34"; "layout" is that of the own slots.
constexpr std::string_view kOwn = "own/";
constexpr std::string_view kDigests = "digests/";
constexpr std::string_view kLayoutSlot = "layout";
constexpr std::string_view kCopies = "of/";

// The number behind the prefix, if the slot has it.
std::optional<int64_t> StepOf(std::string_view slot, std::string_view prefix) {
  if (!slot.starts_with(prefix)) return std::nullopt;
  slot.remove_prefix(prefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(slot.data(), slot.data() + slot.size(), step);
  const bool whole = error == std::errc() && end == slot.data() + slot.size();
  return whole && step >= 0 ? std::optional(step) : std::nullopt;
}

// By which its peers dial this process.
uint64_t ProcessOf(const proto::LoadMesh& load) {
  for (const proto::RankPrograms& rank : load.ranks) {
    const auto index = static_cast<size_t>(rank.rank);
    if (index < load.members.size()) return load.members[index].process_id;
  }
  return 0;
}

}  // namespace

SnapshotStore::SnapshotStore(std::shared_ptr<collective::Listener> listener, int64_t grace_ms)
    : listener_(std::move(listener)), grace_ms_(grace_ms) {
  MW_CHECK(grace_ms >= 0) << "memory is kept for " << grace_ms << " ms";
}

SnapshotStore::~SnapshotStore() {
  thread_.Stop();
  // First the doors: nobody comes in any more.
  std::map<MeshGeneration, Entry> kept;
  {
    const MutexLock lock(mutex_);
    kept.swap(kept_);
  }
  kept.clear();
  servers_.Close();
}

void SnapshotStore::Keep(const proto::LoadMesh& load, UniqueFd memory) {
  MW_CHECK(load.mesh_gen.value() > 0) << "a mesh without a generation";
  auto kept = std::make_shared<Kept>();
  kept->job = load.job;
  kept->mesh_gen = load.mesh_gen;
  kept->name = {load.cluster_id, load.mesh_gen.value(), ProcessOf(load), load.secret};
  kept->memory = std::move(memory);
  MW_CHECK(kept->memory.valid()) << "mesh " << load.mesh_gen << " has no memory for snapshots";
  const MutexLock lock(mutex_);
  const auto [it, added] = kept_.emplace(load.mesh_gen, Entry{std::move(kept), nullptr});
  // Copies are read while the mesh runs. What goes wrong is said when somebody asks.
  if (added) (void)OpenDoor(it->second);
}

void SnapshotStore::Release(MeshGeneration mesh_gen) {
  {
    const MutexLock lock(mutex_);
    const auto it = kept_.find(mesh_gen);
    if (it == kept_.end()) return;
    if (Open(*it->second.kept) == nullptr) {
      kept_.erase(it);
      return;
    }
    it->second.kept->asked = false;
  }
  DropLater(mesh_gen);
}

void SnapshotStore::DropLater(MeshGeneration mesh_gen) {
  (void)thread_.PostAfter(grace_ms_, [this, mesh_gen] {
    std::vector<Entry> gone;
    {
      const MutexLock lock(mutex_);
      const auto it = kept_.find(mesh_gen);
      if (it == kept_.end()) return;
      if (!std::exchange(it->second.kept->asked, false)) {
        LogWarn(fmt::format("nobody has asked for the snapshots of mesh {}: they are dropped",
                            mesh_gen.value()));
        gone.push_back(std::move(it->second));
        kept_.erase(it);
      }
    }
    if (gone.empty()) return DropLater(mesh_gen);
    EndReaders(gone);
  });
}

void SnapshotStore::Drop(const proto::DropSnapshots& drop) {
  std::vector<Entry> gone;  // doors wait for the port
  {
    const MutexLock lock(mutex_);
    for (auto it = kept_.begin(); it != kept_.end();) {
      const bool drops = it->second.kept->job == drop.job && it->first < drop.before;
      if (drops) gone.push_back(std::move(it->second));
      it = drops ? kept_.erase(it) : std::next(it);
    }
  }
  EndReaders(gone);
}

proto::SnapshotsHeld SnapshotStore::Held(const proto::QuerySnapshots& query) {
  proto::SnapshotsHeld held{query.job, query.query, {}};
  const MutexLock lock(mutex_);
  for (auto& [generation, entry] : kept_) {
    const MeshGeneration gen = generation;
    Kept& kept = *entry.kept;
    const checkpoint::SnapshotArea* const area = kept.job == query.job ? Open(kept) : nullptr;
    const bool has_copies = kept.job == query.job && !kept.copies.empty();
    if (area == nullptr && !has_copies) continue;
    kept.asked = true;
    if (const Status opened = OpenDoor(entry); !opened.ok()) {
      LogWarn(fmt::format("the snapshots of mesh {} cannot be read: {}", gen.value(),
                          opened.message()));
      continue;
    }
    const auto add = [&](const checkpoint::SnapshotArea& of, const std::string& prefix) {
      for (const checkpoint::Snapshot& snapshot : of.Whole()) {
        const std::string slot = fmt::format("{}{}", prefix, snapshot.step);
        held.slots.push_back(
            {gen, snapshot.step, slot, kept.name.secret,
             checkpoint::FormatShards(checkpoint::ShardsOf(of.layout(), snapshot, slot))});
      }
    };
    if (area != nullptr) add(*area, std::string(kOwn));
    for (const auto& [worker, copier] : kept.copies) {
      if (copier->area() != nullptr) add(*copier->area(), fmt::format("{}{}/", kCopies, worker));
    }
  }
  return held;
}

Status SnapshotStore::OpenDoor(Entry& entry) {
  if (listener_ == nullptr || entry.door != nullptr) return OkStatus();
  const std::weak_ptr<Kept> weak = entry.kept;
  MW_ASSIGN_OR_RETURN(
      entry.door, collective::OpenDoor(
                      listener_, entry.kept->name, [this, weak](collective::Connection connection) {
                        const std::shared_ptr<Kept> kept = weak.lock();
                        if (kept == nullptr) return;
                        servers_.Serve(kept, std::move(connection),
                                       [this, of = kept.get()](const std::string& slot) {
                                         return Find(*of, slot);
                                       });
                      }));
  return OkStatus();
}

bool SnapshotStore::Handle(const proto::DownBody& body, const TellUp& tell) {
  if (const auto* query = std::get_if<proto::QuerySnapshots>(&body)) {
    tell(Held(*query));
  } else if (const auto* drop = std::get_if<proto::DropSnapshots>(&body)) {
    Drop(*drop);
  } else if (const auto* copy = std::get_if<proto::CopySnapshot>(&body)) {
    (void)thread_.Post([this, copy = *copy, tell] {
      const Status status = Copy(copy);
      tell(proto::SnapshotCopied{copy.mesh_gen, copy.step,
                                 proto::MakeError(proto::ErrorKind::kSaveFailed, status)});
    });
  } else {
    return false;
  }
  return true;
}

std::span<const std::byte> SnapshotStore::Find(Kept& kept, std::string_view slot) {
  const MutexLock lock(mutex_);
  const checkpoint::SnapshotArea* area = Open(kept);
  if (slot == kLayoutSlot) return std::as_bytes(std::span(kept.layout));
  if (const auto step = StepOf(slot, kDigests); step && area != nullptr) {
    const auto snapshot = area->OfStep(*step);
    return snapshot ? std::as_bytes(snapshot->digests) : std::span<const std::byte>();
  }
  std::optional<int64_t> step = StepOf(slot, kOwn);
  for (const auto& [worker, copier] : kept.copies) {
    const auto of_copy = StepOf(slot, fmt::format("{}{}/", kCopies, worker));
    if (!of_copy) continue;
    step = of_copy;
    area = copier->area();
  }
  const auto snapshot = step && area != nullptr ? area->OfStep(*step) : std::nullopt;
  return snapshot ? snapshot->data : std::span<const std::byte>();
}

// A mesh that this worker has no part in.
Status SnapshotStore::KeepCopies(const proto::CopySnapshot& copy) {
  if (copy.secret.empty()) return NotFound("the mesh is gone");
  auto kept = std::make_shared<Kept>();
  kept->job = copy.job;
  kept->mesh_gen = copy.mesh_gen;
  kept->name = {copy.cluster_id, copy.mesh_gen.value(), copy.process_id, copy.secret};
  const auto it = kept_.emplace(copy.mesh_gen, Entry{std::move(kept), nullptr}).first;
  (void)OpenDoor(it->second);
  DropLater(copy.mesh_gen);
  return OkStatus();
}

Status SnapshotStore::Copy(const proto::CopySnapshot& copy) {
  for (const proto::SnapshotPart& part : copy.parts) {
    std::shared_ptr<Kept> kept;
    SnapshotCopier* copier = nullptr;
    {
      const MutexLock lock(mutex_);
      if (!kept_.contains(copy.mesh_gen)) MW_TRY(KeepCopies(copy));
      kept = kept_.at(copy.mesh_gen).kept;
      kept->asked = true;
      std::unique_ptr<SnapshotCopier>& of_worker = kept->copies[part.worker];
      if (of_worker == nullptr) {
        collective::DoorName door = kept->name;
        door.process_id = part.process_id;
        of_worker = std::make_unique<SnapshotCopier>(
            SlotReader(part.address, std::move(door), collective::TlsOf(listener_)),
            std::set<std::string>(part.boxes.begin(), part.boxes.end()),
            [] { return AvailableMemoryBytes(); });
      }
      copier = of_worker.get();
    }
    MW_TRY(Guarded("copying a snapshot", [&] {
             return copier->Copy(copy.step);
           }).WithContext(fmt::format("worker '{}'", part.worker)));
  }
  return OkStatus();
}

size_t SnapshotStore::size() {
  const MutexLock lock(mutex_);
  return kept_.size();
}

// Its writer may not have come to it yet.
const checkpoint::SnapshotArea* SnapshotStore::Open(Kept& kept) {
  if (!kept.area && !kept.memory.valid()) return nullptr;
  if (!kept.area) {
    auto area = checkpoint::SnapshotArea::Open(UniqueFd(::dup(kept.memory.get())));
    if (!area.has_value()) return nullptr;
    kept.area = *std::move(area);
    kept.layout = checkpoint::FormatLayout(kept.area->layout());
    kept.memory.Reset();
  }
  return &*kept.area;
}

// Who still reads what is gone would keep it, and with it the connections by which it reads of
// others: two workers that copy from each other would keep each other's memory for ever.
void SnapshotStore::EndReaders(const std::vector<Entry>& gone) {
  std::set<const void*> kept;
  for (const Entry& entry : gone) kept.insert(entry.kept.get());
  servers_.End(kept);
}

void SnapshotHandover::Expect(const proto::LoadMesh& load) {
  const MutexLock lock(mutex_);
  load_ = load;
  HandOver();
}

void SnapshotHandover::Give(UniqueFd memory) {
  const MutexLock lock(mutex_);
  memory_ = std::move(memory);
  HandOver();
}

void SnapshotHandover::HandOver() {
  if (store_ == nullptr || !load_ || !memory_.valid()) return;
  store_->Keep(*load_, std::move(memory_));
  load_.reset();
}

}  // namespace meshwright::worker
