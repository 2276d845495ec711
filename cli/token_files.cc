#include "cli/token_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/mutex.h"
#include "base/parallel.h"
#include "base/sha256.h"
#include "cli/cache_dir.h"

namespace meshwright::cli {
namespace {

constexpr size_t kPartNameLength = 40;
constexpr int64_t kUint16 = 65'536;

// Bytes [begin, end) of a text.
struct Part {
  size_t file = 0;
  size_t begin = 0;
  size_t end = 0;
  bool last = false;  // of its file
};

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

std::string BytesOf(const std::vector<Document>& documents, bool wide) {
  std::string bytes;
  for (const Document& document : documents) {
    for (const uint32_t id : document.ids) {
      for (int i = 0; i < (wide ? 4 : 2); ++i) bytes += static_cast<char>(id >> (8 * i) & 0xff);
    }
  }
  return bytes;
}

class Work {
 public:
  Work(const TokenFilesRequest& request, DocumentMaker maker)
      : request_(request), maker_(std::move(maker)), wide_(maker_.id_end() > kUint16) {}

  Result<TokenFiles> Run() {
    const bool lines = maker_.format() == "jsonl";
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
    if (request_.rows && request_.rows->words) {
      MW_ASSIGN_OR_RETURN(goes_on_, maker_.Continuations());
    }
    std::vector<Result<std::string>> paths(parts_.size(), std::string());
    ParallelItems(static_cast<int64_t>(parts_.size()), 1, [&](int64_t item) {
      const auto i = static_cast<size_t>(item);
      if (failed()) return;
      paths[i] = OnePart(parts_[i]);
      Report(parts_[i], paths[i].has_value());
    });
    TokenFiles files;
    files.format = request_.rows ? "safetensors" : wide_ ? "uint32" : "uint16";
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

  // Named by all that decides what is in it.
  std::string PathOf(const Part& part) const {
    Sha256 hash;
    hash.Update(maker_.identity());
    if (request_.rows) {
      hash.Update(fmt::format("rows {} {}\n", request_.rows->tokens,
                              request_.rows->packed ? "packed" : "padded"));
      if (request_.rows->words) hash.Update("words\n");
    }
    hash.Update(part.last ? "last\n" : "\n");
    hash.Update(TextOf(part));
    return fmt::format("{}/{}.{}", request_.cache, hash.HexDigest().substr(0, kPartNameLength),
                       request_.rows ? "safetensors"
                       : wide_       ? "u32"
                                     : "u16");
  }

  Status Write(const std::string& path, const std::vector<Document>& documents) const {
    if (!request_.rows) return WriteFileAtomic(path, BytesOf(documents, wide_));
    RowPacker packer(*request_.rows, goes_on_);
    for (const Document& document : documents) packer.Add(document);
    packer.Pad();
    return packer.rows() == 0 ? WriteFileAtomic(path, "") : packer.Write(path);
  }

  // The path of a part, which is made unless it is there; "" where it has no token.
  Result<std::string> OnePart(const Part& part) {
    std::string path = PathOf(part);
    if (!FileExists(path)) {
      const auto documents = maker_.OfPart(TextOf(part), part.last, 1);
      if (!documents.has_value()) return Fail(ErrorOf(part, documents.error()));
      MW_TRY(Write(path, *documents));
      const MutexLock lock(mutex_);
      ++made_;
    }
    MW_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
    return bytes == 0 ? std::string() : path;
  }

  // With the line of the file: it is counted only once something is wrong.
  Status ErrorOf(const Part& part, const Status& error) const {
    const std::string& file = request_.files[part.file];
    if (maker_.format() == "text" || part.begin == 0) {
      const bool later = part.begin > 0;
      return error.WithContext(later ? fmt::format("{}, behind byte {}", file, part.begin) : file);
    }
    const std::string_view before = maps_[part.file].text().substr(0, part.begin);
    const int64_t line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto again = maker_.OfPart(TextOf(part), part.last, line);
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
  const DocumentMaker maker_;
  const bool wide_;
  std::vector<bool> goes_on_;  // of each id, where rows have words
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
  MW_ASSIGN_OR_RETURN(DocumentMaker maker, DocumentMaker::Make(request.documents));
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
