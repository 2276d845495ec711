// Weights under the names of Hugging Face, in one file or in several.
#include "checkpoint/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "checkpoint/folder.h"
#include "formats/safetensors.h"
#include "formats/sharded_safetensors.h"
#include "ir/text.h"

namespace meshwright::checkpoint {
namespace {

constexpr int64_t kExportedRows = 64;

// Three weights, which the model exports under other names; one has a mean.
class ExportTest : public ::testing::Test {
 protected:
  ExportTest()
      : model_(ir::ParseGraph(R"(graph "loss" {
          %0 = param {decay=0, export_name="model.a", init="zeros", name="a", std=0.0} : f32[64]
          %1 = param {decay=0, export_name="model.b", init="zeros", name="b", std=0.0} : f32[64]
          %2 = param {decay=0, export_name="model.c", init="zeros", name="c", std=0.0} : f32[64]
          output "x" %0
        })")
                   .value()) {
    const ir::TensorType type{ir::DType::kF32, {kExportedRows}};
    const ir::Box box{{0}, {kExportedRows}};
    std::vector<std::vector<std::byte>> bytes;
    std::vector<BoxBytes> boxes;
    for (const char* name : {"a", "b", "c", "opt.ema/b"}) {
      const std::vector<float> values(kExportedRows, static_cast<float>(name[0]));
      bytes.emplace_back(values.size() * 4);
      std::memcpy(bytes.back().data(), values.data(), bytes.back().size());
      const auto kind = name[1] == '\0' ? ir::MemoryKind::kWeights : ir::MemoryKind::kOptimizer;
      boxes.push_back({name, type, kind, box, {}});
    }
    for (size_t i = 0; i < boxes.size(); ++i) boxes[i].bytes = bytes[i];
    const auto images = MakeShards(0, boxes).value();
    Shards written;
    for (const ShardImage& image : images) {
      EXPECT_TRUE(WriteShard(dir_.File("saved"), image).ok());
      AddShard(written, image);
    }
    EXPECT_TRUE(AddShards(manifest_, written).ok());
    EXPECT_TRUE(WriteFileAtomic(dir_.File("saved/manifest.json"), FormatManifest(manifest_)).ok());
    reader_ = Reader::OpenFolder(dir_.File("saved")).value();
  }

  TempDir dir_ = TempDir::Make().value();
  const ir::Graph model_;
  Manifest manifest_;
  std::unique_ptr<Reader> reader_;
};

TEST_F(ExportTest, SmallOnesAreOneFile) {
  const std::string folder = dir_.File("hf");
  ASSERT_TRUE(ExportFolder(*reader_, model_, folder, ir::DType::kBF16).ok());
  const auto file = formats::SafetensorsFile::Open(folder + "/model.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error();
  EXPECT_FALSE(FileExists(folder + "/model.safetensors.index.json"));
  ASSERT_TRUE(ExportWeights(*reader_, model_, dir_.File("one.safetensors"), ir::DType::kBF16).ok());
  EXPECT_EQ(ReadFile(folder + "/model.safetensors").value(),
            ReadFile(dir_.File("one.safetensors")).value());
}

TEST_F(ExportTest, MeansStandInForTheWeightsThatHaveThem) {
  const std::string path = dir_.File("averaged.safetensors");
  ASSERT_TRUE(ExportWeights(*reader_, model_, path, std::nullopt, ExportedWeights::kAverages).ok());
  const auto file = formats::SafetensorsFile::Open(path).value();
  for (const auto& [name, expected] : {std::pair("model.a", 'a'), std::pair("model.b", 'o')}) {
    const formats::SafetensorsEntry* entry = file->Find(name);
    ASSERT_NE(entry, nullptr) << name;
    float value = 0;
    std::memcpy(&value, file->data(*entry).data(), sizeof(value));
    EXPECT_EQ(value, static_cast<float>(expected)) << name;
  }
}

TEST_F(ExportTest, LargeOnesAreShardsWithAnIndexAndMergeToTheSameFile) {
  const std::string folder = dir_.File("hf");
  const Status exported =
      ExportFolder(*reader_, model_, folder, std::nullopt, /*most_file_bytes=*/600);
  ASSERT_TRUE(exported.ok()) << exported;
  const std::string index = folder + "/model.safetensors.index.json";
  const auto files = formats::ParseSafetensorsIndex(ReadFile(index).value());
  ASSERT_TRUE(files.has_value()) << files.error();
  EXPECT_EQ(files->at("model.a"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(files->at("model.b"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(files->at("model.c"), "model-00002-of-00002.safetensors");
  EXPECT_THAT(ReadFile(index).value(), ::testing::HasSubstr("\"total_size\": 768"));
  ASSERT_TRUE(formats::MergeShards(index, dir_.File("merged.safetensors")).ok());
  ASSERT_TRUE(ExportWeights(*reader_, model_, dir_.File("one.safetensors")).ok());
  EXPECT_EQ(ReadFile(dir_.File("merged.safetensors")).value(),
            ReadFile(dir_.File("one.safetensors")).value());
}

TEST_F(ExportTest, ASaveIsExportedBeforeItsManifestIsWritten) {
  ASSERT_TRUE(RemoveAll(dir_.File("saved/manifest.json")).ok());
  const Status exported = ExportSave(dir_.File("saved"), manifest_, model_, ir::DType::kF16);
  EXPECT_TRUE(exported.ok()) << exported;
  EXPECT_TRUE(FileExists(dir_.File("saved/hf/model.safetensors")));
}

}  // namespace
}  // namespace meshwright::checkpoint
