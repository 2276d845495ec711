// Parsers of headers: what numpy, safetensors, llm.c and Megatron write is read; what is damaged is
// an error, whatever its bytes.
#include <rapidcheck/gtest.h>

#include "data/npy_header.h"
#include "data/token_headers.h"
#include "tests/unit/data/data_files.h"

namespace meshwright::data {
namespace {

using ::testing::HasSubstr;

// numpy.lib.format.write_array of NumPy 2: arange(6, '<f4').reshape(2, 3) / 2.
constexpr char kFloats[] =
    "934e554d5059010076007b276465736372273a20273c6634272c2027666f727472616e5f6f72646572273a2046616c"
    "73652c20277368617065273a2028322c2033292c207d202020202020202020202020202020202020202020202020"
    "202020202020202020202020202020202020202020202020202020202020202020200a000000000000003f0000803f"
    "0000c03f0000004000004020";
// An array of uint16 of version 2.0: [1, 2].
constexpr char kVersion2[] =
    "934e554d50590200740000007b276465736372273a20273c7532272c2027666f727472616e5f6f72646572273a2046"
    "616c73652c20277368617065273a2028322c292c207d202020202020202020202020202020202020202020202020"
    "202020202020202020202020202020202020202020202020202020202020202020200a01000200";

std::string WithHeader(const std::string& dict, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes.push_back(static_cast<char>(dict.size() & 0xff));
  bytes.push_back(static_cast<char>(dict.size() >> 8));
  return bytes + dict + data;
}

Result<NpyHeader> Npy(const std::string& file) {
  return ParseNpyHeader(BytesOf(file), static_cast<int64_t>(file.size()));
}

std::string NpyError(const std::string& file) {
  const auto header = Npy(file);
  EXPECT_FALSE(header.has_value());
  return header.has_value() ? "" : header.error().message();
}

TEST(NpyHeader, ReadsWhatNumpyWrites) {
  const auto floats = Npy(FromHex(kFloats));
  ASSERT_TRUE(floats.has_value()) << floats.error();
  EXPECT_EQ(*floats, (NpyHeader{ir::Element::kF32, {2, 3}, 128}));
  const auto version2 = Npy(FromHex(kVersion2));
  ASSERT_TRUE(version2.has_value()) << version2.error();
  EXPECT_EQ(*version2, (NpyHeader{ir::Element::kU16, {2}, 128}));
  const auto scalar = Npy(WithHeader("{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n",
                                     std::string(8, '\0')));
  ASSERT_TRUE(scalar.has_value()) << scalar.error();
  EXPECT_TRUE(scalar->shape.empty());
}

TEST(NpyHeader, SaysWhatCannotBeRead) {
  const auto dict = [](const char* descr, const char* order, const char* shape) {
    return WithHeader(
        fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descr, order, shape),
        std::string(16, '\0'));
  };
  EXPECT_THAT(NpyError(dict("'<f4'", "True", "(2, 2)")), HasSubstr("Fortran's order"));
  EXPECT_TRUE(Npy(dict("'<f4'", "True", "(4,)")).has_value());  // one dim has no order
  EXPECT_THAT(NpyError(dict("'>f4'", "False", "(4,)")), HasSubstr("little endian"));
  EXPECT_THAT(NpyError(dict("'|O'", "False", "(2,)")), HasSubstr("'|O' cannot be read"));
  EXPECT_THAT(NpyError(dict("'<U4'", "False", "(1,)")), HasSubstr("'<U4' cannot be read"));
  EXPECT_THAT(NpyError(dict("[('a', '<f4')]", "False", "(4,)")), HasSubstr("array of records"));
  EXPECT_THAT(NpyError(dict("'<f4'", "False", "(5,)")), HasSubstr("does not match the 16 bytes"));
  EXPECT_THAT(NpyError(dict("'<f4'", "False", "(4294967296, 4294967296)")),
              HasSubstr("does not match"));
  // 4 x (2^62 + 4) is 16 where it wraps around, and there are 16 bytes.
  EXPECT_THAT(NpyError(dict("'<f4'", "False", "(4611686018427387908,)")),
              HasSubstr("does not match"));
  EXPECT_THAT(NpyError(dict("'<f4'", "False", "(99999999999999999999,)")), HasSubstr("a dim"));
  EXPECT_THAT(NpyError(dict("'<f4'", "False", "(-4,)")), HasSubstr("a dim"));
  EXPECT_THAT(NpyError(dict("'<f4'", "Maybe", "(4,)")), HasSubstr("True or False"));
  EXPECT_THAT(NpyError(WithHeader("{'descr': '<f4', 'shape': (4,)}", std::string(16, '\0'))),
              HasSubstr("lacks"));
  EXPECT_THAT(NpyError(WithHeader("{'descr': '<f4'", "")), HasSubstr("no dict"));
  EXPECT_THAT(NpyError("PK\x03\x04 of a zip file"), HasSubstr("magic"));
  EXPECT_THAT(NpyError(std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)),
              HasSubstr("its header says 65535 bytes"));
  EXPECT_THAT(NpyError(std::string("\x93NUMPY\x09\x00\x02\x00{}", 12)), HasSubstr("version is 9"));
}

