// `meshwright generate`: a job's model and the same one as a Hugging Face folder write the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kConfig[] =
    R"({"model_type":"gpt2","n_embd":32,"n_layer":2,"n_head":4,"vocab_size":256,"n_positions":32,)"
    R"("resid_pdrop":0,"embd_pdrop":0,"attn_pdrop":0})";

// The character that stands for a byte in vocabularies of the kind "ByteLevel", in UTF-8.
std::string OfByte(int byte) {
  const auto shown = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  int code = byte;
  if (!shown(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += shown(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// A tokenizer of bytes: token 104 is "h".
std::string TokenizerJson() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary[OfByte(byte)] = byte;
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return json{{"version", "1.0"},
              {"added_tokens", json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}}
      .dump();
}

class GenerateCommand : public FaultFixture {
 protected:
  std::string Run(std::vector<std::string> args, bool good = true) {
    args.insert(args.begin(), {"--address", cluster().address()});
    const auto output = RunMeshwright(args, {}, 60'000);
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output) return "";
    EXPECT_EQ(output->exit.ok(), good) << output->stdout_text << output->stderr_text;
    return good ? output->stdout_text : output->stderr_text;
  }
  json Generate(std::vector<std::string> args) {
    args.insert(args.begin(), "generate");
    args.insert(args.end(), {"-o", "json"});
    const json said = json::parse(Run(args), nullptr, false);
    return said.is_object() ? said : json::object();
  }
};

TEST_F(GenerateCommand, WritesTheSameByAJobAndByAFolderOnEveryLayout) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string folder = dir_.File("hf");
  ASSERT_TRUE(MakeDirs(folder).ok());
  Write("hf/config.json", kConfig);
  Write("hf/tokenizer.json", TokenizerJson());
  const std::string data = Write("data.txt", SampleText(9'000));
  Run({"submit", "-q",
       Write("job.toml", fmt::format("[model]\nhf_path = \"{}\"\n[optimizer]\nlr = 0.01\n"
                                     "[training]\ndataset_path = \"{}\"\nglobal_batch_size = 8\n"
                                     "seq_len = 32\nsteps = 30\ndtype = \"float64\"\n",
                                     folder, data))});
  EXPECT_THAT(Run({"generate", folder, "the "}, false), HasSubstr("has no model.safetensors"));
  const auto jobs = cluster().client().List();
  ASSERT_TRUE(jobs.has_value() && !jobs->empty());
  std::filesystem::copy((*jobs)[0].directory + "/model.safetensors", folder);

  const json by_job = Generate({"1", "the ", "--max-new-tokens", "12", "--greedy"});
  EXPECT_EQ(by_job["tokens"].size(), 12u);
  EXPECT_EQ(by_job["finish"], "length");
  const json first = json::parse(Run({"predict", "1", "the ", "--top", "1", "-o", "json"}));
  EXPECT_EQ(by_job["tokens"][0], first["next"][0]["token"]);
  const std::vector<std::string> greedy = {folder,    "the ",    "--max-new-tokens", "12",
                                           "--dtype", "float64", "--greedy"};
  for (const char* degrees : {"tensor_parallel_degree=2", "pipeline_parallel_degree=2"}) {
    std::vector<std::string> args = greedy;
    args.insert(args.end(), {"--set", fmt::format("parallelism.{}", degrees)});
    const json by_folder = Generate(args);
    EXPECT_EQ(by_folder["tokens"], by_job["tokens"]) << degrees;
    EXPECT_EQ(by_folder["text"], by_job["text"]) << degrees;
  }
  // What is wrong is said before anything runs.
  EXPECT_THAT(Run({"generate", "1", "the ", "--top-p", "2"}, false), HasSubstr("top_p is 2"));
  EXPECT_THAT(Run({"generate", "1", "the ", "--set", "model.dim=8"}, false), HasSubstr("--set is"));
  EXPECT_THAT(Run({"generate", "nothing", "the "}, false),
              HasSubstr("neither the id of a job nor a folder"));
  // Of beams the likeliest text is shown, with its score.
  const json found = Generate({folder, "the ", "--max-new-tokens", "12", "--dtype", "float64",
                               "--num-beams", "3", "--length-penalty", "0"});
  EXPECT_EQ(found["tokens"].size(), 12u);
  EXPECT_LE(found.value("score", 1.0), 0.0);
  // Weights of 16 bits score data, too.
  EXPECT_THAT(Run({"eval", folder, "--data", data, "--limit", "1", "--context", "16", "--dtype",
                   "bfloat16"}),
              HasSubstr("perplexity"));
  // Draws go by their seed.
  const auto drawn = [&](const char* seed) {
    return Generate(
        {folder, "the ", "--max-new-tokens", "12", "--temperature", "2", "--seed", seed});
  };
  EXPECT_EQ(drawn("1")["tokens"], drawn("1")["tokens"]);
  EXPECT_NE(drawn("1")["tokens"], drawn("2")["tokens"]);
  // The model's positions end a text, its end of a text ends it sooner.
  EXPECT_EQ(Generate({folder, "the ", "--max-new-tokens", "500"})["finish"], "full");
  Write("hf/generation_config.json",
        fmt::format("{{\"eos_token_id\": {}}}", by_job["tokens"][2].get<int>()));
  EXPECT_EQ(Generate({folder, "the "})["finish"], "stop");
  EXPECT_THAT(Run({"generate", folder, "the ", "--greedy", "--ignore-eos", "--echo"}),
              HasSubstr("the "));
}

}  // namespace
}  // namespace meshwright::testing
