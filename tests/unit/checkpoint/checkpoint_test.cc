// Checkpoints from end to end: shards, manifest, folder, reader; and what of damage is refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/file.h"
#include "checkpoint/assign.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/roots.h"
#include "formats/safetensors.h"
#include "tests/unit/checkpoint/random_state.h"

namespace meshwright::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Tensor {
  std::string name;
  ir::TensorType type;
  int32_t salt = 0;
  std::vector<ir::Box> boxes;
};

std::vector<Tensor> RandomTensors(Random& random, int ranks) {
  std::vector<Tensor> tensors;
  const int64_t count = Between(random, 1, 5);
  for (int64_t n = 0; n < count; ++n) {
    Tensor& tensor = tensors.emplace_back();
    tensor.name = "layer." + std::to_string(n) + ".weight";
    tensor.type = {ir::DType::kI32, RandomDims(random)};
    tensor.salt = static_cast<int32_t>(n * 100'000);
    tensor.boxes = RandomCover(random, tensor.type.dims, static_cast<size_t>(ranks));
  }
  return tensors;
}

// Writes them as `ranks` devices would: box r of every tensor is rank r's.
Result<Manifest> Write(const std::vector<Tensor>& tensors, int ranks,
                       const std::string& temporary) {
  Manifest manifest;
  manifest.step = 120;
  manifest.seed = UINT64_MAX;
  manifest.job_name = "a \"job\"";
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<BoxBytes> boxes;
    bytes.reserve(tensors.size());
    for (const Tensor& tensor : tensors) {
      if (static_cast<size_t>(rank) >= tensor.boxes.size()) continue;
      const ir::Box& box = tensor.boxes[static_cast<size_t>(rank)];
      bytes.push_back(ElementsOf(tensor.type.dims, box, tensor.salt));
      const auto kind =
          tensor.salt % 200'000 == 0 ? ir::MemoryKind::kWeights : ir::MemoryKind::kOptimizer;
      boxes.push_back({tensor.name, tensor.type, kind, box, bytes.back()});
    }
    MW_ASSIGN_OR_RETURN(const std::vector<ShardImage> images, MakeShards(rank, boxes));
    for (const ShardImage& image : images) {
      MW_TRY(WriteShard(temporary, image));
      manifest.files.push_back({image.name, image.bytes});
      for (const ShardBox& box : image.boxes) {
        StoredTensor& stored = manifest.tensors[box.tensor];
        stored.type = box.type;
        stored.kind = box.kind;
        stored.boxes.push_back(box.stored);
        stored.boxes.back().file = static_cast<int32_t>(manifest.files.size()) - 1;
      }
    }
  }
  return manifest;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : dir_(TempDir::Make().value()) {}

  std::string folder() const { return dir_.path(); }
  std::string step() const { return folder() + "/step-00000120"; }
  void Save(const std::vector<Tensor>& tensors, int ranks) {
    const std::string name = TemporaryName(120, 7);
    auto manifest = Write(tensors, ranks, folder() + "/" + name);
    ASSERT_TRUE(manifest.has_value()) << manifest.error();
    const Status status = Commit(folder(), name, *manifest, {{kJobName, "the job"}});
    ASSERT_TRUE(status.ok()) << status;
  }

  TempDir dir_;
};

TEST_F(CheckpointTest, AnyBoxReadsBackFromAnyCover) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const int ranks = static_cast<int>(Between(random, 1, 6));
    const std::vector<Tensor> tensors = RandomTensors(random, ranks);
    Save(tensors, ranks);
    auto reader = Reader::OpenFolder(step());
    ASSERT_TRUE(reader.has_value()) << reader.error();
    EXPECT_TRUE((*reader)->Verify().ok());
    for (const Tensor& tensor : tensors) {
      for (int i = 0; i < 10; ++i) {
        const ir::Box box = RandomBox(random, tensor.type.dims);
        const auto bytes = (*reader)->ReadBox(tensor.name, tensor.type, box);
        ASSERT_TRUE(bytes.has_value()) << bytes.error();
        EXPECT_EQ(*bytes, ElementsOf(tensor.type.dims, box, tensor.salt))
            << "round " << round << " " << tensor.name << " " << ToText(box);
      }
    }
  }
}

TEST_F(CheckpointTest, ARootIsMadeOnlyInAFolderThatIsThere) {
  EXPECT_TRUE(Roots::Open({{"", folder() + "/runs"}}).has_value());
  const auto mistyped = Roots::Open({{"", folder() + "/rnus/gpt"}});
  ASSERT_FALSE(mistyped.has_value());
  EXPECT_THAT(mistyped.error().message(), HasSubstr("there is no folder " + folder() + "/rnus"));
}

