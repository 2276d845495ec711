// From a conversation to the text that a model was trained on: the chat template of its folder.
//
//   MW_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Load("llama"));
//   MW_ASSIGN_OR_RETURN(const RenderedTemplate made,
//                       chat.Render({.messages = R"([{"role": "user", "content": "Hi"}])",
//                                    .add_generation_prompt = true}));
//   tokenizer.Encode(made.text, {.special = false});   // the template wrote them already
//
// A template is a program of Jinja that somebody else wrote, so it runs within bounds: steps, bytes
// of a text, depth. What it can do is what transformers' sandbox lets it (docs/chat.md).
//
// Thread rule: immutable; any number of threads render at once. A copy is cheap.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/template_run.h"

namespace meshwright::tokenizer {

struct ChatRequest {
  std::string messages;                // JSON: a list of objects with "role" and "content"
  bool add_generation_prompt = false;  // ends where an answer begins
  std::string tools = {};              // JSON, a list; "": none
  std::string documents = {};
  std::string variables = {};  // JSON, an object: what else the template asks for
  std::tm now = {};            // for strftime_now
};

class ChatTemplate {
 public:
  // Names and texts of special tokens, which a template may use: "bos_token".
  using Tokens = std::vector<std::pair<std::string, std::string>>;

  // Errors: kInvalidArgument, and kUnimplemented for what is not executed, with the line.
  static Result<ChatTemplate> Parse(std::string_view text, Tokens tokens = {},
                                    TemplateLimits limits = {});
  // Of the folder of a model: chat_template.jinja, else "chat_template" of tokenizer_config.json
  // or of chat_template.json; the special tokens are those of tokenizer_config.json and
  // special_tokens_map.json. name: one of several. Errors: kNotFound: the folder has none, or none
  // of this name; those of Parse and of the files, with the file.
  static Result<ChatTemplate> Load(const std::string& folder, const std::string& name = "default");

  // The text of a special token; nothing where the folder does not say it.
  std::optional<std::string> TokenOf(std::string_view name) const;

  // Errors: those of RunTemplate, with the template's line; kInvalidArgument naming what of the
  // request is no JSON.
  Result<RenderedTemplate> Render(const ChatRequest& request) const;

  // Where each answer of an assistant stands in the rendered conversation: what a {% generation %}
  // block wrote or, of a template without one, what stands between the conversation up to the
  // answer, ended by a generation prompt, and the conversation with the answer.
  // Errors: those of Render; kInvalidArgument: a template whose text of a conversation does not
  // begin with that of its beginning.
  Result<RenderedTemplate> RenderWithAnswers(const ChatRequest& request) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  Result<RenderedTemplate> RenderMessages(const Value& messages, const ChatRequest& request) const;

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace meshwright::tokenizer
