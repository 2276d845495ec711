#include "formats/sharded_safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/file.h"
#include "formats/safetensors.h"

namespace meshwright::formats {
namespace {

using ::testing::HasSubstr;

class ShardsTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& name, std::vector<float> values) {
    const ir::TensorType type{ir::DType::kF32, {static_cast<int64_t>(values.size())}};
    const auto writer = SafetensorsWriter::Create(dir_.File(file), {{name, type}});
    ASSERT_TRUE(writer.has_value()) << writer.error();
    ASSERT_TRUE((*writer)->Write(name, 0, std::as_bytes(std::span(values))).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  Status Merge(const std::string& index) {
    EXPECT_TRUE(WriteFileAtomic(dir_.File("index.json"), index).ok());
    return MergeShards(dir_.File("index.json"), dir_.File("whole"));
  }

  TempDir dir_ = TempDir::Make("mw-shards").value();
};

TEST_F(ShardsTest, BecomeOneFileWithEveryTensor) {
  Write("1.safetensors", "a", {1, 2, 3});
  Write("2.safetensors", "b", {4});
  const Status merged = Merge(R"({"weight_map":{"b":"2.safetensors","a":"1.safetensors"}})");
  ASSERT_TRUE(merged.ok()) << merged;
  const auto whole = SafetensorsFile::Open(dir_.File("whole"));
  ASSERT_TRUE(whole.has_value()) << whole.error();
  ASSERT_EQ((*whole)->entries().size(), 2u);
  const auto value = [&](const char* name, size_t i) {
    float read = 0;
    std::memcpy(&read, (*whole)->data(*(*whole)->Find(name)).data() + i * sizeof(float),
                sizeof(float));
    return read;
  };
  EXPECT_EQ(value("a", 2), 3);
  EXPECT_EQ(value("b", 0), 4);
}

TEST_F(ShardsTest, ErrorsNameTheTensorAndTheFile) {
  Write("1.safetensors", "a", {1});
  EXPECT_THAT(Merge(R"({"weight_map":{"b":"1.safetensors"}})").message(),
              HasSubstr("'b' is in " + dir_.File("1.safetensors")));
  EXPECT_THAT(Merge(R"({"weight_map":{"a":"2.safetensors"}})").message(),
              HasSubstr("2.safetensors"));
  EXPECT_THAT(Merge(R"({"weight_map":{"a":"../1.safetensors"}})").message(),
              HasSubstr("own folder"));
  for (const char* index : {"", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})"}) {
    EXPECT_EQ(Merge(index).code(), StatusCode::kInvalidArgument) << index;
  }
  EXPECT_FALSE(FileExists(dir_.File("whole")));
}

}  // namespace
}  // namespace meshwright::formats
