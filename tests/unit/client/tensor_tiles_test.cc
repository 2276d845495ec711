// Tensors out of blocks: whole, and as the largest of each row.
#include "client/tensor_tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "proto/largest.h"

namespace meshwright::client {
namespace {

using ::testing::HasSubstr;

// Blocks of [rows, columns], cut at these rows and columns.
template <typename Stored>
std::vector<proto::TensorTile> Blocks(ir::DType dtype, const std::vector<Stored>& values,
                                      int64_t rows, int64_t columns) {
  std::vector<proto::TensorTile> blocks;
  const std::vector<int64_t> row_cuts = {0, rows / 2, rows};
  const std::vector<int64_t> column_cuts = {0, columns / 3, columns - 1, columns};
  for (size_t r = 0; r + 1 < row_cuts.size(); ++r) {
    for (size_t c = 0; c + 1 < column_cuts.size(); ++c) {
      proto::TensorTile block;
      block.name = "logits";
      block.type = {dtype, {1, rows, columns}};
      block.box.offset = {0, row_cuts[r], column_cuts[c]};
      block.box.size = {1, row_cuts[r + 1] - row_cuts[r], column_cuts[c + 1] - column_cuts[c]};
      std::string bytes;
      for (int64_t row = row_cuts[r]; row < row_cuts[r + 1]; ++row) {
        const Stored* from = values.data() + row * columns + column_cuts[c];
        bytes.append(reinterpret_cast<const char*>(from),
                     static_cast<size_t>(block.box.size[2]) * sizeof(Stored));
      }
      block.bytes = std::move(bytes);
      blocks.push_back(std::move(block));
    }
  }
  // They come in any order.
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

std::vector<proto::TensorTile> LargestOf(std::vector<proto::TensorTile> blocks) {
  for (proto::TensorTile& block : blocks) block = proto::LargestOf(std::move(block));
  return blocks;
}

template <typename Stored>
std::vector<int32_t> PlacesOf(ir::DType dtype, const std::vector<Stored>& values, int64_t rows,
                              int64_t columns) {
  const auto tensors = AssembleTiles(LargestOf(Blocks(dtype, values, rows, columns)));
  EXPECT_TRUE(tensors.has_value()) << tensors.error();
  if (!tensors.has_value()) return {};
  const Tensor& places = tensors->at("logits");
  EXPECT_EQ(places.type, (ir::TensorType{ir::DType::kI32, {1, rows}}));
  return places.Values<int32_t>();
}

TEST(TensorTiles, TheLargestOfARowIsThatOfAllItsBlocks) {
  std::mt19937 random(20261127);
  for (int round = 0; round < 50; ++round) {
    const int64_t rows = 2 + static_cast<int64_t>(random() % 5);
    const int64_t columns = 3 + static_cast<int64_t>(random() % 40);
    // Few values, so that some are equal; all below zero in some rounds.
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = static_cast<float>(random() % 9) - (round % 2 ? 20 : 4);
    std::vector<uint16_t> half(values.size());
    std::transform(values.begin(), values.end(), half.begin(), FloatToBf16);
    std::vector<double> wide(values.begin(), values.end());
    std::vector<int32_t> want;
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = values.begin() + row * columns;
      want.push_back(static_cast<int32_t>(std::max_element(begin, begin + columns) - begin));
    }
    EXPECT_EQ(PlacesOf(ir::DType::kF32, values, rows, columns), want);
    EXPECT_EQ(PlacesOf(ir::DType::kBF16, half, rows, columns), want);
    EXPECT_EQ(PlacesOf(ir::DType::kF64, wide, rows, columns), want);
    const auto whole = AssembleTiles(Blocks(ir::DType::kF32, values, rows, columns));
    ASSERT_TRUE(whole.has_value()) << whole.error();
    EXPECT_EQ(whole->at("logits").Values<float>(), values);
  }
}

TEST(TensorTiles, ARowWithWhatIsNoNumberHasNoLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float least = -std::numeric_limits<float>::infinity();
  const std::vector<float> values = {nan,   1,     2,   3,     1,      2,     3,     nan,
                                     nan,   nan,   nan, nan,   least,  least, least, least,
                                     least, least, 7,   least, -least, 1,     2,     3};
  EXPECT_EQ(PlacesOf(ir::DType::kF32, values, 6, 4), (std::vector<int32_t>{-1, -1, -1, -1, 2, -1}));
}

TEST(TensorTiles, WholeNumbersComeWhole) {
  const std::vector<int32_t> values = {5, 6, 7, 8, 9, 10};
  const auto tensors = AssembleTiles(LargestOf(Blocks(ir::DType::kI32, values, 2, 3)));
  ASSERT_TRUE(tensors.has_value()) << tensors.error();
  EXPECT_EQ(tensors->at("logits").Values<int32_t>(), values);
}

TEST(TensorTiles, BlocksThatDoNotFitAreRefused) {
  const std::vector<float> values(12, 1);
  std::vector<proto::TensorTile> blocks = LargestOf(Blocks(ir::DType::kF32, values, 3, 4));
  std::vector<proto::TensorTile> missing(blocks.begin(), blocks.end() - 1);
  EXPECT_THAT(AssembleTiles(missing).error().message(), HasSubstr("elements"));
  std::vector<proto::TensorTile> mixed = missing;
  mixed.push_back(Blocks(ir::DType::kF32, values, 3, 4).back());
  EXPECT_THAT(AssembleTiles(mixed).error().message(), HasSubstr("come whole and as"));
  std::vector<proto::TensorTile> cut = blocks;
  cut[0].bytes = cut[0].bytes.Part(0, cut[0].bytes.size() - 1);
  EXPECT_THAT(AssembleTiles(cut).error().message(), HasSubstr("does not fit"));
  std::vector<proto::TensorTile> flat = blocks;
  flat[0].type.dims = {};
  flat[0].box = {};
  EXPECT_FALSE(AssembleTiles(flat).has_value());
}

}  // namespace
}  // namespace meshwright::client
