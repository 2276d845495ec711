#include "cli/cache_dir.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "base/sha256.h"

namespace meshwright::cli {
namespace {

constexpr size_t kNameLength = 32;

class FolderPlanCache final : public search::PlanCache {
 public:
  FolderPlanCache(std::string folder, std::string build)
      : folder_(std::move(folder)), build_(std::move(build)) {}

  Result<std::string> Read(const std::string& key) const override {
    const std::string path = PathOf(key);
    if (!FileExists(path)) return Fail(NotFound("no entry"));
    return ReadFile(path);
  }
  Status Write(const std::string& key, std::string_view text) const override {
    MW_TRY(MakeDirs(folder_));
    return WriteFileAtomic(PathOf(key), text);
  }

 private:
  std::string PathOf(const std::string& key) const {
    const std::string name = Sha256Hex(fmt::format("{}\n{}\n", key, build_));
    return fmt::format("{}/{}.plan", folder_, name.substr(0, kNameLength));
  }

  const std::string folder_;
  const std::string build_;
};

}  // namespace

std::string CacheDir(const std::string& kind) {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return fmt::format("{}/meshwright/{}", cache, kind);
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return "";
  return fmt::format("{}/.cache/meshwright/{}", home, kind);
}

std::string BuildDescription() {
  const Result<int64_t> binary_bytes = FileSize("/proc/self/exe");
  return fmt::format("meshwright {} of {} bytes", MESHWRIGHT_VERSION, binary_bytes.value_or(0));
}

std::shared_ptr<const search::PlanCache> MakeFolderPlanCache(const std::string& folder,
                                                             const std::string& build) {
  return std::make_shared<const FolderPlanCache>(folder, build);
}

std::shared_ptr<const search::PlanCache> OpenPlanCache(const std::string& where) {
  if (where == "off") return nullptr;
  const std::string folder = where == "default" ? CacheDir("plans") : where;
  if (folder.empty()) return nullptr;
  return MakeFolderPlanCache(folder, BuildDescription());
}

}  // namespace meshwright::cli
