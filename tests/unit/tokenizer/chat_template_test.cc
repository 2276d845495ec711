// Chat templates against what jinja2 makes of the same ones (tools/hf-check chat-goldens), and the
// bounds that they run within.
#include "tokenizer/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace meshwright::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ChatJson = nlohmann::ordered_json;

constexpr char kHello[] = R"([{"role":"user","content":"Hi"}])";

Result<RenderedTemplate> RenderChat(const std::string& text, const std::string& messages = "[]",
                                    TemplateLimits limits = {}) {
  MW_ASSIGN_OR_RETURN(const ChatTemplate made, ChatTemplate::Parse(text, {}, limits));
  return made.Render({.messages = messages});
}

std::string ChatErrorOf(const std::string& text, TemplateLimits limits = {}) {
  const auto made = RenderChat(text, "[]", limits);
  return made.has_value() ? "none" : made.error().message();
}

TEST(ChatTemplate, SaysWhatJinjaSays) {
  const std::string path =
      std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/tokenizer/chat/cases.json";
  const ChatJson cases = ChatJson::parse(ReadFile(path).value());
  ASSERT_GT(cases.size(), 30u);
  for (const ChatJson& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto parsed = ChatTemplate::Parse(one["template"].get<std::string>(),
                                            {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    if (!parsed.has_value()) {
      EXPECT_TRUE(one.contains("error")) << parsed.error().message();
      continue;
    }
    ChatRequest request;
    request.messages = one["messages"].dump();
    request.add_generation_prompt = one["prompt"].get<bool>();
    if (one.contains("tools")) request.tools = one["tools"].dump();
    if (one.contains("variables")) request.variables = one["variables"].dump();
    request.now.tm_year = 2026 - 1900;
    request.now.tm_mon = 10;
    request.now.tm_mday = 26;
    request.now.tm_hour = 12;
    const auto made = parsed->Render(request);
    if (one.contains("error")) {
      EXPECT_FALSE(made.has_value()) << made->text;
    } else if (!made.has_value()) {
      ADD_FAILURE() << made.error().message();
    } else {
      EXPECT_EQ(made->text, one["text"].get<std::string>());
    }
  }
}

TEST(ChatTemplate, WhatItDoesNotExecuteIsNamed) {
  EXPECT_THAT(ChatErrorOf("a\n{% include 'x' %}"), HasSubstr("line 2: this tag is not executed"));
  EXPECT_THAT(ChatErrorOf("{{ 1 | frobnicate }}"),
              HasSubstr("no such filter here: at 'frobnicate'"));
  EXPECT_THAT(ChatErrorOf("{{ 1 is frob }}"), HasSubstr("no such test here: at 'frob'"));
  EXPECT_THAT(ChatErrorOf("{% for x in y recursive %}{% endfor %}"), HasSubstr("'recursive'"));
  EXPECT_THAT(ChatErrorOf("{{ f(*a) }}"), HasSubstr("arguments by '*'"));
  EXPECT_THAT(ChatErrorOf("{{ '%s' % 1 }}"), HasSubstr("would format it"));
  EXPECT_THAT(ChatErrorOf("{% for i in [1] %}{% macro m() %}{% endmacro %}{% endfor %}"),
              HasSubstr("within a loop or a block"));
  EXPECT_THAT(ChatErrorOf("x\n\n{{ a.b.c }}"), HasSubstr("line 3: 'a' is undefined"));
  EXPECT_THAT(ChatErrorOf("{{ {}.x.y }}"), HasSubstr("'dict object has no 'x'' is undefined"));
  EXPECT_THAT(ChatErrorOf("{{ raise_exception('no tools') }}"),
              HasSubstr("the template says: no tools"));
  EXPECT_THAT(ChatErrorOf("{{ 9223372036854775807 + 1 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(ChatErrorOf("{{ 'a"), HasSubstr("a text is not closed"));
  EXPECT_THAT(ChatErrorOf("{{ \xff }}"), HasSubstr("not UTF-8 at byte 3"));
  EXPECT_THAT(ChatErrorOf("{% break %}"), HasSubstr("outside of a loop"));
}

// A template is somebody else's program: whatever it does, it ends.
TEST(ChatTemplate, RunsWithinBounds) {
  const TemplateLimits small = {.steps = 100'000, .text_bytes = 10'000, .depth = 300};
  for (const char* endless :
       {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor "
        "%}",
        "{% for i in range(9999) %}0123456789{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}",
        "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% endfor "
        "%}",
        "{{ 'a' * 999999999 }}", "{{ [1] * 999999999 }}", "{{ 'aaaa'.replace('', 'b' * 9999) }}",
        "{{ range(1000000) }}",
        "{{ ('a' * 9000) | indent(4000) ~ ('b\n' * 4000) | indent(4000) }}"}) {
    const auto made = RenderChat(endless, "[]", small);
    ASSERT_FALSE(made.has_value()) << endless;
    EXPECT_EQ(made.error().code(), StatusCode::kResourceExhausted) << made.error().message();
  }
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')');
  EXPECT_THAT(ChatErrorOf("{{ " + deep + " }}"), HasSubstr("nested deeper than"));
  EXPECT_THAT(ChatErrorOf("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("nested deeper"));
  std::string tags;
  for (int i = 0; i < 5000; ++i) tags += "{% if true %}";
  EXPECT_THAT(ChatErrorOf(tags), HasSubstr("tags are nested deeper"));
  // A namespace that holds itself is no leak, and has no text.
  EXPECT_EQ(ChatErrorOf("{% set n = namespace() %}{% set n.me = n %}"), "none");
}

// Whatever bytes a template has, it is refused or it runs.
TEST(ChatTemplate, DamagedTemplatesAreRefusedOrRun) {
  const std::string path =
      std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/tokenizer/chat/cases.json";
  const ChatJson cases = ChatJson::parse(ReadFile(path).value());
  const TemplateLimits small = {.steps = 20'000, .text_bytes = 100'000, .depth = 300};
  uint64_t state = 1;
  for (int round = 0; round < 1500; ++round) {
    const ChatJson& one = cases[static_cast<size_t>(round) % cases.size()];
    auto text = one["template"].get<std::string>();
    for (int i = 0; i < 3; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const size_t at = (state >> 20) % text.size();
      constexpr std::string_view kSigns = "{}%-+|.()[]'\"~ ,:=<>!0aif\n";
      if (state >> 63 != 0) {
        text[at] = kSigns[(state >> 50) % kSigns.size()];
      } else {
        text.erase(at, 1 + (state >> 55) % 4);
      }
      if (text.empty()) text = "{";
    }
    const auto made = RenderChat(text, one["messages"].dump(), small);
    EXPECT_TRUE(!made.has_value() || made->text.size() <= 100'000) << text;
  }
}

TEST(ChatTemplate, KnowsWhereAnswersStand) {
  const std::string messages =
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
      R"({"role":"user","content":"c"},{"role":"assistant","content":"dd"}])";
  const auto answers = [&](const std::string& text) {
    const RenderedTemplate made =
        ChatTemplate::Parse(text).value().RenderWithAnswers({.messages = messages}).value();
    std::vector<std::string> parts;
    for (const TextSpan& span : made.generated) {
      parts.push_back(made.text.substr(span.begin, span.end - span.begin));
    }
    return parts;
  };
  EXPECT_THAT(answers("{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
                      "{% if add_generation_prompt %}<assistant>{% endif %}"),
              ElementsAre("b;", "dd;"));
  EXPECT_THAT(answers("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
                      "{% generation %}{{ m.content }}.{% endgeneration %}{% endif %}{% endfor %}"),
              ElementsAre("b.", "dd."));
  const auto changed =
      ChatTemplate::Parse(
          "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}")
          .value()
          .RenderWithAnswers({.messages = messages});
  ASSERT_FALSE(changed.has_value());
  EXPECT_THAT(changed.error().message(), HasSubstr("writes message 1 otherwise"));
}

TEST(ChatTemplate, ComesFromAFolder) {
  const TempDir folder = TempDir::Make().value();
  const auto write = [&](const char* name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(folder.File(name), text).ok());
  };
  const auto render = [&](const std::string& name = "default") -> std::string {
    const auto made = ChatTemplate::Load(folder.path(), name);
    if (!made.has_value()) return made.error().message();
    const auto text = made->Render({.messages = kHello});
    return text.has_value() ? text->text : text.error().message();
  };
  EXPECT_THAT(render(), HasSubstr("has no chat template: neither a chat_template.jinja"));
  write("tokenizer_config.json", R"({"bos_token":{"content":"<s>"},"chat_template":)"
                                 R"([{"name":"default","template":"1{{ bos_token }}"},)"
                                 R"({"name":"tools","template":"2{{ messages[0].content }}"}]})");
  EXPECT_EQ(render(), "1<s>");
  EXPECT_EQ(render("tools"), "2Hi");
  EXPECT_THAT(render("rag"), HasSubstr("no chat template 'rag'; it has default, tools"));
  write("special_tokens_map.json", R"({"bos_token":"<x>","eos_token":"</s>"})");
  write("chat_template.jinja", "3{{ bos_token }}{{ eos_token }}{{ tools is none }}\n");
  EXPECT_EQ(render(), "3<s></s>True");
  write("chat_template.jinja", "\n{{ 1 | nope }}");
  EXPECT_THAT(render(), HasSubstr("chat_template.jinja: line 2: there is no such filter"));
  write("tokenizer_config.json", "{\n x");
  EXPECT_THAT(render(), HasSubstr("tokenizer_config.json"));
  const ChatTemplate plain = ChatTemplate::Parse("x").value();
  EXPECT_THAT(plain.Render({.messages = "{}"}).error().message(),
              HasSubstr("messages: is no list"));
  EXPECT_THAT(plain.Render({.messages = "[\n1,,]"}).error().message(), HasSubstr("messages: "));
  EXPECT_THAT(plain.Render({.messages = "[]", .variables = "[]"}).error().message(),
              HasSubstr("variables"));
}

}  // namespace
}  // namespace meshwright::tokenizer
