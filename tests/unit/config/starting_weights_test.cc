#include "config/starting_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace meshwright::config {
namespace {

using ::testing::HasSubstr;

class StartingWeightsTest : public ::testing::Test {
 protected:
  std::string Add(const std::string& name) {
    EXPECT_TRUE(WriteFileAtomic(folder_.File(name), "x").ok());
    return folder_.File(name);
  }
  StartingWeights Find() {
    const auto found = FindStartingWeights(config_);
    EXPECT_TRUE(found.has_value()) << found.error();
    return found.value_or(StartingWeights());
  }

  TempDir folder_ = TempDir::Make("mw-weights").value();
  JobConfig config_;
};

TEST_F(StartingWeightsTest, AHuggingFaceFolderIsAModelWithItsWeights) {
  config_.hf_path = folder_.path();
  EXPECT_EQ(Find().path, "");
  EXPECT_THAT(Find().note, HasSubstr("has no model.safetensors: weights are drawn anew"));
  const std::string index = Add("model.safetensors.index.json");
  EXPECT_EQ(Find().path, index);
  const std::string weights = Add("model.safetensors");
  EXPECT_EQ(Find().path, weights);
  EXPECT_EQ(Find().note, "");
  EXPECT_THAT(Find().key, HasSubstr("model.hf_path"));
  config_.from_scratch = true;
  EXPECT_EQ(Find().path, "");
}

TEST_F(StartingWeightsTest, TheFileOfAConfigurationAloneHasNoWeights) {
  config_.hf_path = Add("config.json");
  EXPECT_EQ(Find().note, "");
  Add("model.safetensors");
  EXPECT_EQ(Find().path, "");
  EXPECT_THAT(Find().note, HasSubstr("names the configuration alone"));
}

TEST_F(StartingWeightsTest, ThePathOfACheckpointComesFirst) {
  config_.hf_path = folder_.path();
  Add("model.safetensors");
  config_.initial_load_path = Add("own.safetensors");
  EXPECT_EQ(Find().path, config_.initial_load_path);
  config_.initial_load_path = folder_.File("none.safetensors");
  const auto missing = FindStartingWeights(config_);
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("checkpoint.initial_load_path"));
}

}  // namespace
}  // namespace meshwright::config
