#include "worker/state_saver.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/give_way.h"
#include "base/guard.h"
#include "base/log.h"
#include "checkpoint/cover.h"
#include "checkpoint/reader.h"
#include "worker/snapshot_files.h"

namespace meshwright::worker {
namespace {

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

}  // namespace

StateSaver::StateSaver(std::string worker, CheckpointFiles& files,
                       std::function<void(proto::UpBody)> report)
    : worker_(std::move(worker)), files_(files), report_(std::move(report)) {}

StateSaver::~StateSaver() {
  stopped_ = true;
  thread_.Stop();
}

Status StateSaver::Save(const proto::SaveState& message, const StateSlots& slots,
                        JobRuntime& runtime) {
  if (writing_) return FailedPrecondition("another save is still being written");
  MW_FAILPOINT("executor.save.before-copy");
  const SteadyClock::time_point begin = SteadyClock::now();
  std::vector<PersistentCopy> copies;
  copies_.resize(message.ranks.size());
  for (size_t i = 0; i < message.ranks.size(); ++i) {
    MW_TRY(MakeRoom(message.ranks[i], slots, copies_[i]));
    std::byte* place = copies_[i].memory ? copies_[i].memory->data() : nullptr;
    for (const checkpoint::BoxBytes& box : copies_[i].boxes) {
      copies.push_back({copies_[i].rank, box.tensor, {place, box.bytes.size()}, {}});
      place += box.bytes.size();
    }
  }
  MW_CHECK(copies_.size() == message.ranks.size()) << "copies of other ranks";
  MW_TRY(runtime.CopyAll(copies));
  const double copy_seconds = SecondsSince(begin);
  MW_FAILPOINT("executor.save.copied");
  writing_ = true;
  if (!thread_.Post([this, message, copy_seconds] { WriteCopies(message, copy_seconds); })) {
    return Cancelled("the worker drops the mesh");
  }
  return OkStatus();
}

Status StateSaver::MakeRoom(const proto::RankTiles& tiles, const StateSlots& slots,
                            RankCopy& copy) {
  const auto of_rank = slots.find(tiles.rank);
  copy.rank = tiles.rank;
  copy.boxes.clear();
  int64_t bytes = 0;
  for (const std::string& name : tiles.slots) {
    if (of_rank == slots.end() || !of_rank->second.contains(name)) {
      return NotFound(fmt::format("rank {} holds no tensor '{}'", tiles.rank, name));
    }
    bytes += of_rank->second.at(name).part().bytes();
  }
  if (bytes > copy.bytes) {
    copy.memory.reset();  // before there is another one
    copy.bytes = 0;
    MW_ASSIGN_OR_RETURN(copy.memory, device::Mapping::Make(bytes));
    copy.bytes = bytes;
  }
  const std::byte* place = copy.memory ? copy.memory->data() : nullptr;
  for (const std::string& name : tiles.slots) {
    const ir::Slot& slot = of_rank->second.at(name);
    const auto size = static_cast<size_t>(slot.part().bytes());
    copy.boxes.push_back({name,
                          {slot.type.dtype, slot.global_dims},
                          slot.kind,
                          checkpoint::Explicit(slot.box, slot.global_dims),
                          {place, size}});
    place += size;
  }
  return OkStatus();
}

void StateSaver::WriteCopies(const proto::SaveState& message, double copy_seconds) {
  // Devices compute meanwhile, and those that wait for each other wait for the slowest.
  GiveWay();
  const SteadyClock::time_point begin = SteadyClock::now();
  proto::StateSaved saved{message.mesh_gen, message.launch_seq, {}, {}};
  const Status status = Guarded("writing a checkpoint", [&]() -> Status {
    MW_ASSIGN_OR_RETURN(saved.shards, Write(message));
    return OkStatus();
  });
  saved.error = Error(status);
  saved.copy_seconds = copy_seconds;
  saved.write_seconds = SecondsSince(begin);
  MW_FAILPOINT("executor.save.before-report");
  writing_ = false;
  if (!stopped_) report_(std::move(saved));
}

Result<std::string> StateSaver::Write(const proto::SaveState& message) {
  checkpoint::Shards written;
  for (const RankCopy& copy : copies_) {
    MW_ASSIGN_OR_RETURN(const std::vector<checkpoint::ShardImage> images,
                        checkpoint::MakeShards(copy.rank, copy.boxes));
    for (const checkpoint::ShardImage& image : images) {
      if (stopped_) return Fail(Cancelled("the worker drops the mesh"));
      MW_TRY(files_.Write(message.folder, message.temporary, image));
      checkpoint::AddShard(written, image);
    }
  }
  return checkpoint::FormatShards(written);
}

void StateSaver::Commit(proto::CommitCheckpoint message) {
  (void)thread_.Post([this, message = std::move(message)] {
    const Status status =
        Guarded("committing a checkpoint", [&] { return files_.Commit(message); });
    MW_FAILPOINT("executor.commit.before-report");
    if (!stopped_) {
      report_(proto::CheckpointCommitted{message.mesh_gen, message.save, Error(status)});
    }
  });
}

proto::RuntimeError StateSaver::Error(const Status& status) const {
  if (!status.ok()) LogWarn(fmt::format("checkpoint: {}", status.message()));
  return proto::MakeError(proto::ErrorKind::kSaveFailed,
                          status.WithContext(fmt::format("worker '{}'", worker_)), worker_);
}

namespace {

Status Restore(checkpoint::Reader& reader, const std::vector<std::string>& exclude,
               const StateSlots& slots, JobRuntime& runtime) {
  const auto excluded = [&](const std::string& name) {
    return std::any_of(exclude.begin(), exclude.end(), [&](const std::string& pattern) {
      return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
  };
  MW_FAILPOINT("executor.restore.before-read");
  for (const auto& [rank, rank_slots] : slots) {
    for (const auto& [name, slot] : rank_slots) {
      if (excluded(name)) continue;
      const ir::TensorType whole{slot.type.dtype, slot.global_dims};
      MW_TRY(runtime.FillPersistent(
          rank, name, [&, &tensor = name, &box = slot.box](std::span<std::byte> into) {
            return reader.ReadBox(tensor, whole, box, into);
          }));
      MW_FAILPOINT("executor.restore.wrote-box");
    }
  }
  return OkStatus();
}

}  // namespace

Status RestoreState(const proto::RestoreState& message, CheckpointFiles& files,
                    const std::string& cluster_id, const StateSlots& slots, JobRuntime& runtime,
                    std::shared_ptr<collective::Tls> tls) {
  if (!message.manifest.empty()) {
    auto reader = checkpoint::Reader::Open(std::make_unique<SnapshotFiles>(
        cluster_id, message.manifest, message.sources, std::move(tls)));
    const Status status =
        reader.has_value() ? Restore(**reader, message.exclude, slots, runtime) : reader.error();
    return status.ok() ? status : status.WithContext("snapshots").WithBlame(Blame::kInfra);
  }
  MW_ASSIGN_OR_RETURN(auto source, files.Open(message.checkpoint));
  const auto reader = checkpoint::Reader::Open(std::move(source));
  const Status status =
      reader.has_value() ? Restore(**reader, message.exclude, slots, runtime) : reader.error();
  const Status placed = status.WithContext("checkpoint " + message.checkpoint.path);
  if (placed.code() != StatusCode::kDataLoss) return placed;
  return Status(placed.code(), placed.message() +
                                   "; an older one is taken only when it is named: submit --resume "
                                   "ID --step N, of `meshwright checkpoint ls ID`")
      .WithBlame(placed.blame());
}

}  // namespace meshwright::worker
