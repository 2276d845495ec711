#include "data/counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::data {
namespace {

TEST(HasValidation, NeedsARowInTheTail) {
  ir::DataSpec data;
  data.validation_fraction = 0.1;
  data.blob.size_bytes = 1009;  // 100 bytes of tail
  EXPECT_FALSE(HasValidation(data, 100));
  data.blob.size_bytes = 1010;
  EXPECT_TRUE(HasValidation(data, 100));
  data.format = "uint16";
  EXPECT_FALSE(HasValidation(data, 100));
}

ir::DataStream Tokens(int64_t tokens, double fraction) {
  ir::DataStream stream;
  stream.files = {{.blob = {"", tokens * 4, "a"}}};
  stream.validation_fraction = fraction;
  stream.fields = {{"window", ir::Element::kU32, {}, {{0, 0, tokens}}, {}}};
  return stream;
}

// By hand: 21 tokens are 2 windows of 10 with their last label; 20 are one.
TEST(CountsOf, AWindowNeedsItsLastLabelToo) {
  EXPECT_EQ(CountsOf(Tokens(21, 0), 10), (StreamCounts{21, 21, 0, 2, 0}));
  EXPECT_EQ(CountsOf(Tokens(20, 0), 10), (StreamCounts{20, 20, 0, 1, 0}));
  EXPECT_EQ(CountsOf(Tokens(10, 0), 10), (StreamCounts{10, 10, 0, 0, 0}));
  EXPECT_EQ(CountsOf(Tokens(43, 0.5), 10), (StreamCounts{43, 22, 21, 2, 2}));
}

TEST(CountsOf, ARecordIsASample) {
  ir::DataStream records = Tokens(10, 0.25);
  records.kind = ir::DataKind::kRecords;
  EXPECT_EQ(CountsOf(records, 100), (StreamCounts{10, 8, 2, 8, 2}));
  records.fields[0].validation = {{0, 0, 3}};
  EXPECT_EQ(CountsOf(records, 100), (StreamCounts{10, 10, 3, 10, 3}));
}

TEST(CountsOf, AHostActorMakesAsManyAsAreAskedFor) {
  ir::DataStream stream;
  stream.kind = ir::DataKind::kRecords;
  stream.fields = {{"x", ir::Element::kF32, {4}, {}, {}}};
  stream.actor.type = "maker";
  EXPECT_TRUE(CheckEnough(stream, 1).ok());
  EXPECT_EQ(CountsOf(stream, 1).training_samples, INT64_MAX);
  ir::DataSpec data;
  data.streams = {stream};
  EXPECT_FALSE(HasValidation(data, 1));
  data.streams[0].actor.validation_rows = 3;
  EXPECT_TRUE(HasValidation(data, 1));
  EXPECT_EQ(CountsOf(data.streams[0], 1).validation_samples, 3);
}

TEST(HasValidation, EveryStreamNeedsIt) {
  ir::DataSpec data;
  data.streams = {Tokens(100, 0.5), Tokens(100, 0)};
  EXPECT_FALSE(HasValidation(data, 10));
  data.streams[1].validation_fraction = 0.2;
  EXPECT_TRUE(HasValidation(data, 10));
}

}  // namespace
}  // namespace meshwright::data
