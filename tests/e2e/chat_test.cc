// `meshwright chat`: a conversation through pipes, with a model that a job trained on JSONL through
// a tokenizer.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kChatConfig[] =
    R"({"model_type":"gpt2","n_embd":32,"n_layer":1,"n_head":4,"vocab_size":256,"n_positions":48,)"
    R"("resid_pdrop":0,"embd_pdrop":0,"attn_pdrop":0})";

// Characters of ASCII are tokens; 127 ends a text.
std::string AsciiTokenizer() {
  json vocabulary;
  for (int c = 0; c < 127; ++c) vocabulary[std::string(1, static_cast<char>(c))] = c;
  vocabulary["<end>"] = 127;
  const json end = {{"id", 127},       {"content", "<end>"}, {"single_word", false},
                    {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                    {"special", true}};
  return json{{"version", "1.0"},
              {"added_tokens", {end}},
              {"decoder", {{"type", "Fuse"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}}
      .dump();
}

class ChatCommand : public FaultFixture {
 protected:
  // What the command prints; its stdin is `lines`.
  std::string Chat(const std::string& lines, const std::string& args, const char* errors = "2>&1") {
    const std::string input = Write("lines.txt", lines);
    const std::string command =
        fmt::format("timeout 60 {} --address {} chat {} < {} {}", MESHWRIGHT_BINARY,
                    cluster().address(), args, input, errors);
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string said;
    char block[256];
    for (size_t got = 1; got > 0;) {
      got = std::fread(block, 1, sizeof(block), pipe);
      said.append(block, got);
    }
    exit_code_ = ::pclose(pipe);
    return said;
  }
  int exit_code_ = 0;
};

TEST_F(ChatCommand, TalksWithAModelThatLearntFromConversations) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const std::string folder = dir_.File("hf");
  ASSERT_TRUE(MakeDirs(folder).ok());
  Write("hf/config.json", kChatConfig);
  Write("hf/tokenizer.json", AsciiTokenizer());
  Write("hf/tokenizer_config.json", R"({"eos_token":"<end>"})");
  Write("hf/chat_template.jinja",
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n"
        "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}a:{% endif %}");
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    lines +=
        R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}]})";
    lines += "\n";
  }
  const std::string data = Write("chats.jsonl", lines);
  const auto submitted = RunMeshwright(
      {"--address", cluster().address(), "submit", "-q",
       Write("job.toml",
             fmt::format("[model]\nhf_path = \"{}\"\n[optimizer]\nlr = 0.02\n[training]\n"
                         "dataset_path = \"{}\"\ndataset_format = \"jsonl\"\n"
                         "global_batch_size = 8\nseq_len = 24\nsteps = 60\n",
                         folder, data))},
      {}, 120'000);
  ASSERT_TRUE(submitted.has_value() && submitted->exit.ok())
      << (submitted ? submitted->stderr_text : "");
  // The tokens of the job are the conversations', and lie beside them.
  EXPECT_TRUE(std::filesystem::exists(dir_.File(".meshwright-tokens")));
  const auto jobs = cluster().client().List();
  ASSERT_TRUE(jobs.has_value() && !jobs->empty());
  std::filesystem::copy((*jobs)[0].directory + "/model.safetensors", folder);

  const std::string said =
      Chat("hi\n/clear\nhi\n/exit\nhi\n", folder + " --greedy --context 40", "2>/dev/null");
  // Two equal answers, since the second conversation knows nothing of the first, and the end.
  ASSERT_EQ(said.size() % 2, 1u) << said;
  const std::string answer = said.substr(0, said.size() / 2);
  EXPECT_EQ(said, answer + answer + "\n");
  EXPECT_THAT(answer, HasSubstr("yes"));
  EXPECT_EQ(exit_code_, 0);
  // Without /clear the conversation grows until it is too long, which ends nothing.
  const std::string full = Chat("hi\nhi\nhi\nhi\n/clear\nhi\n", folder + " --greedy --context 40");
  EXPECT_THAT(full, HasSubstr("positions: /clear begins anew"));
  EXPECT_THAT(full, ::testing::EndsWith(answer + "\n"));
  EXPECT_THAT(Chat("hi\n", folder + " --chat-template " + Write("bad.jinja", "{% x %}")),
              HasSubstr("bad.jinja: line 1: this tag is not executed: at 'x'"));
  std::filesystem::remove(folder + "/chat_template.jinja");
  EXPECT_THAT(Chat("hi\n", folder), HasSubstr("--chat-template FILE names one"));
  EXPECT_NE(exit_code_, 0);
}

}  // namespace
}  // namespace meshwright::testing
