#include "ops/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/parallel.h"

namespace meshwright::ops {
namespace {

constexpr int64_t kRowsTogether = 16;

// Strides in bytes.
struct Grid {
  int64_t rows = 1;
  int64_t row_source = 0;
  int64_t row_destination = 0;
  int64_t columns = 1;
  int64_t column_source = 0;
  int64_t column_destination = 0;
};

template <typename T>
void CopyGrid(const Grid& grid, const char* source, char* destination) {
  for (int64_t i = 0; i < grid.columns; ++i) {
    const char* from = source + i * grid.column_source;
    char* to = destination + i * grid.column_destination;
    for (int64_t j = 0; j < grid.rows; ++j) {
      T value;
      std::memcpy(&value, from + j * grid.row_source, sizeof(T));
      std::memcpy(to + j * grid.row_destination, &value, sizeof(T));
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(const ir::Dims& sizes, const ir::Dims& source_strides,
                         const ir::Dims& destination_strides, int64_t element_bytes)
    : element_bytes_(element_bytes) {
  std::vector<Loop> loops;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    loops.push_back(
        {sizes[i], source_strides[i] * element_bytes, destination_strides[i] * element_bytes});
  }
  std::stable_sort(loops.begin(), loops.end(),
                   [](const Loop& a, const Loop& b) { return a.destination > b.destination; });
  for (const Loop& loop : loops) {
    Loop* last = outer_.empty() ? nullptr : &outer_.back();
    if (last && last->source == loop.source * loop.size &&
        last->destination == loop.destination * loop.size) {
      *last = {last->size * loop.size, loop.source, loop.destination};
    } else {
      outer_.push_back(loop);
    }
  }
  inner_ = {1, element_bytes, element_bytes};
  if (!outer_.empty()) {
    inner_ = outer_.back();
    outer_.pop_back();
  }
  const auto unit = std::find_if(outer_.begin(), outer_.end(),
                                 [&](const Loop& loop) { return loop.source == element_bytes_; });
  if (unit != outer_.end()) std::rotate(unit, unit + 1, outer_.end());
  if (!outer_.empty()) row_ = outer_.back();
  for (const Loop& loop : outer_) rows_ *= loop.size;
}

void StridedCopy::CopyRows(const char* source, char* destination, int64_t rows) const {
  if (inner_.source == element_bytes_ && inner_.destination == element_bytes_) {
    for (int64_t j = 0; j < rows; ++j) {
      std::memcpy(destination + j * row_.destination, source + j * row_.source,
                  static_cast<size_t>(inner_.size * element_bytes_));
    }
    return;
  }
  const Grid grid{rows,        row_.source,   row_.destination,
                  inner_.size, inner_.source, inner_.destination};
  switch (element_bytes_) {
    case 1:
      return CopyGrid<uint8_t>(grid, source, destination);
    case 2:
      return CopyGrid<uint16_t>(grid, source, destination);
    case 4:
      return CopyGrid<uint32_t>(grid, source, destination);
    default:
      MW_CHECK(element_bytes_ == 8) << element_bytes_;
      return CopyGrid<uint64_t>(grid, source, destination);
  }
}

void StridedCopy::Run(const RunContext& context, const void* source, void* destination) const {
  if (rows_ == 0 || inner_.size == 0) return;
  ParallelRange(context, rows_, RowGrain(inner_.size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      const int64_t left_in_loop = row_.size - row % row_.size;
      const int64_t rows = std::min({kRowsTogether, left_in_loop, end - row});
      int64_t rest = row;
      int64_t source_offset = 0;
      int64_t destination_offset = 0;
      for (size_t i = outer_.size(); i-- > 0;) {
        const int64_t index = rest % outer_[i].size;
        rest /= outer_[i].size;
        source_offset += index * outer_[i].source;
        destination_offset += index * outer_[i].destination;
      }
      CopyRows(static_cast<const char*>(source) + source_offset,
               static_cast<char*>(destination) + destination_offset, rows);
      row += rows;
    }
  });
}

}  // namespace meshwright::ops
