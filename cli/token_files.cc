#include "cli/token_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/mutex.h"
#include "base/parallel.h"
#include "base/sha256.h"
#include "cli/cache_dir.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::cli {
namespace {

using tokenizer::ChatTemplate;
using tokenizer::Tokenizer;

constexpr const char* kMadeBy = "token files 1";  // another number: parts are made otherwise
constexpr size_t kPartNameLength = 40;
constexpr int64_t kUint16 = 65'536;

// Bytes [begin, end) of a text.
struct Part {
  size_t file = 0;
  size_t begin = 0;
  size_t end = 0;
  bool last = false;  // of its file
};

// What all parts are made with.
struct Maker {
  std::string format;
  std::string identity;  // of everything here that decides what tokens a part has
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  Status no_chat;  // why there is none, for the line that wants one
  std::optional<uint32_t> separator;
  bool wide = false;
};

// Files of a tokenizer whose bytes decide what it does.
Result<std::string> IdentityOf(const std::string& path) {
  Sha256 hash;
  const bool folder = FileExists(path + "/.");
  const std::string base = folder ? path : std::filesystem::path(path).parent_path().string();
  std::vector<std::string> files = {"tokenizer.json",          "tokenizer.model",
                                    "tokenizer_config.json",   "added_tokens.json",
                                    "special_tokens_map.json", "chat_template.jinja",
                                    "chat_template.json"};
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

// The folder in which a tokenizer's other files stand.
std::string FolderOf(const std::string& path) {
  if (FileExists(path + "/.")) return path;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// "eos_token" of tokenizer_config.json, where it is a token.
std::optional<uint32_t> EndOf(const std::string& folder, const Tokenizer& tokenizer) {
  const auto text = ReadFile(folder + "/tokenizer_config.json");
  const nlohmann::json config =
      text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  std::vector<std::string> names;
  if (config.is_object() && config.contains("eos_token")) {
    const nlohmann::json& end = config["eos_token"];
    if (end.is_string()) names.push_back(end.get<std::string>());
    if (end.is_object()) names.push_back(end.value("content", ""));
  }
  names.insert(names.end(), {"<|endoftext|>", "</s>"});
  for (const std::string& name : names) {
    if (const auto id = tokenizer.IdOf(name)) return id;
  }
  return std::nullopt;
}

Result<Maker> MakerOf(const TokenFilesRequest& request) {
  Maker maker;
  maker.format = request.format;
  MW_ASSIGN_OR_RETURN(maker.tokenizer, Tokenizer::Load(request.tokenizer));
  const std::string folder = FolderOf(request.tokenizer);
  maker.separator = EndOf(folder, *maker.tokenizer);
  if (request.separator) maker.separator = static_cast<uint32_t>(*request.separator);
  if (request.format == "jsonl") {
    auto chat = ChatTemplate::Load(folder);
    if (chat.has_value()) {
      maker.chat = *chat;
    } else {
      maker.no_chat = chat.error();
    }
  }
  const int64_t largest = std::max<int64_t>(maker.tokenizer->id_end(),
                                            maker.separator ? int64_t{*maker.separator} + 1 : 0);
  maker.wide = largest > kUint16;
  MW_ASSIGN_OR_RETURN(const std::string files, IdentityOf(request.tokenizer));
  maker.identity = fmt::format("{}\n{}\n{}\n{}\n", kMadeBy, maker.format, files,
                               maker.separator ? int64_t{*maker.separator} : -1);
  return maker;
}

// Where a part that could end at `at` ends: behind an empty line, else behind a line, else behind a
// character. Lines of JSON are never cut.
size_t EndBehind(std::string_view text, size_t at, bool lines) {
  const size_t reach = std::min(text.size(), at + at / 4 + 1);
  if (!lines) {
    const size_t empty = text.substr(0, reach).find("\n\n", at);
    if (empty != text.npos) return std::min(text.find_first_not_of('\n', empty), text.size());
  }
  const size_t line = lines ? text.find('\n', at) : text.substr(0, reach).find('\n', at);
  if (line != text.npos) return line + 1;
  if (lines) return text.size();
  while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
  return at;
}

std::vector<Part> PartsOf(std::string_view text, size_t file, size_t part_bytes, bool lines) {
  std::vector<Part> parts;
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view rest = text.substr(begin);
    const size_t length =
        rest.size() <= part_bytes ? rest.size() : EndBehind(rest, part_bytes, lines);
    parts.push_back({file, begin, begin + length, begin + length == text.size()});
    begin += length;
  }
  return parts;
}

using Ids = std::vector<uint32_t>;

Status AddDocument(const Maker& maker, std::string_view text, Ids& ids) {
  MW_ASSIGN_OR_RETURN(const Ids made, maker.tokenizer->Encode(text, {.special = false}));
  ids.insert(ids.end(), made.begin(), made.end());
  return OkStatus();
}

void AddSeparator(const Maker& maker, Ids& ids) {
  // A chat template may have ended the conversation with the same token.
  if (maker.separator && (ids.empty() || ids.back() != *maker.separator)) {
    ids.push_back(*maker.separator);
  }
}

Status AddLine(const Maker& maker, std::string_view line, Ids& ids) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return InvalidArgument("is no JSON object");
  const auto text = object.find("text");
  const auto messages = object.find("messages");
  if (text != object.end() && text->is_string()) {
    MW_TRY(AddDocument(maker, text->get_ref<const std::string&>(), ids));
  } else if (messages != object.end() && messages->is_array()) {
    if (!maker.chat) return maker.no_chat.WithContext("\"messages\" need a chat template");
    // Not the parsed object: keys keep their order.
    const auto ordered = nlohmann::ordered_json::parse(line, nullptr, false);
    tokenizer::ChatRequest request;
    request.messages = ordered["messages"].dump();
    request.now.tm_year = 70;  // equal texts give equal tokens, whenever that is
    request.now.tm_mday = 1;
    if (ordered.contains("tools") && ordered["tools"].is_array()) {
      request.tools = ordered["tools"].dump();
    }
    MW_ASSIGN_OR_RETURN(const tokenizer::RenderedTemplate made, maker.chat->Render(request));
    MW_TRY(AddDocument(maker, made.text, ids));
  } else {
    return InvalidArgument("has neither \"text\", a text, nor \"messages\", a list");
  }
  AddSeparator(maker, ids);
  return OkStatus();
}

// Errors name the line of the part, counted from 1, where there are lines.
Result<Ids> TokensOfPart(const Maker& maker, std::string_view part, bool last, int64_t first_line) {
  Ids ids;
  if (maker.format == "text") {
    MW_TRY(AddDocument(maker, part, ids));
    if (last) AddSeparator(maker, ids);
    return ids;
  }
  for (int64_t number = first_line; !part.empty(); ++number) {
    const size_t end = std::min(part.find('\n'), part.size());
    const std::string_view line = part.substr(0, end);
    part.remove_prefix(std::min(end + 1, part.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const Status added = AddLine(maker, line, ids);
    if (!added.ok()) return Fail(added.WithContext(fmt::format("JSON at line {}", number)));
  }
  return ids;
}

std::string BytesOf(const Ids& ids, bool wide) {
  std::string bytes;
  bytes.reserve(ids.size() * (wide ? 4 : 2));
  for (const uint32_t id : ids) {
    for (int i = 0; i < (wide ? 4 : 2); ++i) bytes += static_cast<char>(id >> (8 * i) & 0xff);
  }
  return bytes;
}

class Work {
 public:
  Work(const TokenFilesRequest& request, Maker maker)
      : request_(request), maker_(std::move(maker)) {}

  Result<TokenFiles> Run() {
    const bool lines = maker_.format == "jsonl";
    for (size_t i = 0; i < request_.files.size(); ++i) {
      MW_ASSIGN_OR_RETURN(MemoryMappedFile map, MemoryMappedFile::Open(request_.files[i]));
      for (const Part& part :
           PartsOf(map.text(), i, static_cast<size_t>(request_.part_bytes), lines)) {
        parts_.push_back(part);
      }
      all_bytes_ += map.bytes();
      maps_.push_back(std::move(map));
    }
    MW_TRY(MakeDirs(request_.cache));
    std::vector<Result<std::string>> paths(parts_.size(), std::string());
    ParallelItems(static_cast<int64_t>(parts_.size()), 1, [&](int64_t item) {
      const auto i = static_cast<size_t>(item);
      if (failed()) return;
      paths[i] = OnePart(parts_[i]);
      Report(parts_[i], paths[i].has_value());
    });
    TokenFiles files;
    files.format = maker_.wide ? "uint32" : "uint16";
    for (Result<std::string>& path : paths) {
      if (!path.has_value()) return Fail(path.error());
      if (!path->empty()) files.paths.push_back(std::move(*path));
    }
    const MutexLock lock(mutex_);
    files.made = made_;
    return files;
  }

 private:
  std::string_view TextOf(const Part& part) const {
    return maps_[part.file].text().substr(part.begin, part.end - part.begin);
  }

  // The path of a part, which is made unless it is there; "" where it has no token.
  Result<std::string> OnePart(const Part& part) {
    const std::string_view text = TextOf(part);
    Sha256 hash;
    hash.Update(maker_.identity);
    hash.Update(part.last ? "last\n" : "\n");
    hash.Update(text);
    const std::string path =
        fmt::format("{}/{}.{}", request_.cache, hash.HexDigest().substr(0, kPartNameLength),
                    maker_.wide ? "u32" : "u16");
    if (!FileExists(path)) {
      Result<Ids> ids = TokensOfPart(maker_, text, part.last, 1);
      if (!ids.has_value()) return Fail(ErrorOf(part, ids.error()));
      MW_TRY(WriteFileAtomic(path, BytesOf(*ids, maker_.wide)));
      const MutexLock lock(mutex_);
      ++made_;
    }
    MW_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
    return bytes == 0 ? std::string() : path;
  }

  // With the line of the file: it is counted only once something is wrong.
  Status ErrorOf(const Part& part, const Status& error) const {
    const std::string& file = request_.files[part.file];
    if (maker_.format == "text" || part.begin == 0) {
      const bool later = part.begin > 0;
      return error.WithContext(later ? fmt::format("{}, behind byte {}", file, part.begin) : file);
    }
    const std::string_view before = maps_[part.file].text().substr(0, part.begin);
    const int64_t line = std::count(before.begin(), before.end(), '\n') + 1;
    const Result<Ids> again = TokensOfPart(maker_, TextOf(part), part.last, line);
    return (again.has_value() ? error : again.error()).WithContext(file);
  }

  bool failed() const {
    const MutexLock lock(mutex_);
    return failed_;
  }

  void Report(const Part& part, bool good) {
    const MutexLock lock(mutex_);
    failed_ = failed_ || !good;
    done_bytes_ += static_cast<int64_t>(part.end - part.begin);
    if (request_.progress) request_.progress(done_bytes_, all_bytes_);
  }

  const TokenFilesRequest& request_;
  const Maker maker_;
  std::vector<MemoryMappedFile> maps_;
  std::vector<Part> parts_;
  int64_t all_bytes_ = 0;
  mutable Mutex mutex_;
  bool failed_ MW_GUARDED_BY(mutex_) = false;
  int64_t done_bytes_ MW_GUARDED_BY(mutex_) = 0;
  int64_t made_ MW_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Result<TokenFiles> MakeTokenFiles(const TokenFilesRequest& request) {
  MW_ASSIGN_OR_RETURN(Maker maker, MakerOf(request));
  return Work(request, std::move(maker)).Run();
}

std::string TokenCacheOf(const std::string& file) {
  const std::string parent = std::filesystem::path(file).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (::access(folder.c_str(), W_OK) != 0) {
    if (const std::string home = CacheDir("tokens"); !home.empty()) return home;
  }
  return folder + "/.meshwright-tokens";
}

}  // namespace meshwright::cli
