#include "formats/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "formats/float8.h"
#include "ir/builder.h"

namespace meshwright::formats {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "safetensors_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string WriteRaw(const std::string& bytes) const {
    std::ofstream(Path("raw.safetensors"), std::ios::binary) << bytes;
    return Path("raw.safetensors");
  }
  size_t FilesInFolder() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// A file with this header text and that many data bytes.
std::string Raw(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  return file + header + std::string(data_bytes, '\1');
}

Status ParseRaw(const std::string& file) {
  const auto result =
      ParseSafetensorsHeader(std::as_bytes(std::span(file)), static_cast<int64_t>(file.size()));
  return result ? OkStatus() : result.error();
}

std::vector<float> Ramp(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

ir::Node Param(ir::Attrs attrs) {
  ir::Node node;
  node.op = ir::Op::kParam;
  node.attrs = std::move(attrs);
  return node;
}

TEST_F(SafetensorsTest, WritesThePublishedByteVector) {
  auto writer = SafetensorsWriter::Create(
      Path("v.safetensors"), {{"b", {ir::DType::kBF16, {3}}}, {"a", {ir::DType::kF32, {2, 2}}}});
  ASSERT_TRUE(writer) << writer.error();
  ASSERT_TRUE((*writer)->Write("a", 0, Bytes(Ramp(4))).ok());
  ASSERT_TRUE((*writer)->Write("b", 0, Bytes(std::vector<uint16_t>{1, 2, 3})).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const std::string file = ReadAll(Path("v.safetensors"));
  EXPECT_EQ(file.size(), 174u);
  EXPECT_EQ(file.substr(0, 8), std::string("\x90\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(
      file.substr(8, 144),
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})");
}

TEST_F(SafetensorsTest, ReaderReturnsWhatTheWriterWrote) {
  auto writer =
      SafetensorsWriter::Create(Path("r.safetensors"), {{"x", {ir::DType::kI64, {2}}},
                                                        {"scalar", {ir::DType::kF32, {}}},
                                                        {"empty", {ir::DType::kF32, {0, 4}}},
                                                        {"q\"uote\n", {ir::DType::kF64, {1}}}});
  ASSERT_TRUE(writer) << writer.error();
  ASSERT_TRUE((*writer)->Write("x", 1, Bytes(std::vector<int64_t>{8})).ok());
  ASSERT_TRUE((*writer)->Write("x", 0, Bytes(std::vector<int64_t>{7})).ok());
  ASSERT_TRUE((*writer)->Write("scalar", 0, Bytes(std::vector<float>{2.5F})).ok());
  ASSERT_TRUE((*writer)->Write("q\"uote\n", 0, Bytes(std::vector<double>{-1})).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(Path("r.safetensors"));
  ASSERT_TRUE(file) << file.error();
  ASSERT_EQ((*file)->entries().size(), 4u);
  EXPECT_EQ((*file)->entries()[0].name,
            "x");  // dtype order of the format: I64 before F64 before F32
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  const SafetensorsEntry* x = (*file)->Find("x");
  ASSERT_NE(x, nullptr);
  int64_t values[2];
  std::memcpy(values, (*file)->data(*x).data(), sizeof values);
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[1], 8);
  ASSERT_NE((*file)->Find("q\"uote\n"), nullptr);
  EXPECT_EQ((*file)->Find("empty")->shape, (ir::Dims{0, 4}));
  EXPECT_EQ((*file)->Find("nothing"), nullptr);
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(SafetensorsTest, AbandonedWriterLeavesNothingAndKeepsTheOldFile) {
  const std::string path = WriteRaw("old");
  {
    auto writer = SafetensorsWriter::Create(path, {{"a", {ir::DType::kF32, {4}}}});
    ASSERT_TRUE(writer);
    EXPECT_EQ(FilesInFolder(), 2u);
  }
  EXPECT_EQ(FilesInFolder(), 1u);
  EXPECT_EQ(ReadAll(path), "old");
}

TEST_F(SafetensorsTest, FinishRefusesAnIncompleteTensorByName) {
  auto writer = SafetensorsWriter::Create(Path("i"), {{"half", {ir::DType::kF32, {4}}}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->Write("half", 0, Bytes(Ramp(2))).ok());
  const Status status = (*writer)->Finish();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("8 of 16 bytes of tensor 'half'"), std::string::npos) << status;
}

TEST_F(SafetensorsTest, WriterRejectsWritesOutsideATensor) {
  auto writer = SafetensorsWriter::Create(Path("o"), {{"a", {ir::DType::kF32, {2, 2}}}});
  ASSERT_TRUE(writer);
  EXPECT_EQ((*writer)->Write("a", 1, Bytes(Ramp(4))).code(), StatusCode::kOutOfRange);
  EXPECT_EQ((*writer)->Write("b", 0, Bytes(Ramp(4))).code(), StatusCode::kNotFound);
  EXPECT_EQ((*writer)->WriteBox("a", {{1, 0}, {2, 2}}, Bytes(Ramp(4))).code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ((*writer)->WriteBox("a", {{0, 0}, {1, 2}}, Bytes(Ramp(4))).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsTest, FullDiskIsResourceExhaustedAndNamesThePath) {
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto writer = SafetensorsWriter::Create(Path("big"), {{"a", {ir::DType::kF32, {1 << 20}}}});
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code(), StatusCode::kResourceExhausted) << writer.error();
  EXPECT_NE(writer.error().message().find(Path("big")), std::string::npos);
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(SafetensorsTest, MissingFolderAndMissingFileAreNotFound) {
  EXPECT_EQ(SafetensorsWriter::Create(Path("no/such"), {}).error().code(), StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(Path("none")).error().code(), StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, OpenNamesThePathOfABrokenFile) {
  const std::string path = WriteRaw(Raw("{}", 3));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message().find(path), std::string::npos);
}

struct Rejection {
  const char* name;
  const char* header;
  size_t data_bytes;
  const char* message;
};

class SafetensorsReader : public ::testing::TestWithParam<Rejection> {};

TEST_P(SafetensorsReader, RejectsMalformedHeader) {
  const Status status = ParseRaw(Raw(GetParam().header, GetParam().data_bytes));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(GetParam().message), std::string::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsReader,
    ::testing::Values(
        Rejection{"NotJson", "{nonsense", 0, "not JSON"},
        Rejection{"NotAnObject", "[]", 0, "start with"},
        Rejection{"NotUtf8", "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
                  4, "not JSON"},
        Rejection{"FirstBeginNotZero", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  8, "gap"},
        Rejection{"Gap",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8",)"
                  R"("shape":[1],"data_offsets":[2,3]}})",
                  3, "gap"},
        Rejection{"Overlap",
                  R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8",)"
                  R"("shape":[2],"data_offsets":[1,3]}})",
                  3, "overlap"},
        Rejection{"EndBeforeBegin",
                  R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8",)"
                  R"("shape":[1],"data_offsets":[0,-1]}})",
                  0, "negative number"},
        Rejection{"SizeMismatch", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                  "takes 8 bytes"},
        Rejection{"Overflow",
                  R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
                  4, "overflows"},
        Rejection{"HalfBytes", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1,
                  "whole bytes"},
        Rejection{"TrailingBytes", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
                  "longer than it says"},
        Rejection{"Truncated", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 2,
                  "truncated"},
        Rejection{"DuplicateName",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8",)"
                  R"("shape":[1],"data_offsets":[1,2]}})",
                  2, "appears twice"},
        Rejection{"DuplicateField",
                  R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
                  "twice"},
        Rejection{"MissingField", R"({"a":{"dtype":"U8","shape":[1]}})", 1,
                  "no field 'data_offsets'"},
        Rejection{"UnknownDType", R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4,
                  "unknown dtype 'F99'"},
        Rejection{"MetadataNotString", R"({"__metadata__":{"format":1}})", 0, "unexpected number"},
        Rejection{"FractionalShape", R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})",
                  1, "fractional"},
        Rejection{"EntryNotAnObject", R"({"a":3})", 0, "unexpected number"}),
    [](const auto& rejection) { return std::string(rejection.param.name); });

TEST(SafetensorsReaderLength, RejectsHeaderLongerThanTheFileOrTheLimit) {
  std::string file = Raw("{}", 0);
  file[0] = 100;
  EXPECT_NE(ParseRaw(file).message().find("the file has 2"), std::string::npos);
  const uint64_t huge = 100'000'001;
  std::memcpy(file.data(), &huge, 8);
  EXPECT_NE(ParseRaw(file).message().find("at most 100000000"), std::string::npos);
  EXPECT_FALSE(ParseRaw(std::string(7, 'x')).ok());
  EXPECT_FALSE(ParseRaw(std::string(8, '\0')).ok());
}

TEST(SafetensorsReaderLeniency, AcceptsPaddingMetadataUnknownFieldsAndForeignTypes) {
  const Status status = ParseRaw(
      Raw(R"({"b":{"dtype":"F8_E4M3","extra":{"deep":[1,{"a":null}]},"shape":[2],)"
          R"("data_offsets":[4,6]},)"
          R"("a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"},"__metadata__":{"k":"v"}}   )",
          6));
  EXPECT_TRUE(status.ok()) << status;
}

TEST(SafetensorsReaderFuzz, MutatedHeadersNeverCrash) {
  const std::string good = Raw(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})",
      16);
  EXPECT_TRUE(rc::check("a flipped byte parses or fails cleanly", [&] {
    std::string file = good;
    for (int i = 0; i < *rc::gen::inRange(1, 4); ++i) {
      file[*rc::gen::inRange<size_t>(0, file.size())] = *rc::gen::arbitrary<char>();
    }
    file.resize(*rc::gen::inRange<size_t>(0, file.size() + 1));
    const Status status = ParseRaw(file);
    RC_ASSERT(status.ok() || status.code() == StatusCode::kInvalidArgument);
  }));
}

TEST_F(SafetensorsTest, LinearWeightIsExportedTransposed) {
  // LLaMA's q projection: logical [d=2, h=2, e=3] -> nn.Linear [h*e=6, d=2].
  const ir::Node param = Param({{"name", "q"},
                                {"export_name", "q_proj.weight"},
                                {"export_perm", std::vector<int64_t>{1, 2, 0}},
                                {"export_shape", std::vector<int64_t>{6, 2}}});
  const ir::TensorType logical{ir::DType::kF32, {2, 2, 3}};
  const auto type = ExportType(param, logical);
  ASSERT_TRUE(type);
  EXPECT_EQ(type->ToString(), "f32[6,2]");
  auto writer = SafetensorsWriter::Create(Path("q"), {{"q_proj.weight", *type}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(WriteLogicalTile(**writer, param, logical, {}, Bytes(Ramp(12))).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(Path("q"));
  ASSERT_TRUE(file);
  std::vector<float> stored(12);
  std::memcpy(stored.data(), (*file)->data((*file)->entries()[0]).data(), 48);
  EXPECT_EQ(stored, (std::vector<float>{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11}));
}

// Phi-3's queries, keys and values: three params, one tensor of the file.
TEST_F(SafetensorsTest, ParamsShareATensorByRuns) {
  const auto part = [](const char* name, int64_t first, int64_t rows) {
    return Param({{"name", std::string(name)},
                  {"export_name", "qkv"},
                  {"export_perm", std::vector<int64_t>{1, 0}},
                  {"export_row", first},
                  {"export_rows", rows}});
  };
  const ir::TensorType wide{ir::DType::kF32, {2, 3}};
  const ir::TensorType narrow{ir::DType::kF32, {2, 1}};
  const ir::Node q = part("q", 0, 5);
  const ir::Node k = part("k", 3, 5);
  const ir::Node v = part("v", 4, 5);
  const auto tensors =
      TensorsOf({*ExportLayoutOf(q, wide), *ExportLayoutOf(k, narrow), *ExportLayoutOf(v, narrow)});
  ASSERT_TRUE(tensors) << tensors.error();
  ASSERT_EQ(tensors->size(), 1u);
  EXPECT_EQ((*tensors)[0].type.ToString(), "f32[5,2]");
  auto writer = SafetensorsWriter::Create(Path("s"), *tensors);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(WriteLogicalTile(**writer, q, wide, {}, Bytes(Ramp(6))).ok());
  ASSERT_TRUE(WriteLogicalTile(**writer, v, narrow, {}, Bytes(std::vector<float>{8, 9})).ok());
  EXPECT_EQ((*writer)->Finish().code(), StatusCode::kFailedPrecondition) << "k is not written";
  ASSERT_TRUE(WriteLogicalTile(**writer, k, narrow, {}, Bytes(std::vector<float>{6, 7})).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(Path("s"));
  ASSERT_TRUE(file);
  std::vector<float> stored(10);
  std::memcpy(stored.data(), (*file)->data((*file)->entries()[0]).data(), 40);
  EXPECT_EQ(stored, (std::vector<float>{0, 3, 1, 4, 2, 5, 6, 7, 8, 9}));
  const auto read = ReadLogicalTile(**file, v, narrow, {});
  ASSERT_TRUE(read) << read.error();
  std::vector<float> values(2);
  std::memcpy(values.data(), read->data(), 8);
  EXPECT_EQ(values, (std::vector<float>{8, 9}));
  const auto beyond = ExportLayoutOf(part("w", 5, 5), narrow);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message().find("no run of 5 rows from 5 on"), std::string::npos);
  const auto twice = TensorsOf({*ExportLayoutOf(q, wide), *ExportLayoutOf(part("x", 0, 3), wide)});
  EXPECT_FALSE(twice) << "of 5 rows, and of 3";
}

// A mixture's experts: the first dim numbers tensors, of which a tile has some.
TEST_F(SafetensorsTest, PlacesOfTheFirstDimAreTensorsOfTheirOwn) {
  const ir::Node param = Param({{"name", std::string("w")},
                                {"export_name", std::string("experts.{}.w1")},
                                {"export_perm", std::vector<int64_t>{0, 2, 1}}});
  const ir::TensorType logical{ir::DType::kF32, {3, 2, 2}};
  const auto layout = ExportLayoutOf(param, logical);
  ASSERT_TRUE(layout) << layout.error();
  EXPECT_EQ(layout->parts, 3);
  const auto tensors = TensorsOf({*layout});
  ASSERT_TRUE(tensors) << tensors.error();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[2].name, "experts.2.w1");
  EXPECT_EQ((*tensors)[2].type.ToString(), "f32[2,2]");
  auto writer = SafetensorsWriter::Create(Path("s"), *tensors);
  ASSERT_TRUE(writer);
  const ir::Box first{{0, 0, 0}, {1, 2, 2}};
  const ir::Box others{{1, 0, 0}, {2, 2, 2}};
  ASSERT_TRUE(WriteLogicalTile(**writer, param, logical, first, Bytes(Ramp(4))).ok());
  EXPECT_FALSE(WriteLogicalTile(**writer, param, logical, others, Bytes(Ramp(4))).ok());
  ASSERT_TRUE(WriteLogicalTile(**writer, param, logical, others, Bytes(Ramp(8))).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(Path("s"));
  ASSERT_TRUE(file);
  std::vector<float> stored(4);
  std::memcpy(stored.data(), (*file)->data(*(*file)->Find("experts.2.w1")).data(), 16);
  EXPECT_EQ(stored, (std::vector<float>{4, 6, 5, 7}));
  // Columns of the last two experts.
  const auto read = ReadLogicalTile(**file, param, logical, {{1, 0, 1}, {2, 2, 1}});
  ASSERT_TRUE(read) << read.error();
  std::vector<float> values(4);
  std::memcpy(values.data(), read->data(), 16);
  EXPECT_EQ(values, (std::vector<float>{1, 3, 5, 7}));
  const ir::Node turned = Param({{"name", std::string("w")},
                                 {"export_name", std::string("experts.{}.w1")},
                                 {"export_perm", std::vector<int64_t>{1, 0, 2}}});
  EXPECT_FALSE(ExportLayoutOf(turned, logical)) << "another dim numbers them";
}

// gpt-oss: columns of two params in turn.
TEST_F(SafetensorsTest, ParamsShareATensorInTurn) {
  const auto part = [](const char* name, int64_t first) {
    return Param({{"name", std::string(name)},
                  {"export_name", std::string("both")},
                  {"export_dim", int64_t{2}},
                  {"export_step", int64_t{2}},
                  {"export_row", first},
                  {"export_rows", int64_t{6}}});
  };
  const ir::TensorType logical{ir::DType::kF32, {2, 1, 3}};
  const ir::Node gate = part("gate", 0);
  const ir::Node up = part("up", 1);
  const auto tensors = TensorsOf({*ExportLayoutOf(gate, logical), *ExportLayoutOf(up, logical)});
  ASSERT_TRUE(tensors) << tensors.error();
  ASSERT_EQ(tensors->size(), 1u);
  EXPECT_EQ((*tensors)[0].type.ToString(), "f32[2,1,6]");
  auto writer = SafetensorsWriter::Create(Path("s"), *tensors);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(WriteLogicalTile(**writer, gate, logical, {}, Bytes(Ramp(6))).ok());
  const std::vector<float> more = {10, 11, 12, 13, 14, 15};
  ASSERT_TRUE(WriteLogicalTile(**writer, up, logical, {}, Bytes(more)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(Path("s"));
  ASSERT_TRUE(file);
  std::vector<float> stored(12);
  std::memcpy(stored.data(), (*file)->data((*file)->entries()[0]).data(), 48);
  EXPECT_EQ(stored, (std::vector<float>{0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15}));
  EXPECT_FALSE(ExportLayoutOf(part("beyond", 2), logical)) << "the last column is the seventh";
}

TEST_F(SafetensorsTest, AWeightIsReadInItsSecondForm) {
  const ir::Node param = Param({{"name", std::string("w")},
                                {"export_name", std::string("experts.{}.up")},
                                {"export_perm", std::vector<int64_t>{0, 2, 1}},
                                {"stored_name", std::string("experts.gate_up")},
                                {"stored_perm", std::vector<int64_t>{0, 2, 1}},
                                {"stored_dim", int64_t{1}},
                                {"stored_row", int64_t{1}},
                                {"stored_rows", int64_t{2}}});
  const ir::TensorType logical{ir::DType::kF32, {2, 2, 1}};
  auto writer =
      SafetensorsWriter::Create(Path("s"), {{"experts.gate_up", {ir::DType::kF32, {2, 2, 2}}}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->Write("experts.gate_up", 0, Bytes(Ramp(8))).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(Path("s"));
  ASSERT_TRUE(file);
  const auto read = ReadLogicalTile(**file, param, logical, {});
  ASSERT_TRUE(read) << read.error();
  std::vector<float> values(4);
  std::memcpy(values.data(), read->data(), 16);
  EXPECT_EQ(values, (std::vector<float>{2, 3, 6, 7}));
}

TEST_F(SafetensorsTest, FloatsOfOneByteHaveTheirValues) {
  const Float8Reader small = FindFloat8("F8_E4M3");
  const Float8Reader large = FindFloat8("F8_E5M2");
  ASSERT_NE(small, nullptr);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(FindFloat8("F8_E8M0"), nullptr);
  EXPECT_EQ(small(0x38), 1);
  EXPECT_EQ(small(0xC4), -3);
  EXPECT_EQ(small(0x01), std::ldexp(1, -9));
  EXPECT_EQ(small(0x7E), 448);
  EXPECT_TRUE(std::isnan(small(0xFF)));
  EXPECT_EQ(large(0x3C), 1);
  EXPECT_EQ(large(0xC2), -3);
  EXPECT_EQ(large(0x7B), 57344);
  EXPECT_EQ(large(0xFC), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(large(0x7F)));
}

TEST_F(SafetensorsTest, TilesOfAnyGridRoundTripThroughTheExportedLayout) {
  EXPECT_TRUE(rc::check("tiles written one by one read back, and read back whole", [&] {
    const ir::TensorType logical{ir::DType::kF32, {4, 2, 6}};
    std::vector<int64_t> perm = {0, 1, 2};
    std::rotate(perm.begin(), perm.begin() + *rc::gen::inRange(0, 3), perm.end());
    if (*rc::gen::arbitrary<bool>()) std::swap(perm[0], perm[1]);
    const ir::Node param =
        Param({{"name", "p"}, {"export_perm", perm}, {"export_shape", ir::Dims{8, 6}}});
    const int64_t split0 = *rc::gen::element(1, 2, 4);
    const int64_t split2 = *rc::gen::element(1, 2, 3);
    const std::string path = Path("t");
    auto writer = SafetensorsWriter::Create(path, {{"p", *ExportType(param, logical)}});
    RC_ASSERT(writer.has_value());
    const std::vector<float> all = Ramp(48);
    const auto tile = [&](int64_t i, int64_t j) {
      const ir::Box box{{i * (4 / split0), 0, j * (6 / split2)}, {4 / split0, 2, 6 / split2}};
      std::vector<float> values;
      for (int64_t a = 0; a < box.size[0]; ++a) {
        for (int64_t b = 0; b < 2; ++b) {
          for (int64_t c = 0; c < box.size[2]; ++c) {
            const int64_t at = ((box.offset[0] + a) * 2 + b) * 6 + box.offset[2] + c;
            values.push_back(all[static_cast<size_t>(at)]);
          }
        }
      }
      return std::pair(box, values);
    };
    for (int64_t i = 0; i < split0; ++i) {
      for (int64_t j = 0; j < split2; ++j) {
        const auto [box, values] = tile(i, j);
        RC_ASSERT(WriteLogicalTile(**writer, param, logical, box, Bytes(values)).ok());
      }
    }
    RC_ASSERT((*writer)->Finish().ok());
    const auto file = SafetensorsFile::Open(path);
    RC_ASSERT(file.has_value());
    const auto whole = ReadLogicalTile(**file, param, logical, {});
    RC_ASSERT(whole.has_value());
    RC_ASSERT(std::memcmp(whole->data(), all.data(), 192) == 0);
    const auto [box, values] = tile(split0 - 1, split2 - 1);
    const auto part = ReadLogicalTile(**file, param, logical, box);
    RC_ASSERT(part.has_value());
    RC_ASSERT(part->size() == values.size() * 4);
    RC_ASSERT(std::memcmp(part->data(), values.data(), part->size()) == 0);
  }));
}

TEST_F(SafetensorsTest, ReadingConvertsFloatTypesAndAcceptsNamesWithoutPrefix) {
  std::string header = R"({"wte.weight":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                       R"("h":{"dtype":"F16","shape":[3],"data_offsets":[4,10]}})";
  std::string file = Raw(header, 0);
  const uint16_t values[5] = {0x3f80, 0xc000, 0x3c00, 0x0001, 0xfc00};  // 1, -2 | 1, 2^-24, -inf
  file.append(reinterpret_cast<const char*>(values), sizeof values);
  const auto opened = SafetensorsFile::Open(WriteRaw(file));
  ASSERT_TRUE(opened) << opened.error();
  const ir::Node wte = Param({{"name", "wte"}, {"export_name", "transformer.wte.weight"}});
  const auto bf16 = ReadLogicalTile(**opened, wte, {ir::DType::kF32, {2}}, {});
  ASSERT_TRUE(bf16) << bf16.error();
  float narrow[2];
  std::memcpy(narrow, bf16->data(), sizeof narrow);
  EXPECT_EQ(narrow[0], 1.0F);
  EXPECT_EQ(narrow[1], -2.0F);
  const auto f16 = ReadLogicalTile(**opened, Param({{"name", "h"}}), {ir::DType::kF64, {3}}, {});
  ASSERT_TRUE(f16) << f16.error();
  double wide[3];
  std::memcpy(wide, f16->data(), sizeof wide);
  EXPECT_EQ(wide[0], 1.0);
  EXPECT_EQ(wide[1], std::ldexp(1.0, -24));
  EXPECT_EQ(wide[2], -INFINITY);
}

TEST_F(SafetensorsTest, ReadingNarrowsToNearestEven) {
  std::string file = Raw(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 0);
  const uint32_t values[4] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f800001};  // ties, up, NaN
  file.append(reinterpret_cast<const char*>(values), sizeof values);
  const auto opened = SafetensorsFile::Open(WriteRaw(file));
  ASSERT_TRUE(opened) << opened.error();
  const auto tile = ReadLogicalTile(**opened, Param({{"name", "w"}}), {ir::DType::kBF16, {4}}, {});
  ASSERT_TRUE(tile) << tile.error();
  uint16_t half[4];
  ASSERT_EQ(tile->size(), sizeof half);
  std::memcpy(half, tile->data(), sizeof half);
  EXPECT_THAT(half, ::testing::ElementsAre(0x3f80, 0x3f82, 0x3f81, 0x7fc0));
}

TEST_F(SafetensorsTest, ReadingSaysWhichShapeTheModelNeeds) {
  const auto opened = SafetensorsFile::Open(
      WriteRaw(Raw(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8)));
  ASSERT_TRUE(opened);
  const auto wrong = ReadLogicalTile(**opened, Param({{"name", "w"}}), {ir::DType::kF32, {3}}, {});
  EXPECT_EQ(wrong.error().message(),
            Path("raw.safetensors") + ": tensor 'w' is F32[2]; the model needs f32[3]");
  const auto missing =
      ReadLogicalTile(**opened, Param({{"name", "x"}}), {ir::DType::kF32, {3}}, {});
  EXPECT_EQ(missing.error().code(), StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, ChecksTheWeightsOfAGraph) {
  const auto opened = SafetensorsFile::Open(
      WriteRaw(Raw(R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", 4)));
  ASSERT_TRUE(opened);
  const auto check = [&](const std::string& name, int64_t size) {
    ir::Builder builder("loss");
    builder.AddOne(ir::Op::kParam, {}, {{"name", name}}, {{ir::DType::kF32, {size}}});
    EXPECT_TRUE(builder.status().ok()) << builder.status().ToString();
    return CheckWeights(**opened, builder.graph());
  };
  EXPECT_TRUE(check("w", 2).ok());
  EXPECT_EQ(check("w", 3).message(),
            Path("raw.safetensors") + ": tensor 'w' is BF16[2]; the model needs f32[3]");
  EXPECT_EQ(check("x", 2).code(), StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, FindsNormsUnderTheirOldNames) {
  const auto opened = SafetensorsFile::Open(WriteRaw(
      Raw(R"({"a.LayerNorm.gamma":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8)));
  ASSERT_TRUE(opened);
  const auto code = [&](const char* name) {
    const auto read =
        ReadLogicalTile(**opened, Param({{"name", name}}), {ir::DType::kF32, {2}}, {});
    return read ? StatusCode::kOk : read.error().code();
  };
  EXPECT_EQ(code("a.LayerNorm.weight"), StatusCode::kOk);
  EXPECT_EQ(code("bert.a.LayerNorm.weight"), StatusCode::kOk);
  EXPECT_EQ(code("a.LayerNorm.bias"), StatusCode::kNotFound);
  EXPECT_EQ(code("a.norm.weight"), StatusCode::kNotFound);
}

TEST(ExportLayout, RejectsPermutationsAndShapesThatDoNotFit) {
  const ir::TensorType logical{ir::DType::kF32, {2, 3}};
  EXPECT_FALSE(
      ExportType(Param({{"name", "p"}, {"export_perm", std::vector<int64_t>{0, 0}}}), logical));
  EXPECT_FALSE(
      ExportType(Param({{"name", "p"}, {"export_perm", std::vector<int64_t>{0}}}), logical));
  EXPECT_FALSE(ExportType(Param({{"name", "p"}, {"export_shape", ir::Dims{7}}}), logical));
}

}  // namespace
}  // namespace meshwright::formats
