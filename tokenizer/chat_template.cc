#include "tokenizer/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "tokenizer/template_json.h"
#include "tokenizer/template_parser.h"

namespace meshwright::tokenizer {
namespace {

constexpr const char* kTokenKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};

// The object that a file of a folder is; nothing where there is no such file.
Result<std::optional<Value>> ReadObject(const std::string& path) {
  if (!FileExists(path)) return std::optional<Value>();
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Result<Value> value = FromJson(text);
  if (!value.has_value()) return Fail(value.error().WithContext(path));
  if (!value->IsDict()) return Fail(InvalidArgument(path + " is no JSON object"));
  return std::optional<Value>(*value);
}

// A token is a text, or an object with it.
void AddTokens(const Value& config, ChatTemplate::Tokens& tokens) {
  for (const char* key : kTokenKeys) {
    const Value* found = FindMember(config.members(), std::string_view(key));
    if (found != nullptr && found->IsDict()) {
      found = FindMember(found->members(), std::string_view("content"));
    }
    const bool known = std::any_of(tokens.begin(), tokens.end(),
                                   [&](const auto& token) { return token.first == key; });
    if (found != nullptr && found->IsText() && !known) tokens.emplace_back(key, found->text());
  }
}

// "chat_template": a text, or a list of {"name", "template"}.
Result<std::optional<std::string>> TemplateOf(const Value& config, const std::string& name,
                                              std::vector<std::string>& known) {
  const Value* const found = FindMember(config.members(), std::string_view("chat_template"));
  if (found == nullptr || found->IsNone()) return std::optional<std::string>();
  if (found->IsText()) {
    known.emplace_back("default");
    return name == "default" ? std::optional(found->text()) : std::nullopt;
  }
  if (!found->IsList()) return Fail(InvalidArgument("chat_template is neither a text nor a list"));
  std::optional<std::string> chosen;
  for (const Value& item : found->items()) {
    const Value* text = nullptr;
    const Value* label = nullptr;
    if (item.IsDict()) {
      text = FindMember(item.members(), std::string_view("template"));
      label = FindMember(item.members(), std::string_view("name"));
    }
    if (text == nullptr || label == nullptr || !text->IsText() || !label->IsText()) {
      return Fail(InvalidArgument("chat_template: an item has no name or no template"));
    }
    known.push_back(label->text());
    if (label->text() == name) chosen = text->text();
  }
  return chosen;
}

Result<Value> ListOf(const std::string& json, std::string_view what) {
  if (json.empty()) return Value::None();
  const Result<Value> value = FromJson(json);
  if (!value.has_value()) return Fail(value.error().WithContext(what));
  if (!value->IsList()) return Fail(InvalidArgument(fmt::format("{}: is no list", what)));
  return value;
}

bool IsAnswer(const Value& message) {
  if (!message.IsDict()) return false;
  const Value* const role = FindMember(message.members(), std::string_view("role"));
  return role != nullptr && role->IsText() && role->text() == "assistant";
}

}  // namespace

struct ChatTemplate::Parsed {
  Body body;
  Tokens tokens;
  TemplateLimits limits;
};

Result<ChatTemplate> ChatTemplate::Parse(std::string_view text, Tokens tokens,
                                         TemplateLimits limits) {
  auto parsed = std::make_shared<Parsed>();
  MW_ASSIGN_OR_RETURN(parsed->body, ParseTemplate(text));
  parsed->tokens = std::move(tokens);
  parsed->limits = limits;
  return ChatTemplate(std::move(parsed));
}

