// What is said of weights that become something else than their file has.
#include "formats/weight_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "base/file.h"
#include "ir/builder.h"

namespace meshwright::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WeightNotes, SayWhatIsDrawnAndWhatIsRounded) {
  const TempDir dir = TempDir::Make("mw-notes").value();
  const std::string path = dir.File("w.safetensors");
  const auto writer = SafetensorsWriter::Create(path, {{"w", {ir::DType::kF32, {2}}}});
  ASSERT_TRUE(writer.has_value()) << writer.error();
  const std::vector<float> values = {1, 2};
  ASSERT_TRUE((*writer)->Write("w", 0, std::as_bytes(std::span(values))).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.has_value()) << file.error();
  const auto notes = [&](ir::DType dtype, const ir::Attrs& other) {
    ir::Builder builder("loss");
    builder.AddOne(ir::Op::kParam, {}, {{"name", "w"}}, {{dtype, {2}}});
    if (!other.values().empty()) builder.AddOne(ir::Op::kParam, {}, other, {{dtype, {2}}});
    EXPECT_TRUE(builder.status().ok()) << builder.status().ToString();
    EXPECT_TRUE(CheckWeights(**file, builder.graph()).ok());
    return NotesOfWeights(**file, builder.graph());
  };
  const ir::Attrs head = {{"name", "head"}, {"drawn", int64_t{1}}};
  ir::Attrs adapter = head;
  adapter.Set("beside", std::string("w"));
  EXPECT_THAT(notes(ir::DType::kF32, {}), IsEmpty());
  EXPECT_THAT(notes(ir::DType::kF64, {}), IsEmpty());
  EXPECT_THAT(notes(ir::DType::kF32, adapter), IsEmpty()) << "adapters are new";
  EXPECT_THAT(notes(ir::DType::kF32, head), ElementsAre("the weights have no head: drawn anew"));
  EXPECT_THAT(notes(ir::DType::kBF16, {}),
              ElementsAre("1 of the weights' tensors are rounded from F32 to bf16"));
}

// Half of a model is read where config.json says half of its layers.
TEST(WeightNotes, SayWhatTheModelHasNoPlaceFor) {
  const TempDir dir = TempDir::Make("mw-notes").value();
  const std::string path = dir.File("w.safetensors");
  const ir::TensorType type{ir::DType::kF32, {1}};
  const auto writer = SafetensorsWriter::Create(
      path, {{"w", type}, {"h.1.w", type}, {"h.0.attn.masked_bias", type}});
  ASSERT_TRUE(writer.has_value()) << writer.error();
  const std::vector<float> value = {1};
  for (const char* name : {"w", "h.1.w", "h.0.attn.masked_bias"}) {
    ASSERT_TRUE((*writer)->Write(name, 0, std::as_bytes(std::span(value))).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.has_value()) << file.error();
  ir::Builder builder("loss");
  builder.AddOne(ir::Op::kParam, {}, {{"name", "w"}}, {type});
  EXPECT_THAT(NotesOfWeights(**file, builder.graph()),
              ElementsAre("the model has no place for 1 of the weights' tensors: h.1.w"));
}

}  // namespace
}  // namespace meshwright::formats
