#include "worker/snapshot_copier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "checkpoint/cover.h"
#include "worker/snapshot_taker.h"

namespace meshwright::worker {

Status SnapshotCopier::Copy(int64_t step) {
  if (!ready_) MW_TRY(Prepare());
  std::vector<checkpoint::Digest> digests(pieces_);
  MW_TRY(
      reader_.Read(fmt::format("digests/{}", step), 0, std::as_writable_bytes(std::span(digests))));
  area_->Begin();
  for (size_t box = 0; box < places_.size(); ++box) MW_TRY(CopyBox(step, box, digests));
  area_->Finish(step);
  return OkStatus();
}

Status SnapshotCopier::Prepare() {
  MW_ASSIGN_OR_RETURN(const int64_t bytes, reader_.Size("layout"));
  std::string text(static_cast<size_t>(std::clamp<int64_t>(bytes, 0, kMostSlotBytes)), '\0');
  MW_TRY(reader_.Read("layout", 0, std::as_writable_bytes(std::span(text))));
  MW_ASSIGN_OR_RETURN(const checkpoint::SnapshotLayout theirs, checkpoint::ParseLayout(text));
  checkpoint::SnapshotLayout mine;
  size_t piece = 0;
  for (const checkpoint::SnapshotBox& box : theirs.boxes()) {
    if (boxes_.contains(box.tensor + checkpoint::ToText(box.box))) {
      places_.push_back({box.begin_bytes, piece});
      mine.Add(box.tensor, box.type, box.kind, box.box);
    }
    piece += static_cast<size_t>(checkpoint::PieceCount(box.bytes()));
  }
  if (mine.boxes().size() != boxes_.size()) {
    return DataLoss(fmt::format("it holds {} of {} boxes", mine.boxes().size(), boxes_.size()));
  }
  pieces_ = piece;
  MW_TRY(CheckSnapshotMemory(mine, available_()));
  MW_ASSIGN_OR_RETURN(area_, checkpoint::SnapshotArea::Create());
  MW_TRY(area_->SetLayout(mine));
  ready_ = true;
  return OkStatus();
}

Status SnapshotCopier::CopyBox(int64_t step, size_t box,
                               std::span<const checkpoint::Digest> digests) {
  MW_CHECK(box < places_.size()) << "box " << box << " of " << places_.size();
  const std::span<std::byte> into = area_->Place(box);
  const Place& place = places_[box];
  MW_TRY(reader_.Read(fmt::format("own/{}", step), place.begin_bytes, into));
  constexpr auto kPiece = static_cast<size_t>(checkpoint::kPieceBytes);
  size_t piece = place.first_piece;
  for (size_t begin = 0; begin < into.size(); begin += kPiece) {
    const auto bytes = into.subspan(begin, std::min(kPiece, into.size() - begin));
    if (checkpoint::DigestOf(bytes) != digests[piece++]) {
      return DataLoss(fmt::format("a copy of step {} has other bytes than the original", step));
    }
  }
  area_->Seal(box, 0, checkpoint::PieceCount(static_cast<int64_t>(into.size())));
  return OkStatus();
}

}  // namespace meshwright::worker
