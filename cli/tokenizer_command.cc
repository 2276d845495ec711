// meshwright tokenizer encode | decode | train | render.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "base/json_int.h"
#include "base/text.h"
#include "cli/commands.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::cli {
namespace {

using tokenizer::BpeTrainer;
using tokenizer::BpeTrainerOptions;
using tokenizer::Tokenizer;

Result<std::string> ReadAll(const std::string& file) {
  if (file != "-") return ReadFile(file);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

// Calls body for each line of the file, which is JSON, and prints what it says as one line.
template <typename Body>
Status ForEachJsonLine(const std::string& file, Body body) {
  MW_ASSIGN_OR_RETURN(const std::string all, ReadAll(file));
  std::vector<std::string> lines = Split(all, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (size_t i = 0; i < lines.size(); ++i) {
    const nlohmann::json line = nlohmann::json::parse(lines[i], nullptr, false);
    const Result<std::string> said = body(line);
    if (!said.has_value()) {
      return said.error().WithContext(fmt::format("line {} of {}", i + 1, file));
    }
    fmt::print("{}\n", *said);
  }
  return OkStatus();
}

Status Encode(const TokenizerArgs& args, bool json) {
  MW_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(args.path));
  if (!args.jsonl.empty()) {
    return ForEachJsonLine(args.jsonl, [&](const nlohmann::json& line) -> Result<std::string> {
      const bool named = line.is_object() && line.contains("text");
      const nlohmann::json& text = named ? line["text"] : line;
      if (!text.is_string()) {
        return Fail(InvalidArgument("is no text: write \"a text\" or {\"text\": \"a text\"}"));
      }
      MW_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids,
                          tokenizer.Encode(text.get<std::string>(), {args.special}));
      return fmt::format("[{}]", fmt::join(ids, ","));
    });
  }
  std::string text = args.text;
  if (!args.file.empty()) {
    MW_ASSIGN_OR_RETURN(text, ReadAll(args.file));
  }
  MW_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, tokenizer.Encode(text, {args.special}));
  if (!json) {
    fmt::print("{}\n", fmt::join(ids, " "));
    return OkStatus();
  }
  nlohmann::json tokens = nlohmann::json::array();
  for (const uint32_t id : ids) tokens.push_back(tokenizer.TokenOf(id).value_or(""));
  fmt::print("{}\n", nlohmann::json{{"ids", ids}, {"tokens", tokens}}.dump());
  return OkStatus();
}

Result<std::vector<uint32_t>> IdsOf(const nlohmann::json& line) {
  std::vector<uint32_t> ids;
  bool good = line.is_array();
  for (const nlohmann::json& id : line) {
    const auto number = FindJsonInt<uint32_t>(id);
    good = good && number.has_value();
    if (number) ids.push_back(*number);
  }
  if (good) return ids;
  return Fail(InvalidArgument("is no list of ids"));
}

// Such ids say nothing, and the text does not show that there were any.
void NoteUnknown(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
  std::set<uint32_t> unknown;
  for (const uint32_t id : ids) {
    if (!tokenizer.TokenOf(id)) unknown.insert(id);
  }
  if (unknown.empty()) return;
  fmt::print(stderr, "note: no token has the id {}; the vocabulary's are below {}\n",
             fmt::join(unknown, ", "), tokenizer.id_end());
}

Status Decode(const TokenizerArgs& args, bool json) {
  MW_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(args.path));
  if (!args.jsonl.empty()) {
    return ForEachJsonLine(args.jsonl, [&](const nlohmann::json& line) -> Result<std::string> {
      MW_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, IdsOf(line));
      NoteUnknown(tokenizer, ids);
      return nlohmann::json(tokenizer.Decode(ids, !args.show_special)).dump();
    });
  }
  NoteUnknown(tokenizer, args.ids);
  const std::string text = tokenizer.Decode(args.ids, !args.show_special);
  fmt::print("{}\n", json ? nlohmann::json{{"text", text}}.dump() : text);
  return OkStatus();
}

Status Train(const TokenizerArgs& args, bool json) {
  BpeTrainerOptions options;
  options.vocabulary = args.vocabulary;
  options.least_count = args.least_count;
  if (!args.special_tokens.empty()) options.special_tokens = args.special_tokens;
  MW_ASSIGN_OR_RETURN(BpeTrainer trainer, BpeTrainer::Make(std::move(options)));
  int64_t bytes = 0;
  for (const std::string& file : args.files) {
    MW_ASSIGN_OR_RETURN(const MemoryMappedFile text, MemoryMappedFile::Open(file));
    const Status fed = trainer.Feed(text.text());
    if (!fed.ok()) return fed.WithContext(file);
    bytes += text.bytes();
  }
  const std::string made = trainer.Train();
  MW_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::FromJson(made));
  MW_TRY(WriteFileAtomic(args.out, made));
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"tokens", tokenizer.id_end()}, {"file", args.out}}.dump());
  } else {
    fmt::print("{} tokens from {} of text: {}\n", FormatCount(tokenizer.id_end()),
               FormatBytes(bytes), args.out);
  }
  return OkStatus();
}

Result<std::tm> TimeOf(const std::string& text) {
  std::tm time = {};
  if (text.empty()) {
    const auto seconds = static_cast<std::time_t>(SystemClock().NowNs() / 1'000'000'000);
    ::localtime_r(&seconds, &time);
    return time;
  }
  const char* const end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end != nullptr && *end == '\0') return time;
  return Fail(InvalidArgument(fmt::format("--now {} is no time like 2026-11-26T12:00:00", text)));
}

Status Render(const TokenizerArgs& args, bool json) {
  MW_ASSIGN_OR_RETURN(const auto chat,
                      tokenizer::ChatTemplate::Load(args.path, args.template_name));
  tokenizer::ChatRequest request;
  MW_ASSIGN_OR_RETURN(request.messages, ReadAll(args.file));
  request.add_generation_prompt = args.prompt;
  if (!args.tools.empty()) {
    MW_ASSIGN_OR_RETURN(request.tools, ReadAll(args.tools));
  }
  if (!args.variables.empty()) {
    MW_ASSIGN_OR_RETURN(request.variables, ReadAll(args.variables));
  }
  MW_ASSIGN_OR_RETURN(request.now, TimeOf(args.now));
  MW_ASSIGN_OR_RETURN(const tokenizer::RenderedTemplate made, chat.Render(request));
  fmt::print("{}\n", json ? nlohmann::json{{"text", made.text}}.dump() : made.text);
  return OkStatus();
}

}  // namespace

int RunTokenizer(const TokenizerArgs& args, const GlobalArgs& global) {
  Status status;
  switch (args.action) {
    case TokenizerAction::kEncode:
      status = Encode(args, global.json);
      break;
    case TokenizerAction::kDecode:
      status = Decode(args, global.json);
      break;
    case TokenizerAction::kTrain:
      status = Train(args, global.json);
      break;
    case TokenizerAction::kRender:
      status = Render(args, global.json);
      break;
  }
  return status.ok() ? kExitOk : ReportError(status);
}

}  // namespace meshwright::cli
