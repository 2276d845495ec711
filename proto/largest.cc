#include "proto/largest.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/half.h"

namespace meshwright::proto {
namespace {

template <typename Stored, typename Widen>
Largest LargestOfRow(const char* row, int64_t columns, const Widen& widen) {
  Largest largest;
  for (int64_t at = 0; at < columns; ++at) {
    Stored stored{};
    std::memcpy(&stored, row + static_cast<size_t>(at) * sizeof(Stored), sizeof(Stored));
    const auto value = static_cast<double>(widen(stored));
    if (largest.place >= 0 && value <= largest.value) continue;
    if (std::isnan(value)) return {value, -1};
    largest = {value, at};
  }
  return largest;
}

Largest LargestOfRow(ir::DType dtype, const char* row, int64_t columns) {
  const auto as_it_is = [](auto value) { return value; };
  switch (dtype) {
    case ir::DType::kF32:
      return LargestOfRow<float>(row, columns, as_it_is);
    case ir::DType::kBF16:
      return LargestOfRow<uint16_t>(row, columns, Bf16ToFloat);
    case ir::DType::kF16:
      return LargestOfRow<uint16_t>(row, columns, F16ToFloat);
    default:
      return LargestOfRow<double>(row, columns, as_it_is);
  }
}

}  // namespace

TensorTile LargestOf(TensorTile block) {
  if (!HasLargest(block.type)) return block;
  const int64_t columns = block.box.size.back();
  const int64_t row_bytes = columns * ir::DTypeBytes(block.type.dtype);
  std::vector<Largest> largest;
  for (int64_t at = 0; row_bytes > 0 && at < static_cast<int64_t>(block.bytes.size());
       at += row_bytes) {
    largest.push_back(LargestOfRow(block.type.dtype, block.bytes.data() + at, columns));
    if (largest.back().place >= 0) largest.back().place += block.box.offset.back();
  }
  block.bytes =
      std::string(reinterpret_cast<const char*>(largest.data()), largest.size() * sizeof(Largest));
  block.largest = true;
  return block;
}

}  // namespace meshwright::proto
