#include <rapidcheck/gtest.h>

#include <set>

#include "base/half.h"
#include "data/convert.h"
#include "tests/unit/data/data_files.h"

namespace meshwright::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// safetensors.numpy.save of safetensors 0.8: x f32[3,2] 0..5, label i64[3] 2 0 1, image u8[3,2,2]
// 0..11.
constexpr char kRecords[] =
    "b8000000000000007b226c6162656c223a7b226474797065223a22493634222c227368617065223a5b335d2c226461"
    "74615f6f666673657473223a5b302c32345d7d2c2278223a7b226474797065223a22463332222c227368617065223a"
    "5b332c325d2c22646174615f6f666673657473223a5b32342c34385d7d2c22696d616765223a7b226474797065223a"
    "225538222c227368617065223a5b332c322c325d2c22646174615f6f666673657473223a5b34382c36305d7d7d2020"
    "20202020020000000000000000000000000000000100000000000000000000000000803f0000004000004040000080"
    "400000a040000102030405060708090a0b";

class RecordStreamTest : public DataFilesTest {
 protected:
  std::string Npy(const std::string& name, const std::string& descr, const std::string& shape,
                  const std::string& data) {
    const std::string dict =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},{}), }}\n", descr,
                    shape.substr(0, shape.find(',')),
                    shape.find(',') == std::string::npos ? "" : shape.substr(shape.find(',') + 1));
    std::string bytes("\x93NUMPY\x01\x00", 8);
    bytes.push_back(static_cast<char>(dict.size()));
    bytes.push_back('\0');
    return Write(name, bytes + dict + data);
  }
  template <typename T>
  std::string NpyOf(const std::string& name, const std::string& descr, const std::string& shape,
                    const std::vector<T>& values) {
    return Npy(name, descr, shape,
               {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
  // Rows n, n + 1, ...: x = {10 * n, 10 * n + 1} as f32, y = n as i32.
  std::vector<std::string> Pairs(const std::string& folder, int64_t rows, int64_t begin = 0) {
    std::vector<float> x;
    std::vector<int32_t> y;
    for (int64_t n = begin; n < begin + rows; ++n) {
      x.push_back(static_cast<float>(10 * n));
      x.push_back(static_cast<float>(10 * n + 1));
      y.push_back(static_cast<int32_t>(n));
    }
    return {NpyOf(folder + "/x.npy", "<f4", fmt::format("{},2", rows), x),
            NpyOf(folder + "/y.npy", "<i4", std::to_string(rows), y)};
  }
};

TEST_F(RecordStreamTest, ReadsWhatSafetensorsWrites) {
  const auto stream = Describe("safetensors", {Write("a.safetensors", FromHex(kRecords))});
  ASSERT_EQ(stream.kind, ir::DataKind::kRecords);
  auto source = Open(stream, {1, 0, 0});
  std::set<int64_t> seen;
  for (int64_t n = 0; n < 3; ++n) {
    const auto record = source->Find("tokens")->TrainingItem(n);
    seen.insert(record);
    const auto first = static_cast<float>(2 * record);
    EXPECT_THAT(Row<float>(*source, "tokens/x", n, 2, ir::DType::kF32),
                ElementsAre(first, first + 1));
    const std::vector<int64_t> labels = {2, 0, 1};
    EXPECT_THAT(Row<int32_t>(*source, "tokens/label", n, 1, ir::DType::kI32),
                ElementsAre(labels[static_cast<size_t>(record)]));
    const auto pixel = static_cast<float>(4 * record);
    EXPECT_THAT(Row<float>(*source, "tokens/image", n, 4, ir::DType::kF32),
                ElementsAre(pixel, pixel + 1, pixel + 2, pixel + 3));
  }
  EXPECT_EQ(seen.size(), 3);
}

// Rows of different arrays stay together over files of different lengths, in every epoch.
TEST_F(RecordStreamTest, RowsOfAllFieldsBelongTogether) {
  std::vector<std::string> paths;
  int64_t begin = 0;
  for (const int64_t rows : {5, 1, 17, 9}) {
    const auto pair = Pairs(fmt::format("part-{}", paths.size() / 2), rows, begin);
    paths.insert(paths.end(), pair.begin(), pair.end());
    begin += rows;
  }
  auto source = Open(Describe("npy", paths, 0.25), {1, 7, 0});
  const StreamCounts counts = source->Find("tokens")->counts();
  EXPECT_EQ(counts, (StreamCounts{32, 24, 8, 24, 8}));
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> order;
    for (int64_t i = 0; i < 24; ++i) {
      const int64_t n = epoch * 24 + i;
      order.push_back(Row<int32_t>(*source, "tokens/y", n, 1, ir::DType::kI32)[0]);
      const auto x = static_cast<float>(10 * order.back());
      ASSERT_THAT(Row<float>(*source, "tokens/x", n, 2, ir::DType::kF32), ElementsAre(x, x + 1));
    }
    // Every record of the training part once, none of the tail.
    EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), 24);
    EXPECT_LT(*std::max_element(order.begin(), order.end()), 24);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  for (int64_t n = 0; n < 16; ++n) {
    EXPECT_THAT(Row<int32_t>(*source, "validation:tokens/y", n, 1, ir::DType::kI32),
                ElementsAre(24 + n % 8));
  }
}

