#include "worker/snapshot_taker.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/guard.h"
#include "base/text.h"
#include "checkpoint/cover.h"

namespace meshwright::worker {
namespace {

// The rest is for what the process and its neighbours take meanwhile.
constexpr double kMostOfAvailable = 0.8;

}  // namespace

Status CheckSnapshotMemory(const checkpoint::SnapshotLayout& layout,
                           std::optional<int64_t> available) {
  const int64_t wanted = 2 * layout.data_bytes();
  const bool fits = !available || static_cast<double>(wanted) <=
                                      kMostOfAvailable * static_cast<double>(*available);
  if (fits) return OkStatus();
  return ResourceExhausted(fmt::format("two snapshots take {}, {} of memory are available",
                                       FormatBytes(wanted), FormatBytes(*available)));
}

SnapshotTaker::SnapshotTaker(std::string worker, UniqueFd memory,
                             std::vector<proto::RankTiles> tiles,
                             std::function<std::optional<int64_t>()> available)
    : worker_(std::move(worker)),
      area_(checkpoint::SnapshotArea::Over(std::move(memory))),
      tiles_(std::move(tiles)),
      available_(std::move(available)) {}

proto::SnapshotTaken SnapshotTaker::Take(int64_t step, const StateSlots& slots,
                                         JobRuntime& runtime) {
  using Clock = std::chrono::steady_clock;
  MW_CHECK(step >= 0) << "a snapshot behind step " << step;
  if (!std::exchange(prepared_, true)) {
    why_not_ = Guarded("preparing snapshots", [&] { return Prepare(slots); });
  }
  const Clock::time_point start = Clock::now();
  proto::SnapshotTaken taken;
  taken.step = step;
  Status status = why_not_;
  if (status.ok()) status = Guarded("taking a snapshot", [&] { return Copy(runtime); });
  if (status.ok()) area_.Finish(step);
  taken.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  taken.bytes = area_.layout().data_bytes();
  taken.error = proto::MakeError(proto::ErrorKind::kSaveFailed,
                                 status.WithContext(fmt::format("worker '{}'", worker_)), worker_);
  return taken;
}

Status SnapshotTaker::Prepare(const StateSlots& slots) {
  if (area_.fd() < 0) return FailedPrecondition("this process has no memory for snapshots");
  checkpoint::SnapshotLayout layout;
  for (const proto::RankTiles& rank : tiles_) {
    const auto of_rank = slots.find(rank.rank);
    for (const std::string& name : rank.slots) {
      if (of_rank == slots.end() || !of_rank->second.contains(name)) {
        return NotFound(fmt::format("rank {} holds no tensor '{}'", rank.rank, name));
      }
      const ir::Slot& slot = of_rank->second.at(name);
      layout.Add(name, {slot.type.dtype, slot.global_dims}, slot.kind,
                 checkpoint::Explicit(slot.box, slot.global_dims));
    }
  }
  MW_TRY(CheckSnapshotMemory(layout, available_()));
  return area_.SetLayout(layout);
}

Status SnapshotTaker::Copy(JobRuntime& runtime) {
  area_.Begin();
  MW_CHECK(prepared_) << "a snapshot without a layout";
  std::vector<PersistentCopy> copies;
  size_t box = 0;
  for (const proto::RankTiles& rank : tiles_) {
    for (const std::string& name : rank.slots) {
      copies.push_back({rank.rank, name, area_.Place(box), [this, box](int64_t begin, int64_t end) {
                          area_.Seal(box, begin / checkpoint::kPieceBytes,
                                     checkpoint::PieceCount(end));
                        }});
      ++box;
    }
  }
  return runtime.CopyAll(copies);
}

}  // namespace meshwright::worker
