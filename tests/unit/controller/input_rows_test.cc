// Which rows of a client's inputs a device reads.
#include "controller/input_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"

namespace meshwright::controller {
namespace {

// The program of a device of data=2 tensor=2 that reads "x", split over `axes`, and "k" whole.
ir::Program ProgramOf(int64_t data, int64_t tensor, std::vector<std::string> axes, int64_t rows) {
  ir::Builder builder("s0/f");
  ir::Attrs attrs = {{"source", "x"}};
  if (!axes.empty()) ir::ShardedDims{{8, 3}, {axes, {}}}.ToAttrs(attrs);
  const ValueId x = builder.AddOne(ir::Op::kFeed, {}, attrs, {{ir::DType::kF32, {rows, 3}}});
  const ValueId k = builder.AddOne(ir::Op::kFeed, {}, {{"source", "k"}, {"batch", int64_t{0}}},
                                   {{ir::DType::kF32, {3}}});
  builder.SetOutput("x", x);
  builder.SetOutput("k", k);
  ir::Program program;
  program.axes = {{"data", 2}, {"tensor", 2}};
  program.coords = {data, tensor};
  program.executables = {{std::make_shared<const ir::Graph>(builder.Finish().value())}};
  return program;
}

const std::vector<std::string> kInputs = {"k", "other", "x"};

TEST(InputRows, AreThoseOfTheDevicesBlock) {
  for (int64_t tensor = 0; tensor < 2; ++tensor) {
    const auto rows = InputRowsOf(ProgramOf(1, tensor, {"data"}, 4), kInputs);
    EXPECT_EQ(rows.at(2), (RowRange{4, 4})) << "the rows of its replica";
    EXPECT_EQ(rows.at(1), RowRange{}) << "it does not read the input";
    EXPECT_FALSE(rows.contains(0)) << "one value for the whole step";
  }
  EXPECT_EQ(InputRowsOf(ProgramOf(1, 0, {"data", "tensor"}, 2), kInputs).at(2), (RowRange{4, 2}));
  EXPECT_EQ(InputRowsOf(ProgramOf(1, 0, {}, 8), kInputs).at(2), (RowRange{0, 8}));
}

TEST(InputRows, OfMicrobatchesAreAll) {
  EXPECT_FALSE(InputRowsOf(ProgramOf(1, 0, {"micro", "data"}, 2), kInputs).contains(2));
}

TEST(InputRows, OfAWorkerAreThoseOfItsDevices) {
  PlannedDevice first, second, third;
  first.input_rows[{0, 2}] = {0, 2};
  second.input_rows[{0, 2}] = {4, 2};
  third.input_rows[{0, 2}] = {};
  EXPECT_EQ(RowsRead({&first, &second, &third}, 0, 2), (RowRange{0, 6}));
  EXPECT_EQ(RowsRead({&third}, 0, 2), RowRange{});
  EXPECT_EQ(RowsRead({&first}, 1, 2), std::nullopt);
}

}  // namespace
}  // namespace meshwright::controller