TEST_F(CheckpointTest, BoxesOfManyPiecesAreReadByThePiecesThatAreNeeded) {
  const ir::TensorType type{ir::DType::kI32, {700, 1024}};  // 2.8 MB: three pieces
  const Tensor tensor{"w", type, 0, {Explicit({}, type.dims)}};
  Save({tensor}, 1);
  Random random(2);
  auto reader = Reader::OpenFolder(step()).value();
  EXPECT_EQ(reader->manifest().tensors.at("w").boxes[0].digests.size(), 3U);
  for (int i = 0; i < 20; ++i) {
    const ir::Box box = RandomBox(random, type.dims);
    EXPECT_EQ(reader->ReadBox("w", type, box).value(), ElementsOf(type.dims, box, 0));
  }
  // The last byte is wrong: only who needs it hears of it.
  const std::string file = step() + "/" + reader->manifest().files[0].name;
  std::string bytes = ReadFile(file).value();
  bytes.back() ^= 1;
  ASSERT_TRUE(WriteFileAtomic(file, bytes).ok());
  reader = Reader::OpenFolder(step()).value();
  EXPECT_TRUE(reader->ReadBox("w", type, {{0, 0}, {400, 1024}}).has_value());
  const auto damaged = reader->ReadBox("w", type, {{699, 1023}, {1, 1}});
  ASSERT_FALSE(damaged.has_value());
  EXPECT_EQ(damaged.error().code(), StatusCode::kDataLoss);
  EXPECT_THAT(damaged.error().message(), HasSubstr("tensor 'w', box [0,0:700,1024]"));
  EXPECT_THAT(damaged.error().message(), HasSubstr("sharded/shard-00001"));
}

