// What a job says of its data: refused where it contradicts itself, whatever its numbers.
#include "ir/data_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ir/job.h"

namespace meshwright::ir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 4 records of an image u8[2,3] and a label i64, in one file each.
DataSpec Records() {
  DataStream stream;
  stream.name = "digits";
  stream.kind = DataKind::kRecords;
  stream.files = {{.blob = {"", 24, "x.npy"}}, {.blob = {"", 32, "y.npy"}}};
  stream.fields = {{"image", Element::kU8, {2, 3}, {{0, 0, 4}}, {}},
                   {"label", Element::kI64, {}, {{1, 0, 4}}, {}}};
  DataSpec data;
  data.streams = {stream};
  return data;
}

std::string Refused(const DataSpec& data) {
  const Status status = CheckDataSpec(data);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return status.message();
}

template <typename Edit>
std::string RefusedAfter(Edit edit) {
  DataSpec data = Records();
  edit(data.streams[0]);
  return Refused(data);
}

TEST(CheckDataSpec, AcceptsRecordsAndASingleFileOfTokens) {
  EXPECT_TRUE(CheckDataSpec(Records()).ok());
  EXPECT_TRUE(CheckDataSpec(DataSpec()).ok());
}

TEST(CheckDataSpec, NamesWhatContradictsItself) {
  EXPECT_THAT(RefusedAfter([](DataStream& s) { s.name = "a/b"; }), HasSubstr("'a/b'"));
  EXPECT_THAT(RefusedAfter([](DataStream& s) { s.fields[1].name = "image"; }),
              HasSubstr("'image' is used twice"));
  EXPECT_THAT(RefusedAfter([](DataStream& s) { s.fields.clear(); }), HasSubstr("at least one"));
  EXPECT_THAT(RefusedAfter([](DataStream& s) { s.validation_fraction = 0.6; }),
              HasSubstr("must be in [0, 0.5]"));
  EXPECT_THAT(RefusedAfter([](DataStream& s) {
                s.validation_fraction = std::numeric_limits<double>::quiet_NaN();
              }),
              HasSubstr("must be in [0, 0.5]"));
  EXPECT_THAT(RefusedAfter([](DataStream& s) { s.fields[1].slices[0].items = 3; }),
              AllOf(HasSubstr("'label' has 3 rows"), HasSubstr("'image' has 4")));
  EXPECT_THAT(RefusedAfter([](DataStream& s) { s.kind = DataKind::kTokens; }),
              HasSubstr("tokens are one field of plain integers"));
  DataSpec twice = Records();
  twice.streams.push_back(twice.streams[0]);
  EXPECT_THAT(Refused(twice), HasSubstr("two streams have the name 'digits'"));
  DataSpec format;
  format.format = "utf8";
  EXPECT_THAT(Refused(format), HasSubstr("'utf8'; known: bytes, uint16, uint32"));
}

TEST(CheckDataSpec, SlicesStayInTheirFiles) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const DataSlice slices[] = {{0, 1, 4}, {0, 0, 5},  {0, -1, 4},    {0, 0, -1},
                              {2, 0, 4}, {-1, 0, 4}, {0, 0, kHuge}, {0, kHuge, 4}};
  for (const DataSlice& slice : slices) {
    EXPECT_THAT(RefusedAfter([&](DataStream& s) { s.fields[0].slices = {slice}; }),
                HasSubstr("leave it"))
        << slice.file << " " << slice.begin_bytes << " " << slice.items;
  }
  EXPECT_THAT(RefusedAfter([](DataStream& s) {
                s.fields[0].item = {0, 3};
              }),
              HasSubstr("at least 1"));
  EXPECT_THAT(RefusedAfter([](DataStream& s) {
                s.fields[0].item = {kHuge, 2};
              }),
              HasSubstr("fit in memory"));
}