Result<ChatTemplate> ChatTemplate::Load(const std::string& folder, const std::string& name) {
  Tokens tokens;
  std::optional<std::string> text;
  std::string from = folder + "/chat_template.jinja";
  std::vector<std::string> known;
  if (name != "default") from = fmt::format("{}/additional_chat_templates/{}.jinja", folder, name);
  if (FileExists(from)) {
    MW_ASSIGN_OR_RETURN(text, ReadFile(from));
  }
  for (const char* file :
       {"tokenizer_config.json", "chat_template.json", "special_tokens_map.json"}) {
    const std::string path = fmt::format("{}/{}", folder, file);
    MW_ASSIGN_OR_RETURN(const std::optional<Value> config, ReadObject(path));
    if (!config) continue;
    AddTokens(*config, tokens);
    if (text) continue;
    const auto found = TemplateOf(*config, name, known);
    if (!found.has_value()) return Fail(found.error().WithContext(path));
    text = *found;
    from = path;
  }
  if (!text && !known.empty()) {
    return Fail(NotFound(fmt::format("{} has no chat template '{}'; it has {}", folder, name,
                                     fmt::join(known, ", "))));
  }
  if (!text) {
    return Fail(
        NotFound(fmt::format("{} has no chat template: neither a chat_template.jinja nor "
                             "\"chat_template\" in its tokenizer_config.json",
                             folder)));
  }
  Result<ChatTemplate> made = Parse(*text, std::move(tokens));
  if (!made.has_value()) return Fail(made.error().WithContext(from));
  return made;
}

std::optional<std::string> ChatTemplate::TokenOf(std::string_view name) const {
  for (const auto& [known, text] : parsed_->tokens) {
    if (known == name) return text;
  }
  return std::nullopt;
}

Result<RenderedTemplate> ChatTemplate::RenderMessages(const Value& messages,
                                                      const ChatRequest& request) const {
  TemplateInputs inputs;
  inputs.now = request.now;
  for (const auto& [name, text] : parsed_->tokens) {
    inputs.variables.emplace_back(name, Value::Of(text));
  }
  inputs.variables.emplace_back("messages", messages);
  MW_ASSIGN_OR_RETURN(Value tools, ListOf(request.tools, "tools"));
  MW_ASSIGN_OR_RETURN(Value documents, ListOf(request.documents, "documents"));
  inputs.variables.emplace_back("tools", std::move(tools));
  inputs.variables.emplace_back("documents", std::move(documents));
  inputs.variables.emplace_back("add_generation_prompt", Value::Of(request.add_generation_prompt));
  if (!request.variables.empty()) {
    const Result<Value> more = FromJson(request.variables);
    if (!more.has_value()) return Fail(more.error().WithContext("variables of the chat template"));
    if (!more->IsDict()) {
      return Fail(InvalidArgument("variables of the chat template: is no JSON object"));
    }
    for (const auto& [key, value] : more->members()) {
      inputs.variables.emplace_back(key.text(), value);
    }
  }
  const auto made = RunTemplate(parsed_->body, inputs, parsed_->limits);
  if (!made.has_value()) return Fail(made.error().WithContext("the chat template"));
  return made;
}

Result<RenderedTemplate> ChatTemplate::Render(const ChatRequest& request) const {
  MW_ASSIGN_OR_RETURN(const Value messages, ListOf(request.messages, "messages"));
  if (messages.IsNone()) return Fail(InvalidArgument("messages: there are none"));
  return RenderMessages(messages, request);
}

Result<RenderedTemplate> ChatTemplate::RenderWithAnswers(const ChatRequest& request) const {
  MW_ASSIGN_OR_RETURN(RenderedTemplate all, Render(request));
  if (!all.generated.empty()) return all;
  MW_ASSIGN_OR_RETURN(const Value messages, ListOf(request.messages, "messages"));
  const Values& items = messages.items();
  const auto part = [&](size_t count, bool prompt) -> Result<std::string> {
    MW_ASSIGN_OR_RETURN(
        const Value some,
        Value::List({items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count)}));
    ChatRequest asked = request;
    asked.add_generation_prompt = prompt;
    MW_ASSIGN_OR_RETURN(RenderedTemplate made, RenderMessages(some, asked));
    return std::move(made.text);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    if (!IsAnswer(items[i])) continue;
    MW_ASSIGN_OR_RETURN(const std::string before, part(i, true));
    MW_ASSIGN_OR_RETURN(const std::string with, part(i + 1, false));
    if (!with.starts_with(before) || !all.text.starts_with(with)) {
      return Fail(InvalidArgument(fmt::format(
          "the chat template writes message {} otherwise once more follow, so where an answer "
          "begins cannot be told; put {{% generation %}} around answers in it",
          i)));
    }
    all.generated.push_back({before.size(), with.size()});
  }
  return all;
}

}  // namespace meshwright::tokenizer