// Each damage, to a checkpoint that was fine, is found and named: by opening it or by reading all.
TEST_F(CheckpointTest, DamageIsRefusedByName) {
  Random random(3);
  for (int round = 0; round < 1000; ++round) {
    const int ranks = static_cast<int>(Between(random, 2, 5));
    std::vector<Tensor> tensors = RandomTensors(random, ranks);
    tensors[0].type.dims = {8, 9};
    tensors[0].boxes = RandomCover(random, {8, 9}, static_cast<size_t>(ranks));
    const std::string name = TemporaryName(120, 7);
    ASSERT_TRUE(RemoveAll(step()).ok());
    Manifest manifest = Write(tensors, ranks, folder() + "/" + name).value();
    StoredTensor& victim = manifest.tensors.at(tensors[0].name);
    const size_t at = random() % victim.boxes.size();
    std::string wanted = "tensor 'layer.0.weight'";
    const int kind = round % 7;
    if (kind == 0) victim.boxes.erase(victim.boxes.begin() + static_cast<ptrdiff_t>(at));
    if (kind == 1) victim.boxes.push_back(victim.boxes[at]);
    if (kind == 2) victim.boxes[at].box = RandomBox(random, {8, 9});
    if (kind == 3) victim.boxes[at].digests[0].low ^= 1;
    if (kind == 2 && CheckManifest(manifest).ok()) continue;  // the box that it was
    Status status = Commit(folder(), name, manifest, {});
    if (kind <= 2) {
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << "round " << round;
      EXPECT_THAT(status.message(), HasSubstr(wanted)) << "round " << round;
      EXPECT_THAT(ListSteps(folder()).value(), IsEmpty());
      ASSERT_TRUE(Prune(folder(), 0, "").ok());
      continue;
    }
    ASSERT_TRUE(status.ok()) << status;
    const std::string file = manifest.files[static_cast<size_t>(victim.boxes[at].file)].name;
    const std::string path = step() + "/" + file;
    if (kind == 4) {
      ASSERT_EQ(::truncate(path.c_str(), victim.boxes[at].begin_bytes + 1), 0);
    }
    if (kind == 5) {  // a file of another checkpoint
      ASSERT_TRUE(WriteFileAtomic(path, std::string(100'000, 'x')).ok());
    }
    if (kind == 6) {
      std::string text = ReadFile(step() + "/manifest.json").value();
      text[random() % text.size()] ^= 1;
      ASSERT_TRUE(WriteFileAtomic(step() + "/manifest.json", text).ok());
      wanted = "manifest";
    }
    auto reader = Reader::OpenFolder(step());
    status = reader.has_value() ? (*reader)->Verify() : reader.error();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << "round " << round << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(wanted)) << "round " << round;
  }
}

TEST_F(CheckpointTest, AFileThatIsNotThereIsRefusedAtTheCommit) {
  const Tensor tensor{"w", {ir::DType::kI32, {4}}, 0, {{{0}, {2}}, {{2}, {2}}}};
  const std::string name = TemporaryName(120, 7);
  const Manifest manifest = Write({tensor}, 2, folder() + "/" + name).value();
  ASSERT_TRUE(RemoveAll(folder() + "/" + name + "/" + manifest.files[1].name).ok());
  const Status status = Commit(folder(), name, manifest, {});
  EXPECT_THAT(status.message(), HasSubstr("shard-00002"));
  EXPECT_THAT(status.message(), HasSubstr("not one folder that all workers of the job share"));
}

TEST_F(CheckpointTest, WhatWasCommittedIsListedReplacedPrunedAndRemoved) {
  const Tensor tensor{"w", {ir::DType::kI32, {4}}, 0, {{{0}, {4}}}};
  for (const int64_t step : {20, 40, 60, 40}) {
    const std::string name = TemporaryName(step, 1);
    Manifest manifest = Write({tensor}, 1, folder() + "/" + name).value();
    manifest.step = step;
    ASSERT_TRUE(Commit(folder(), name, manifest, {{kJobName, "the job"}}).ok());
    EXPECT_FALSE(FileExists(folder() + "/" + name));
  }
  EXPECT_THAT(ListSteps(folder()).value(), ElementsAre(60, 40, 20));
  EXPECT_EQ(ReadFile(folder() + "/latest").value(), "step-00000040\n");
  ASSERT_TRUE(MakeDirs(folder() + "/step-00000080.tmp-1/sharded").ok());
  ASSERT_TRUE(MakeDirs(folder() + "/step-00000090.tmp-2/sharded").ok());
  ASSERT_TRUE(MakeDirs(folder() + "/mine").ok());
  ASSERT_TRUE(Prune(folder(), 2, "step-00000090.tmp-2").ok());
  EXPECT_THAT(ListSteps(folder()).value(), ElementsAre(60, 40));
  EXPECT_FALSE(FileExists(folder() + "/step-00000080.tmp-1"));
  EXPECT_TRUE(FileExists(folder() + "/step-00000090.tmp-2"));
  EXPECT_TRUE(FileExists(folder() + "/mine"));
  ASSERT_TRUE(Remove(folder(), 40).ok());
  EXPECT_THAT(ListSteps(folder()).value(), ElementsAre(60));
  EXPECT_EQ(Remove(folder(), 40).code(), StatusCode::kNotFound);
}

TEST_F(CheckpointTest, ShardsSayWhereTheirBoxesLie) {
  const Tensor tensor{"a\"b", {ir::DType::kI32, {4, 6}}, 0, {{{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}}};
  Save({tensor}, 2);
  const auto file = formats::SafetensorsFile::Open(
                        step() + "/sharded/shard-00002-model-00001-of-00001.safetensors")
                        .value();
  EXPECT_EQ(file->metadata().at("DCP_SHARDING_INFO"), R"({"a\"b": {"saved_offsets": [0, 2]}})");
  EXPECT_EQ(file->metadata().at("DCP_VERSION"), "1.0");
  ASSERT_EQ(file->entries().size(), 1U);
  EXPECT_THAT(file->entries()[0].shape, ElementsAre(4, 4));
}

TEST(Manifest, TextOfAnythingIsRefusedOrTaken) {
  Random random(4);
  for (const char* text :
       {"", "{", "[]", "{}", R"({"digest": "00"})", R"({"digest": 3})", "null"}) {
    EXPECT_EQ(ParseManifest(text).error().code(), StatusCode::kDataLoss) << text;
  }
  Manifest manifest;
  manifest.step = 3;
  manifest.seed = UINT64_MAX;
  manifest.files = {{"state/x", 64}};
  manifest.tensors["s"] = {
      {ir::DType::kF32, {}}, ir::MemoryKind::kOther, {{{}, 0, 60, {Digest{1, 2}}}}};
  const auto parsed = ParseManifest(FormatManifest(manifest));
  ASSERT_TRUE(parsed.has_value()) << parsed.error();
  EXPECT_EQ(*parsed, manifest);
}

TEST(Manifest, NestingWithoutEndIsRefused) {
  const std::string deep = "{\"digest\": \"00\", \"a\": " + std::string(2'000'000, '[');
  const std::string closed = deep + std::string(2'000'000, ']') + "}";
  EXPECT_EQ(ParseManifest(deep).error().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseManifest(closed).error().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseShards(closed).error().code(), StatusCode::kDataLoss);
}

TEST(Manifest, FilesStayInTheFolder) {
  for (const char* name : {"../x", "/etc/passwd", "", "a/../../b"}) {
    Manifest manifest;
    manifest.files = {{name, 1}};
    EXPECT_EQ(CheckManifest(manifest).code(), StatusCode::kDataLoss) << name;
  }
}

TEST(Assign, EveryBoxIsWrittenOnceAndReplicasShareTheWork) {
  std::vector<ir::Program> programs(4);
  for (size_t device = 0; device < 4; ++device) {
    programs[device].stage = StageIndex(static_cast<int32_t>(device / 2));
    for (int n = 0; n < 64; ++n) {
      ir::Slot slot;
      slot.persistent = true;
      slot.name = std::to_string(n) + (n == 0 ? "" : device / 2 == 0 ? "a" : "b");
      slot.type = {ir::DType::kF32, {4}};
      slot.global_dims = {4};
      programs[device].slots.push_back(slot);
    }
  }
  // Stage 1 has tensor 0 in halves, stage 0 whole: it is one of the two.
  programs[2].slots[0].box = {{0}, {2}};
  programs[3].slots[0].box = {{2}, {2}};
  const auto names = AssignBoxes(programs);
  std::map<std::string, int> times;
  for (const auto& of_device : names) {
    EXPECT_GT(of_device.size(), 20U);
    for (const std::string& name : of_device) ++times[name];
  }
  EXPECT_EQ(times.size(), 127U);
  for (const auto& [name, count] : times) EXPECT_EQ(count, name == "0" ? times.at("0") : 1) << name;
  EXPECT_LE(times.at("0"), 2);
}

}  // namespace
}  // namespace meshwright::checkpoint