TEST_F(RecordStreamTest, FieldsAreNamedByFilesOrByTheRequest) {
  const auto pair = Pairs("p", 4);
  const auto by_folder = Describe("npy", {dir_.File("p")});
  EXPECT_EQ(by_folder.fields[0].name, "x");
  EXPECT_EQ(by_folder.fields[1].name, "y");
  const auto named = Describe("npy", {"features=" + pair[0], "label=" + pair[1]});
  EXPECT_EQ(named.fields[0].name, "features");
  EXPECT_EQ(named.fields[1].name, "label");
  NpyOf<float>("shards/x-0.npy", "<f4", "2", {1, 2});
  NpyOf<float>("shards/x-1.npy", "<f4", "1", {3});
  const auto shards = Describe("npy", {"x=" + dir_.File("shards/x-*.npy")});
  ASSERT_EQ(shards.fields.size(), 1);
  EXPECT_EQ(shards.fields[0].slices.size(), 2);
}

TEST_F(RecordStreamTest, ValidationFilesHaveTheSameFields) {
  std::vector<std::string> train = Pairs("train", 6);
  auto stream = Describe("npy", train, 0.5, Pairs("held", 3, 100));
  auto source = Open(stream, {1, 0, 0});
  EXPECT_EQ(source->Find("tokens")->counts(), (StreamCounts{6, 6, 3, 6, 3}));
  EXPECT_THAT(Row<int32_t>(*source, "validation:tokens/y", 4, 1, ir::DType::kI32),
              ElementsAre(101));
  FilesRequest request;
  request.format = "npy";
  request.paths = {train[0]};
  request.validation_paths = {dir_.File("held/y.npy")};
  const auto other = DescribeFiles(request);
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message(), HasSubstr("has the field 'y'"));
}

TEST_F(RecordStreamTest, FilesThatDoNotFitTogetherAreNamed) {
  const auto pair = Pairs("p", 4);
  const std::string more = NpyOf<int32_t>("z.npy", "<i4", "5", {1, 2, 3, 4, 5});
  EXPECT_THAT(DescribeFails("npy", {pair[0], more}),
              AllOf(HasSubstr("'z' has 5 rows"), HasSubstr("'x' has 4")));
  const std::string wide = NpyOf<float>("q/x.npy", "<f4", "1,3", {1, 2, 3});
  EXPECT_THAT(DescribeFails("npy", {pair[0], wide}), HasSubstr("items of f32[3]"));
  const std::string other = NpyOf<double>("r/x.npy", "<f8", "1,2", {1, 2});
  EXPECT_THAT(DescribeFails("npy", {pair[0], other}), HasSubstr("items of f64[2]"));
  EXPECT_THAT(DescribeFails("npy", {dir_.File("none.npy")}, StatusCode::kNotFound),
              HasSubstr("none.npy"));
  EXPECT_THAT(DescribeFails("npz", {pair[0]}), HasSubstr("unknown data format 'npz'"));
  std::string uneven = FromHex(kRecords);
  // "label" gets the shape of 2 rows of 12 bytes: another first dim than the others.
  const size_t at = uneven.find("\"shape\":[3]");
  uneven.replace(at, 11, "\"shape\":[3]");
  EXPECT_THAT(DescribeFails("safetensors", {Write("cut.safetensors", uneven.substr(0, 200))}),
              HasSubstr("cut.safetensors"));
}

TEST_F(RecordStreamTest, TensorsOfOneFileNeedEquallyManyRows) {
  const std::string json = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"F32","shape":[3],"data_offsets":[8,20]}})";
  const uint64_t length = json.size();
  const std::string file =
      std::string(reinterpret_cast<const char*>(&length), 8) + json + std::string(20, '\0');
  EXPECT_THAT(DescribeFails("safetensors", {Write("u.safetensors", file)}),
              AllOf(HasSubstr("u.safetensors"), HasSubstr("'b' has 3 rows and 'a' 2")));
}

