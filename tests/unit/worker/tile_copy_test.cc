#include "worker/tile_copy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace meshwright::worker {
namespace {

std::vector<std::byte> Numbered(int64_t elements) {
  std::vector<int32_t> values(static_cast<size_t>(elements));
  std::iota(values.begin(), values.end(), 1);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + values.size() * 4};
}

RC_GTEST_PROP(TileCopy, PackIsTheBoxInRowMajorOrderAndUnpackPutsItBack, ()) {
  const auto rank = *rc::gen::inRange<size_t>(0, 5);
  ir::Dims dims, offset, size;
  int64_t elements = 1;
  for (size_t d = 0; d < rank; ++d) {
    dims.push_back(*rc::gen::inRange<int64_t>(1, 5));
    offset.push_back(*rc::gen::inRange<int64_t>(0, dims[d]));
    size.push_back(*rc::gen::inRange<int64_t>(1, dims[d] - offset[d] + 1));
    elements *= dims[d];
  }
  const TileCopy tile(dims, {offset, size}, 4);
  const std::vector<std::byte> tensor = Numbered(elements);

  // Plain loops: every element whose position lies in the box, in order.
  std::vector<std::byte> want;
  std::vector<std::byte> outside(tensor.size(), std::byte{0});
  for (int64_t i = 0; i < elements; ++i) {
    bool inside = true;
    int64_t rest = i;
    for (size_t d = rank; d-- > 0;) {
      const int64_t at = rest % dims[d];
      rest /= dims[d];
      inside = inside && at >= offset[d] && at < offset[d] + size[d];
    }
    for (int64_t b = 4 * i; b < 4 * i + 4; ++b) {
      if (inside) {
        want.push_back(tensor[static_cast<size_t>(b)]);
        outside[static_cast<size_t>(b)] = tensor[static_cast<size_t>(b)];
      }
    }
  }
  RC_ASSERT(tile.bytes() == static_cast<int64_t>(want.size()));
  std::vector<std::byte> dense(want.size());
  ASSERT_TRUE(tile.Pack(tensor.data(), dense.data(), nullptr).ok());
  RC_ASSERT(dense == want);
  if (tile.contiguous()) {
    const auto first = tensor.begin() + tile.offset_bytes();
    RC_ASSERT(std::equal(want.begin(), want.end(), first));
  }
  std::vector<std::byte> back(tensor.size(), std::byte{0});
  ASSERT_TRUE(tile.Unpack(dense.data(), back.data(), nullptr).ok());
  RC_ASSERT(back == outside);
}

TEST(TileCopy, WholeTensorsAndLeadingBlocksNeedNoCopy) {
  EXPECT_TRUE(TileCopy({4, 6}, {}, 4).contiguous());
  EXPECT_TRUE(TileCopy({4, 6}, BlockBox({4, 6}, 0, 1, 2), 4).contiguous());
  EXPECT_TRUE(TileCopy({1, 6}, BlockBox({1, 6}, 1, 1, 3), 4).contiguous());
  EXPECT_FALSE(TileCopy({4, 6}, BlockBox({4, 6}, 1, 1, 3), 4).contiguous());
}

TEST(TileCopy, ATeamCopiesTheSameBytes) {
  const ir::Dims dims = {64, 3, 4096};
  const std::vector<std::byte> tensor = Numbered(64 * 3 * 4096);
  ThreadTeam team(2);
  for (const ir::Box& box : {BlockBox(dims, 1, 1, 1), BlockBox(dims, 0, 1, 32)}) {
    const TileCopy tile(dims, box, 4);
    std::vector<std::byte> alone(static_cast<size_t>(tile.bytes()));
    std::vector<std::byte> together(alone.size());
    ASSERT_TRUE(tile.Pack(tensor.data(), alone.data(), nullptr).ok());
    ASSERT_TRUE(tile.Pack(tensor.data(), together.data(), &team).ok());
    EXPECT_EQ(alone, together);
    std::vector<std::byte> back(tensor.size());
    std::vector<std::byte> back_together(tensor.size());
    ASSERT_TRUE(tile.Unpack(alone.data(), back.data(), nullptr).ok());
    ASSERT_TRUE(tile.Unpack(alone.data(), back_together.data(), &team).ok());
    EXPECT_EQ(back, back_together);
  }
}

}  // namespace
}  // namespace meshwright::worker
