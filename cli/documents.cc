#include "cli/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/sha256.h"

namespace meshwright::cli {
namespace {

using tokenizer::ChatTemplate;
using tokenizer::TextSpan;
using tokenizer::Tokenizer;

constexpr const char* kMadeBy = "documents 2";  // another number: documents are made otherwise

// What a line of JSON may hold, in the order in which it is looked for.
struct PairNames {
  const char* prompt;
  const char* answer;
};
constexpr PairNames kPairs[] = {{"prompt", "completion"}, {"input", "output"}};

// Files of a tokenizer whose bytes decide what it does.
Result<std::string> IdentityOf(const std::string& path) {
  Sha256 hash;
  const bool folder = FileExists(path + "/.");
  const std::string base = folder ? path : std::filesystem::path(path).parent_path().string();
  std::vector<std::string> files = {"tokenizer.json",          "tokenizer.model",
                                    "tokenizer_config.json",   "added_tokens.json",
                                    "special_tokens_map.json", "chat_template.jinja",
                                    "chat_template.json",      "spiece.model",
                                    "sentencepiece.bpe.model"};
  for (std::string& file : files) file = base.empty() ? file : base + "/" + file;
  if (!folder) files.push_back(path);
  for (const std::string& file : files) {
    if (!FileExists(file)) continue;
    MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
    hash.Update(
        fmt::format("{} {}\n", std::filesystem::path(file).filename().string(), bytes.size()));
    hash.Update(bytes);
  }
  return hash.HexDigest();
}

// How many ids two encodings have in common at their beginning.
size_t Common(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  size_t count = 0;
  while (count < a.size() && count < b.size() && a[count] == b[count]) ++count;
  return count;
}

// A template leaves out, without a word, what it does not know: a message without a role, or with
// nothing in it.
Status CheckMessages(const nlohmann::ordered_json& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const nlohmann::ordered_json& message = messages[i];
    const auto has = [&](const char* name) {
      return message.contains(name) && !message[name].is_null();
    };
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return InvalidArgument(fmt::format("message {} has no \"role\", a text", i + 1));
    }
    if (has("content") || has("tool_calls")) continue;
    return InvalidArgument(
        fmt::format("message {}, of \"{}\", has neither \"content\" nor \"tool_calls\"", i + 1,
                    message["role"].get<std::string>()));
  }
  return OkStatus();
}

const std::string* TextIn(const nlohmann::json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get_ptr<const std::string*>() : nullptr;
}

}  // namespace