TEST(CheckFeed, ReadsAFieldAsATypeThatHoldsIt) {
  const std::vector<DataStream> streams = StreamsOf(Records()).value();
  const auto check = [&](const char* source, TensorType type) {
    return CheckFeed(streams, source, type, 7).message();
  };
  EXPECT_EQ(check("digits/image", {DType::kF32, {8, 2, 3}}), "");
  EXPECT_EQ(check("validation:digits/image", {DType::kI32, {8, 2, 3}}), "");
  EXPECT_EQ(check("digits/label", {DType::kI32, {8}}), "");
  EXPECT_THAT(check("digits/label", {DType::kF32, {8}}), HasSubstr("rows of i64[]"));
  EXPECT_THAT(check("digits/image", {DType::kF32, {8, 6}}),
              AllOf(HasSubstr("f32[8,6]"), HasSubstr("u8[2,3]")));
  EXPECT_THAT(check("digits/mask", {DType::kF32, {8}}), HasSubstr("known: image, label"));
  EXPECT_THAT(check("digits", {DType::kF32, {8}}), HasSubstr("known: image, label"));
  EXPECT_THAT(check("letters/image", {DType::kF32, {8}}), HasSubstr("known: digits"));
}

TEST(CheckFeed, WindowsHaveOneTokenMoreThanTheSequence) {
  const std::vector<DataStream> streams = StreamsOf(DataSpec()).value();
  const auto check = [&](const char* source, TensorType type) {
    return CheckFeed(streams, source, type, 7).message();
  };
  EXPECT_EQ(check("tokens", {DType::kI32, {4, 8}}), "");
  EXPECT_EQ(check("tokens/window", {DType::kI32, {4, 8}}), "");
  EXPECT_THAT(check("tokens", {DType::kI32, {4, 7}}), HasSubstr("need i32[4,8]"));
  EXPECT_THAT(check("tokens", {DType::kF32, {4, 8}}), HasSubstr("need i32[4,8]"));
}

TEST(FeedName, HasAPartAStreamAndAField) {
  const FeedName name = ParseFeedName("validation:digits/image");
  EXPECT_EQ(name.stream, "digits");
  EXPECT_EQ(name.field, "image");
  EXPECT_TRUE(name.validation);
  EXPECT_EQ(ParseFeedName("tokens").stream, "tokens");
  EXPECT_EQ(ParseFeedName("tokens").field, "");
  EXPECT_FALSE(ParseFeedName("tokens").validation);
  EXPECT_EQ(ValidationFeed("digits/image"), "validation:digits/image");
  EXPECT_EQ(ValidationFeed("validation:digits/image"), "validation:digits/image");
}

TEST(Element, IsReadAsTypesThatHoldItsValues) {
  EXPECT_TRUE(ReadableAs(Element::kU8, DType::kF32));
  EXPECT_TRUE(ReadableAs(Element::kU16, DType::kF32));
  EXPECT_FALSE(ReadableAs(Element::kI32, DType::kF32));  // 24 bits of mantissa
  EXPECT_TRUE(ReadableAs(Element::kU32, DType::kF64));
  EXPECT_FALSE(ReadableAs(Element::kI64, DType::kF64));
  EXPECT_TRUE(ReadableAs(Element::kI64, DType::kI32));  // checked value by value
  EXPECT_TRUE(ReadableAs(Element::kBool, DType::kF32));
  EXPECT_FALSE(ReadableAs(Element::kU8, DType::kBool));
  EXPECT_FALSE(ReadableAs(Element::kF32, DType::kI32));
  EXPECT_TRUE(ReadableAs(Element::kF64, DType::kF32));
  EXPECT_FALSE(ReadableAs(Element::kF32, DType::kBF16));
  EXPECT_TRUE(ReadableAs(Element::kBF16, DType::kBF16));
  EXPECT_EQ(ParseElement("u16").value(), Element::kU16);
  EXPECT_FALSE(ParseElement("f8").has_value());
  EXPECT_EQ(ElementOfSafetensors("BF16"), Element::kBF16);
  EXPECT_EQ(ElementOfSafetensors("F8_E4M3"), std::nullopt);
}

TEST(BlobsOf, AreTheFilesThatAreNotInPlace) {
  JobRequest job;
  job.data.blob = {"ab", 10, "a"};
  job.init_weights.blob = {"cd", 10, "w"};
  ASSERT_EQ(BlobsOf(job).size(), 2);
  EXPECT_EQ(BlobsOf(job)[1].sha256, "cd");
  job.data = Records();
  job.data.streams[0].files[0].root = "/data";
  job.data.streams[0].files[1].blob.sha256 = "ef";
  job.init_weights = {};
  ASSERT_EQ(BlobsOf(job).size(), 1);
  EXPECT_EQ(BlobsOf(job)[0].sha256, "ef");
}

}  // namespace
}  // namespace meshwright::ir
