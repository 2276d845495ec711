// A param's tile in memory that the caller has.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/file.h"
#include "formats/safetensors.h"
#include "ir/graph.h"

namespace meshwright::formats {
namespace {

// What has a tensor for each place of its first dim is read whole, or not at all.
TEST(LogicalTile, IsReadIntoTheCallersMemory) {
  const TempDir dir = *TempDir::Make();
  const std::string path = dir.File("e.safetensors");
  const std::vector<float> values = {3, 4};
  {
    auto writer = SafetensorsWriter::Create(path, {{"e.0", {ir::DType::kF32, {2}}}});
    ASSERT_TRUE(writer.has_value()) << writer.error();
    ASSERT_TRUE((*writer)->Write("e.0", 0, std::as_bytes(std::span(values))).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.has_value()) << file.error();
  ir::Node experts;
  experts.op = ir::Op::kParam;
  experts.attrs = {{"name", "e"}, {"export_name", "e.{}"}};
  std::vector<std::byte> block(16, std::byte{7});
  const auto read = [&](int64_t count) {
    return ReadLogicalTile(**file, experts, {ir::DType::kF32, {count, 2}}, {}, block);
  };
  EXPECT_EQ(read(2).code(), StatusCode::kNotFound) << "there is no e.1";
  EXPECT_EQ(block, std::vector<std::byte>(16, std::byte{7}));
  EXPECT_EQ(read(1).code(), StatusCode::kInvalidArgument) << "16 bytes for 8";
  block.resize(8);
  ASSERT_TRUE(read(1).ok());
  EXPECT_EQ(std::memcmp(block.data(), values.data(), block.size()), 0);
}

}  // namespace
}  // namespace meshwright::formats