TEST_F(RecordStreamTest, TypesThatDoNotHoldAFieldAreRefused) {
  auto source = Open(Describe("npy", {NpyOf<int64_t>("n.npy", "<i8", "1", {int64_t{1} << 40}),
                                      NpyOf<double>("d.npy", "<f8", "1", {0.1})}),
                     {1, 0, 0});
  EXPECT_THAT(Row<int64_t>(*source, "tokens/n", 0, 1, ir::DType::kI64),
              ElementsAre(int64_t{1} << 40));
  EXPECT_THAT(ReadFails(*source, "tokens/n", 0, 4, ir::DType::kI32, StatusCode::kInvalidArgument),
              AllOf(HasSubstr("a value of i64 does not fit i32"), HasSubstr("record 0")));
  EXPECT_THAT(ReadFails(*source, "tokens/n", 0, 4, ir::DType::kF32, StatusCode::kInvalidArgument),
              HasSubstr("a row of 4 bytes of f32"));
  EXPECT_THAT(Row<float>(*source, "tokens/d", 0, 1, ir::DType::kF32), ElementsAre(0.1f));
  EXPECT_THAT(ReadFails(*source, "tokens/d", 0, 4, ir::DType::kI32, StatusCode::kInvalidArgument),
              HasSubstr("elements of f64"));
}

// Every element type as every type of a graph that may read it, against the language's own casts.
TEST(ConvertElements, KeepsValues) {
  const std::vector<int8_t> small = {-3, 0, 127, -128};
  const auto bytes = std::as_bytes(std::span(small));
  std::vector<float> floats(4);
  EXPECT_EQ(ConvertElements(ir::Element::kI8, bytes, ir::DType::kF32,
                            std::as_writable_bytes(std::span(floats)).data()),
            -1);
  EXPECT_THAT(floats, ElementsAre(-3.f, 0.f, 127.f, -128.f));
  std::vector<int32_t> words(4);
  EXPECT_EQ(ConvertElements(ir::Element::kU8, bytes, ir::DType::kI32,
                            std::as_writable_bytes(std::span(words)).data()),
            -1);
  EXPECT_THAT(words, ElementsAre(253, 0, 127, 128));
  std::vector<std::byte> flags(4);
  EXPECT_EQ(ConvertElements(ir::Element::kBool, bytes, ir::DType::kBool, flags.data()), -1);
  EXPECT_THAT(flags, ElementsAre(std::byte{1}, std::byte{0}, std::byte{1}, std::byte{1}));
  const std::vector<uint16_t> halves = {FloatToF16(1.5f), FloatToBf16(-2.25f)};
  std::vector<double> wide(1);
  const auto half_bytes = std::as_bytes(std::span(halves));
  const auto to = std::as_writable_bytes(std::span(wide)).data();
  EXPECT_EQ(ConvertElements(ir::Element::kF16, half_bytes.first(2), ir::DType::kF64, to), -1);
  EXPECT_EQ(wide[0], 1.5);
  EXPECT_EQ(ConvertElements(ir::Element::kBF16, half_bytes.subspan(2), ir::DType::kF64, to), -1);
  EXPECT_EQ(wide[0], -2.25);
}

RC_GTEST_PROP(ConvertElements, NarrowsOnlyWhatFits, ()) {
  const auto values = *rc::gen::container<std::vector<int64_t>>(
      5, rc::gen::oneOf(rc::gen::arbitrary<int64_t>(),
                        rc::gen::map(rc::gen::arbitrary<int32_t>(),
                                     [](int32_t value) { return int64_t{value}; })));
  std::vector<int32_t> out(5, 99);
  const int64_t misfit =
      ConvertElements(ir::Element::kI64, std::as_bytes(std::span(values)), ir::DType::kI32,
                      std::as_writable_bytes(std::span(out)).data());
  int64_t expected = -1;
  for (size_t i = 0; i < values.size() && expected < 0; ++i) {
    if (values[i] > INT32_MAX || values[i] < INT32_MIN) {
      expected = static_cast<int64_t>(i);
    } else {
      RC_ASSERT(out[i] == values[i]);
    }
  }
  RC_ASSERT(misfit == expected);
}

}  // namespace
}  // namespace meshwright::data