TEST(NpyHeader, IsReadAsItWasMade) {
  const std::vector<std::pair<ir::Element, ir::Dims>> arrays = {
      {ir::Element::kF32, {3, 4}}, {ir::Element::kU8, {2, 1, 5, 5}}, {ir::Element::kI32, {7}}};
  for (const auto& [element, dims] : arrays) {
    const auto made = MakeNpyHeader(element, dims);
    ASSERT_TRUE(made.has_value()) << made.error();
    EXPECT_EQ(made->size() % 64, 0u);
    int64_t bytes = ir::ElementBytes(element);
    for (const int64_t dim : dims) bytes *= dim;
    const auto read = ParseNpyHeader(BytesOf(*made), static_cast<int64_t>(made->size()) + bytes);
    ASSERT_TRUE(read.has_value()) << read.error();
    EXPECT_EQ(*read, (NpyHeader{element, dims, static_cast<int64_t>(made->size())}));
  }
  EXPECT_THAT(*MakeNpyHeader(ir::Element::kF64, {7}),
              HasSubstr("'<f8', 'fortran_order': False, 'shape': (7,), }"));
  EXPECT_FALSE(MakeNpyHeader(ir::Element::kBF16, {7}).has_value());
}

std::string Word(int32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string Llmc(int32_t magic, int32_t version, int32_t tokens, size_t data_bytes) {
  std::string file = Word(magic) + Word(version) + Word(tokens);
  file.resize(1024 + data_bytes, '\0');
  return file;
}

TEST(LlmcHeader, ReadsBothKinds) {
  const auto parse = [](const std::string& file) {
    return ParseLlmcHeader(BytesOf(file), static_cast<int64_t>(file.size()));
  };
  const auto gpt2 = parse(Llmc(20240520, 1, 7, 14));
  ASSERT_TRUE(gpt2.has_value()) << gpt2.error();
  EXPECT_EQ(*gpt2, (TokenRange{ir::Element::kU16, 1024, 7}));
  const auto llama3 = parse(Llmc(20240801, 7, 7, 28));
  ASSERT_TRUE(llama3.has_value()) << llama3.error();
  EXPECT_EQ(*llama3, (TokenRange{ir::Element::kU32, 1024, 7}));
  const auto error = [&](const std::string& file) {
    const auto range = parse(file);
    return range.has_value() ? "" : range.error().message();
  };
  EXPECT_THAT(error(Llmc(20240520, 1, 8, 14)), HasSubstr("truncated"));
  EXPECT_THAT(error(Llmc(20240520, 1, 6, 14)), HasSubstr("longer than it says"));
  EXPECT_THAT(error(Llmc(20240520, 1, -1, 14)), HasSubstr("-1 tokens"));
  EXPECT_THAT(error(Llmc(20240522, 1, 7, 14)), HasSubstr("magic 20240522"));
  EXPECT_THAT(error("short"), HasSubstr("too few"));
}

// As _IndexWriter of Megatron-LM packs it: two documents of 3 and 2 tokens.
std::string MegatronIndex(uint8_t code, const std::vector<int32_t>& lengths, int64_t token_bytes,
                          uint64_t sequences, uint64_t documents) {
  std::string index = std::string("MMIDIDX\0\0", 9) + Raw<uint64_t>(1) + Raw(code) +
                      Raw(sequences) + Raw(documents);
  for (const int32_t length : lengths) index += Word(length);
  int64_t offset = 0;
  for (const int32_t length : lengths) {
    index += Raw(offset);
    offset += length * token_bytes;
  }
  for (size_t i = 0; i <= lengths.size(); ++i) index += Raw(static_cast<int64_t>(i));
  return index;
}

TEST(MegatronIndex, CountsTheTokensOfAllDocuments) {
  const auto range = ParseMegatronIndex(BytesOf(MegatronIndex(8, {3, 2}, 2, 2, 3)), 10);
  ASSERT_TRUE(range.has_value()) << range.error();
  EXPECT_EQ(*range, (TokenRange{ir::Element::kU16, 0, 5}));
  const auto wide = ParseMegatronIndex(BytesOf(MegatronIndex(4, {3, 2}, 4, 2, 3)), 20);
  ASSERT_TRUE(wide.has_value()) << wide.error();
  EXPECT_EQ(*wide, (TokenRange{ir::Element::kI32, 0, 5}));
  const auto error = [](const std::string& index, int64_t bin_bytes) {
    const auto parsed = ParseMegatronIndex(BytesOf(index), bin_bytes);
    return parsed.has_value() ? "" : parsed.error().message();
  };
  EXPECT_THAT(error(MegatronIndex(8, {3, 2}, 2, 2, 3), 8), HasSubstr("take 10 bytes"));
  EXPECT_THAT(error(MegatronIndex(8, {3, 2}, 4, 2, 3), 20), HasSubstr("must follow each other"));
  EXPECT_THAT(error(MegatronIndex(8, {3, -2}, 2, 2, 3), 2), HasSubstr("must follow each other"));
  EXPECT_THAT(error(MegatronIndex(7, {3, 2}, 4, 2, 3), 20), HasSubstr("type code is 7"));
  EXPECT_THAT(error(MegatronIndex(8, {3, 2}, 2, uint64_t{1} << 61, 3), 10), HasSubstr("truncated"));
  EXPECT_THAT(error(MegatronIndex(8, {3, 2}, 2, 2, ~uint64_t{0}), 10), HasSubstr("truncated"));
  EXPECT_THAT(error("MMIDIDX", 10), HasSubstr("magic"));
}

// Any damage to any header ends in a header that fits the file or in an error.
RC_GTEST_PROP(Headers, DamageIsAnErrorOrAFileThatFits, ()) {
  const auto kind = *rc::gen::inRange(0, 3);
  std::string file = kind == 0   ? FromHex(kFloats)
                     : kind == 1 ? Llmc(20240520, 1, 7, 14)
                                 : MegatronIndex(8, {3, 2}, 2, 2, 3);
  const auto edits = *rc::gen::inRange(1, 6);
  for (int i = 0; i < edits; ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, std::min<size_t>(file.size(), 130));
    file[at] = *rc::gen::arbitrary<char>();
  }
  file.resize(*rc::gen::inRange<size_t>(0, file.size() + 1));
  const auto bytes = static_cast<int64_t>(file.size());
  if (kind == 0) {
    const auto header = ParseNpyHeader(BytesOf(file), bytes);
    if (!header.has_value()) return;
    int64_t items = 1;
    for (const int64_t dim : header->shape) items *= dim;
    RC_ASSERT(header->data_begin_bytes + items * ir::ElementBytes(header->element) == bytes);
  } else if (kind == 1) {
    const auto range = ParseLlmcHeader(BytesOf(file), bytes);
    if (!range.has_value()) return;
    RC_ASSERT(1024 + range->tokens * ir::ElementBytes(range->element) == bytes);
  } else {
    const auto range = ParseMegatronIndex(BytesOf(file), 10);
    if (range.has_value()) RC_ASSERT(range->tokens * ir::ElementBytes(range->element) == 10);
  }
}

}  // namespace
}  // namespace meshwright::data
