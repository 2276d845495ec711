// Weights on their way to the controller: in tiles that are small, whatever the tensors are.
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/cover.h"
#include "tests/unit/worker/program_maker.h"
#include "worker/weights.h"

namespace meshwright::worker {
namespace {

// What comes of a tensor whose elements are their own numbers, and that is a box of a larger one.
class WeightTiles : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(WeightTiles, CoverTheBoxInSmallPiecesThatHaveItsElements) {
  const ir::Dims dims = GetParam();
  ProgramMaker maker("init", 0);
  const SlotId x = maker.Persistent("x", F32(dims));
  maker.Run(maker.Executable("graph \"fill\" {\n %0 = constant {value=7.0} : " +
                             F32(dims).ToString() + "\n output \"x\" %0\n}"),
            {}, {x});
  std::vector<ir::Program> programs = {maker.Finish()};
  ir::Box box;
  ir::Dims whole = dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    box.offset.push_back(d == 0 ? 1 : 0);
    box.size.push_back(dims[d]);
    whole[d] += d == 0 ? 1 : 0;
  }
  for (ir::Slot& slot : programs[0].slots) {
    slot.global_dims = whole;
    slot.box = box;
  }
  const StateSlots slots = CollectStateSlots(programs);
  RuntimeOptions options;
  options.programs = std::move(programs);
  options.fabric.members = {{"w", "", "host", 1}};
  options.fabric.local_ranks = {0};
  const auto runtime = JobRuntime::Load(std::move(options)).value();
  ASSERT_TRUE(runtime->Connect({}).ok());
  const auto elements = static_cast<size_t>(F32(dims).elements());
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(i);
  std::vector<std::byte> bytes(elements * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  ASSERT_TRUE(runtime->WritePersistent(0, "x", bytes).ok());

  const auto source = MakeTileSource(MeshGeneration(3), {{0, {"x"}}}, slots, *runtime);
  std::vector<ir::Box> boxes;
  std::vector<std::byte> joined;
  while (true) {
    auto tile = source();
    ASSERT_TRUE(tile.has_value()) << tile.error();
    if (!*tile) break;
    EXPECT_EQ((*tile)->param, "x");
    EXPECT_LE(static_cast<int64_t>((*tile)->data.size()), kTileBytes);
    EXPECT_EQ(static_cast<int64_t>((*tile)->data.size()), checkpoint::Volume((*tile)->box) * 4);
    joined.insert(joined.end(), (*tile)->data.begin(), (*tile)->data.end());
    boxes.push_back((*tile)->box);
  }
  // The pieces follow each other in the box's own order.
  EXPECT_EQ(joined, bytes);
  if (dims.empty()) return;
  EXPECT_GE(static_cast<int64_t>(boxes.size()) * kTileBytes, static_cast<int64_t>(bytes.size()));
  ir::Box before;
  before.offset.assign(dims.size(), 0);
  before.size = box.size;
  before.size[0] = 1;
  boxes.push_back(before);
  const Status cover = checkpoint::CheckExactCover(whole, boxes);
  EXPECT_TRUE(cover.ok()) << cover;
}

INSTANTIATE_TEST_SUITE_P(Shapes, WeightTiles,
                         ::testing::Values(std::vector<int64_t>{}, std::vector<int64_t>{5},
                                           std::vector<int64_t>{3'000'000},
                                           std::vector<int64_t>{1500, 1024},
                                           std::vector<int64_t>{2, 1'200'000},
                                           std::vector<int64_t>{3, 5, 300'000},
                                           std::vector<int64_t>{2, 3, 7, 11}));

}  // namespace
}  // namespace meshwright::worker
