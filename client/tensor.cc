#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "client/session.h"

namespace meshwright::client {
namespace {

template <typename Stored, typename Widen>
std::vector<double> Read(std::span<const std::byte> bytes, const Widen& widen) {
  std::vector<double> reals(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < reals.size(); ++i) {
    Stored stored{};
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    reals[i] = widen(stored);
  }
  return reals;
}

std::vector<double> Read(ir::DType dtype, std::span<const std::byte> bytes) {
  const auto as_it_is = [](auto value) { return static_cast<double>(value); };
  switch (dtype) {
    case ir::DType::kF32:
      return Read<float>(bytes, as_it_is);
    case ir::DType::kF64:
      return Read<double>(bytes, as_it_is);
    case ir::DType::kBF16:
      return Read<uint16_t>(bytes, Bf16ToFloat);
    case ir::DType::kF16:
      return Read<uint16_t>(bytes, F16ToFloat);
    case ir::DType::kI32:
      return Read<int32_t>(bytes, as_it_is);
    case ir::DType::kI64:
      return Read<int64_t>(bytes, as_it_is);
    case ir::DType::kBool:
      return Read<uint8_t>(bytes, [](uint8_t value) { return value != 0 ? 1.0 : 0.0; });
  }
  return {};
}

}  // namespace

std::vector<double> Tensor::Reals() const { return Read(type.dtype, data); }

std::vector<double> Tensor::RealsOfRow(int64_t row) const {
  MW_CHECK(type.rank() > 0 && row >= 0 && row < type.dims[0])
      << "row " << row << " of " << type.ToString();
  const size_t bytes = data.size() / static_cast<size_t>(type.dims[0]);
  return Read(type.dtype, std::span(data).subspan(static_cast<size_t>(row) * bytes, bytes));
}

std::vector<double> Tensor::RealsOfRow(int64_t row, int64_t of_row) const {
  MW_CHECK(type.rank() > 1 && row >= 0 && row < type.dims[0] && of_row >= 0 &&
           of_row < type.dims[1])
      << "row " << row << "," << of_row << " of " << type.ToString();
  const size_t bytes = data.size() / static_cast<size_t>(type.dims[0] * type.dims[1]);
  const auto at = static_cast<size_t>(row * type.dims[1] + of_row);
  return Read(type.dtype, std::span(data).subspan(at * bytes, bytes));
}

}  // namespace meshwright::client