std::string FolderOfTokenizer(const std::string& path) {
  if (FileExists(path + "/.")) return path;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool HasTokenizer(const std::string& path) {
  if (!FileExists(path + "/.")) return FileExists(path);
  return !Tokenizer::FileIn(path).empty();
}

std::optional<uint32_t> EndOfText(const std::string& folder, const Tokenizer& tokenizer) {
  const auto text = ReadFile(folder + "/tokenizer_config.json");
  const nlohmann::json config =
      text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  std::vector<std::string> names;
  if (config.is_object() && config.contains("eos_token")) {
    const nlohmann::json& end = config["eos_token"];
    if (end.is_string()) names.push_back(end.get<std::string>());
    if (end.is_object() && end.contains("content") && end["content"].is_string()) {
      names.push_back(end["content"].get<std::string>());
    }
  }
  names.insert(names.end(), {"<|endoftext|>", "</s>"});
  for (const std::string& name : names) {
    if (const auto id = tokenizer.IdOf(name)) return id;
  }
  return std::nullopt;
}

std::optional<uint32_t> EndOfText(const std::string& path) {
  const auto tokenizer = Tokenizer::Load(path);
  if (!tokenizer.has_value()) return std::nullopt;
  return EndOfText(FolderOfTokenizer(path), *tokenizer);
}

Result<DocumentMaker> DocumentMaker::Make(const DocumentRules& rules) {
  DocumentMaker maker(rules);
  if (rules.separator) maker.separator_ = static_cast<uint32_t>(*rules.separator);
  if (rules.tokenizer.empty()) return std::move(maker).OfBytes();
  MW_ASSIGN_OR_RETURN(maker.tokenizer_, Tokenizer::Load(rules.tokenizer));
  const std::string folder = FolderOfTokenizer(rules.tokenizer);
  if (!rules.separator) maker.separator_ = EndOfText(folder, *maker.tokenizer_);
  if (rules.format == "jsonl") {
    auto chat = ChatTemplate::Load(folder);
    if (chat.has_value()) {
      maker.chat_ = *chat;
    } else {
      maker.no_chat_ = chat.error();
    }
  }
  MW_ASSIGN_OR_RETURN(const std::string files, IdentityOf(rules.tokenizer));
  maker.SetIdentity(files);
  return maker;
}

DocumentMaker DocumentMaker::OfBytes() && {
  no_chat_ = NotFound("data of bytes have no folder with a template");
  SetIdentity("bytes");
  return std::move(*this);
}

void DocumentMaker::SetIdentity(const std::string& files) {
  identity_ =
      fmt::format("{}\n{}\n{}\n{}\n{}\n", kMadeBy, rules_.format, files,
                  separator_ ? int64_t{*separator_} : -1, rules_.answers ? "answers" : "all");
}

Result<std::vector<uint32_t>> DocumentMaker::Encode(std::string_view text) const {
  if (tokenizer_) return tokenizer_->Encode(text, {.special = false});
  std::vector<uint32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

int64_t DocumentMaker::id_end() const {
  constexpr int64_t kBytes = 256;
  const int64_t ids = tokenizer_ ? int64_t{tokenizer_->id_end()} : kBytes;
  return std::max<int64_t>(ids, separator_ ? int64_t{*separator_} + 1 : 0);
}

Result<std::vector<bool>> DocumentMaker::Continuations() const {
  std::vector<bool> goes_on(static_cast<size_t>(id_end()), false);
  bool any = false;
  for (uint32_t id = 0; tokenizer_ && id < tokenizer_->id_end(); ++id) {
    const std::optional<std::string> token = tokenizer_->TokenOf(id);
    goes_on[id] = token && token->starts_with("##") && token->size() > 2;
    any = any || goes_on[id];
  }
  if (any) return goes_on;
  return Fail(
      InvalidArgument("training.mask_whole_words: no token of the tokenizer begins with \"##\", "
                      "so where words begin is not known"));
}

Result<Document> DocumentMaker::OfText(std::string_view text) const {
  Document document;
  MW_ASSIGN_OR_RETURN(document.ids, Encode(text));
  document.learned.assign(document.ids.size(), true);
  document.bytes = static_cast<int64_t>(text.size());
  return document;
}

// Where a text ends within the tokens of a longer one is where their tokens part: the tokens of
// its beginning are those of the whole, but for one that stands over its end.
Result<Document> DocumentMaker::OfAnswers(std::string_view text,
                                          const std::vector<TextSpan>& answers) const {
  MW_ASSIGN_OR_RETURN(Document document, OfText(text));
  if (!rules_.answers) return document;
  document.learned.assign(document.ids.size(), false);
  document.bytes = 0;
  for (const TextSpan& answer : answers) {
    MW_CHECK(answer.begin <= answer.end && answer.end <= text.size())
        << "an answer from " << answer.begin << " to " << answer.end << " of " << text.size();
    if (answer.begin == answer.end) continue;
    MW_ASSIGN_OR_RETURN(const auto before, Encode(text.substr(0, answer.begin)));
    MW_ASSIGN_OR_RETURN(const auto with, Encode(text.substr(0, answer.end)));
    const size_t first = Common(before, document.ids);
    const size_t common = Common(with, document.ids);
    const size_t end = std::min(document.ids.size(), common + (common < with.size() ? 1 : 0));
    for (size_t i = first; i < end; ++i) document.learned[i] = true;
    document.bytes += static_cast<int64_t>(answer.end - answer.begin);
  }
  return document;
}

Result<Document> DocumentMaker::OfMessages(std::string_view line) const {
  if (!chat_) return Fail(no_chat_.WithContext("\"messages\" need a chat template"));
  // Not the object that was parsed first: keys keep their order.
  const auto ordered = nlohmann::ordered_json::parse(line, nullptr, false);
  MW_TRY(CheckMessages(ordered["messages"]));
  tokenizer::ChatRequest request;
  request.messages = ordered["messages"].dump();
  request.now.tm_year = 70;  // equal texts give equal tokens, whenever that is
  request.now.tm_mday = 1;
  if (ordered.contains("tools") && ordered["tools"].is_array()) {
    request.tools = ordered["tools"].dump();
  }
  MW_ASSIGN_OR_RETURN(const tokenizer::RenderedTemplate made,
                      rules_.answers ? chat_->RenderWithAnswers(request) : chat_->Render(request));
  return OfAnswers(made.text, made.generated);
}

Result<Document> DocumentMaker::OfLine(std::string_view line) const {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return Fail(InvalidArgument("is no JSON object"));
  if (const std::string* text = TextIn(object, "text")) return OfText(*text);
  const auto messages = object.find("messages");
  if (messages != object.end() && messages->is_array()) return OfMessages(line);
  for (const PairNames& names : kPairs) {
    const std::string* prompt = TextIn(object, names.prompt);
    const std::string* answer = TextIn(object, names.answer);
    if (prompt == nullptr || answer == nullptr) continue;
    const std::string all = *prompt + *answer;
    return OfAnswers(all, {{prompt->size(), all.size()}});
  }
  return Fail(InvalidArgument(
      "has neither \"text\", a text, nor \"messages\", a list, nor \"prompt\" and \"completion\", "
      "texts"));
}

void DocumentMaker::EndWithSeparator(Document& document) const {
  // A chat template may have ended the conversation with the same token.
  if (!separator_ || document.ids.empty() || document.ids.back() == *separator_) return;
  document.ids.push_back(*separator_);
  document.learned.push_back(document.learned.back());
}

Result<std::vector<Document>> DocumentMaker::OfPart(std::string_view part, bool last,
                                                    int64_t first_line) const {
  std::vector<Document> documents;
  if (rules_.format == "text") {
    MW_ASSIGN_OR_RETURN(Document document, OfText(part));
    if (last) EndWithSeparator(document);
    if (!document.ids.empty()) documents.push_back(std::move(document));
    return documents;
  }
  for (int64_t number = first_line; !part.empty(); ++number) {
    const size_t end = std::min(part.find('\n'), part.size());
    const std::string_view line = part.substr(0, end);
    part.remove_prefix(std::min(end + 1, part.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    Result<Document> document = OfLine(line);
    if (!document.has_value()) {
      return Fail(document.error().WithContext(fmt::format("JSON at line {}", number)));
    }
    EndWithSeparator(*document);
    if (!document->ids.empty()) documents.push_back(std::move(*document));
  }
  return documents;
}

}  // namespace meshwright::cli
