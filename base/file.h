// Files: whole-file reading, crash-safe writing, mapping, folders.
//
// Every error names the path. Thread rule: thread-safe (distinct paths).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright {

// Errors of all functions here: kNotFound, kPermissionDenied, kResourceExhausted (disk full),
// kInvalidArgument (a folder where a file is meant), kDataLoss (read or write error).

Result<std::string> ReadFile(const std::string& path);

// After success the file has exactly these bytes, also after a power cut; on failure or crash it
// has its old contents. Writes "<path>.tmp-<pid>-<n>" next to it, fsyncs, renames, fsyncs the
// folder. `mode`: permission bits of a new file.
Status WriteFileAtomic(const std::string& path, std::string_view bytes, unsigned mode = 0644);

// Adds to the end, creating the file when absent. Not durable before the system writes it back.
Status AppendFile(const std::string& path, std::string_view bytes);

Result<int64_t> FileSize(const std::string& path);
bool FileExists(const std::string& path);

// Makes the folder and its parents; OK when it is there already.
Status MakeDirs(const std::string& path);

// Removes a file or a whole folder; OK when there is none.
Status RemoveAll(const std::string& path);

// A file's bytes, mapped read only. The bytes stay valid as long as the object lives.
class MemoryMappedFile {
 public:
  static Result<MemoryMappedFile> Open(const std::string& path);
  ~MemoryMappedFile();
  MemoryMappedFile(MemoryMappedFile&& other) noexcept;
  MemoryMappedFile& operator=(MemoryMappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }  // null when the file is empty
  int64_t bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), static_cast<size_t>(bytes_)};
  }

 private:
  MemoryMappedFile(const std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}

  const std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A new folder under $TMPDIR (or /tmp), removed with all it holds when the object dies.
class TempDir {
 public:
  static Result<TempDir> Make(const std::string& prefix = "meshwright");
  ~TempDir();
  TempDir(TempDir&& other) noexcept;
  TempDir& operator=(TempDir&& other) noexcept;

  const std::string& path() const { return path_; }
  // "<path>/<name>".
  std::string File(std::string_view name) const;
  // Leaves the folder in place; returns its path.
  std::string Keep();

 private:
  explicit TempDir(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace meshwright
