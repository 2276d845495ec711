#include "worker/tile_copy.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace meshwright::worker {
namespace {

// Below this a copy is shorter than waking another thread.
constexpr int64_t kBytesPerPiece = int64_t{256} << 10;

}  // namespace

TileCopy::TileCopy(const ir::Dims& dims, const ir::Box& box, int64_t element_bytes) {
  const size_t rank = dims.size();
  const ir::Dims size = box.size.empty() ? dims : box.size;
  const ir::Dims offset = box.offset.empty() ? ir::Dims(rank, 0) : box.offset;
  MW_CHECK(size.size() == rank && offset.size() == rank);
  run_bytes_ = element_bytes;
  int64_t stride = element_bytes;
  bool whole = true;  // all dims so far are covered fully
  for (size_t d = rank; d-- > 0;) {
    MW_CHECK(offset[d] >= 0 && size[d] >= 1 && offset[d] + size[d] <= dims[d]);
    offset_bytes_ += offset[d] * stride;
    if (whole) {
      run_bytes_ *= size[d];
    } else if (size[d] > 1) {
      Loop* inner = loops_.empty() ? nullptr : &loops_.front();
      if (inner != nullptr && inner->count * inner->stride_bytes == stride) {
        inner->count *= size[d];
      } else {
        loops_.insert(loops_.begin(), {size[d], stride});
      }
      runs_ *= size[d];
    }
    whole = whole && size[d] == dims[d];
    stride *= dims[d];
  }
}

int64_t TileCopy::RunOffset(int64_t run) const {
  int64_t offset = offset_bytes_;
  for (size_t i = loops_.size(); i-- > 0;) {
    offset += run % loops_[i].count * loops_[i].stride_bytes;
    run /= loops_[i].count;
  }
  return offset;
}

template <typename Body>
void TileCopy::ForRuns(ThreadTeam* team, const Body& body) const {
  // One long run is cut by bytes, many runs by runs.
  if (runs_ == 1) {
    const int64_t pieces = (run_bytes_ + kBytesPerPiece - 1) / kBytesPerPiece;
    const auto copy = [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kBytesPerPiece;
      const int64_t last = std::min(end * kBytesPerPiece, run_bytes_);
      if (first < last) body(offset_bytes_ + first, first, last - first);
    };
    if (team == nullptr || pieces < 2) return copy(0, pieces);
    team->ParallelFor(pieces, [&](int64_t begin, int64_t end, int) { copy(begin, end); });
    return;
  }
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      body(RunOffset(run), run * run_bytes_, run_bytes_);
    }
  };
  if (team == nullptr || bytes() <= kBytesPerPiece) return copy(0, runs_);
  team->ParallelFor(runs_, [&](int64_t begin, int64_t end, int) { copy(begin, end); });
}

int64_t TileCopy::span_bytes() const {
  int64_t span = run_bytes_;
  for (const Loop& loop : loops_) span += (loop.count - 1) * loop.stride_bytes;
  return span;
}

Status TileCopy::Pack(const std::byte* tensor, std::byte* dense, const Copier& copier) const {
  if (copier.queue != nullptr) {
    const std::byte* const box = tensor + offset_bytes_;
    if (contiguous()) return copier.queue->Copy(dense, box, run_bytes_);
    return copier.queue->Gather(dense, box, {run_bytes_, loops_});
  }
  ForRuns(copier.team, [&](int64_t in_tensor, int64_t in_dense, int64_t bytes) {
    std::memcpy(dense + in_dense, tensor + in_tensor, static_cast<size_t>(bytes));
  });
  return OkStatus();
}

Status TileCopy::Unpack(const std::byte* dense, std::byte* tensor, const Copier& copier) const {
  if (copier.queue != nullptr) {
    std::byte* const box = tensor + offset_bytes_;
    if (contiguous()) return copier.queue->Copy(box, dense, run_bytes_);
    return copier.queue->Scatter(box, dense, {run_bytes_, loops_});
  }
  ForRuns(copier.team, [&](int64_t in_tensor, int64_t in_dense, int64_t bytes) {
    std::memcpy(tensor + in_tensor, dense + in_dense, static_cast<size_t>(bytes));
  });
  return OkStatus();
}

ir::Box BlockBox(const ir::Dims& dims, int dim, int64_t index, int64_t size) {
  MW_CHECK(index >= 0 && size >= 0 && (index + 1) * size <= dims[static_cast<size_t>(dim)])
      << "block " << index << " of " << size << " along dim " << dim;
  ir::Box box{ir::Dims(dims.size(), 0), dims};
  box.offset[static_cast<size_t>(dim)] = index * size;
  box.size[static_cast<size_t>(dim)] = size;
  return box;
}

}  // namespace meshwright::worker
