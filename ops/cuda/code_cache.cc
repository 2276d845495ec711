#include "ops/cuda/code_cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"

namespace meshwright::ops::cuda {
namespace {

constexpr std::string_view kMagic = "meshwright-code 1 ";

std::string DirectoryOf(const CodeCacheOptions& options) {
  if (!options.use_disk) return "";
  if (!options.directory.empty()) return options.directory;
  if (const char* directory = std::getenv("MESHWRIGHT_CACHE_DIR"); directory != nullptr) {
    return directory;
  }
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : fmt::format("{}/.cache/meshwright/cuda", home);
}

std::string HeaderOf(std::string_view binary) {
  return fmt::format("{}{} {}\n", kMagic, binary.size(), Sha256Hex(binary));
}

}  // namespace

Result<FunctionHandle> KernelCode::Find(const char* kernel) const {
  FunctionHandle function = nullptr;
  const device::cuda::Code code = compiler_.Find(module_, kernel, &function);
  if (code == device::cuda::kSuccess) return function;
  return Fail(Internal(fmt::format("kernel '{}' is not in its binary: error {}", kernel, code)));
}

CodeCache::CodeCache(Compiler& compiler, CodeCacheOptions options)
    : compiler_(compiler), directory_(DirectoryOf(options)), version_(compiler.Version()) {}

// Lengths keep the parts apart: no two sources have one key.
std::string CodeCache::KeyOf(const SourceCode& code) const {
  std::string all;
  const auto add = [&all](std::string_view part) {
    all += fmt::format("{}:{}\n", part.size(), part);
  };
  add(version_);
  add(code.architecture);
  for (const std::string& option : code.options) add(option);
  add(code.text);
  return Sha256Hex(all);
}

std::string CodeCache::PathOfKey(const std::string& key) const {
  return directory_.empty() ? "" : fmt::format("{}/{}.code", directory_, key);
}

std::string CodeCache::PathOf(const SourceCode& code) const { return PathOfKey(KeyOf(code)); }

std::string CodeCache::ReadEntry(const std::string& key) {
  const Result<std::string> entry = ReadFile(PathOfKey(key));
  if (!entry) return "";
  const size_t end = entry->find('\n');
  if (end == std::string::npos) return "";
  std::string binary = entry->substr(end + 1);
  if (entry->compare(0, end + 1, HeaderOf(binary)) != 0) return "";
  return binary;
}

void CodeCache::WriteEntry(const std::string& key, const std::string& binary) {
  Status status = MakeDirs(directory_);
  if (status.ok()) status = WriteFileAtomic(PathOfKey(key), HeaderOf(binary) + binary);
  if (status.ok() || told_.exchange(true)) return;
  LogWarn(fmt::format(
      "compiled kernels cannot be kept in {} and are compiled again by every process: {}; set "
      "MESHWRIGHT_CACHE_DIR to a folder that can be written",
      directory_, status.ToString()));
}

Result<std::shared_ptr<const KernelCode>> CodeCache::Get(const SourceCode& code) {
  const std::string key = KeyOf(code);
  {
    const MutexLock lock(mutex_);
    if (auto loaded = loaded_[key].lock()) return loaded;
  }
  ModuleHandle module = nullptr;
  std::string binary = directory_.empty() ? "" : ReadEntry(key);
  device::cuda::Code loaded_code = device::cuda::kSuccess;
  if (!binary.empty()) loaded_code = compiler_.Load(binary, &module);
  if (binary.empty() || loaded_code != device::cuda::kSuccess) {
    MW_ASSIGN_OR_RETURN(binary, compiler_.Compile(code));
    if (!directory_.empty()) WriteEntry(key, binary);
    loaded_code = compiler_.Load(binary, &module);
  }
  if (loaded_code != device::cuda::kSuccess) {
    return Fail(Internal(fmt::format("a compiled kernel for {} cannot be loaded: error {}",
                                     code.architecture, loaded_code)));
  }
  auto made = std::make_shared<const KernelCode>(compiler_, module);
  const MutexLock lock(mutex_);
  std::weak_ptr<const KernelCode>& place = loaded_[key];
  if (auto earlier = place.lock()) return earlier;
  place = made;
  return made;
}

}  // namespace meshwright::ops::cuda
