#include "base/failpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "base/os_error.h"
#include "base/unique_fd.h"

namespace meshwright {

Result<Failpoints> Failpoints::Open(const char* path) {
  const UniqueFd fd(::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid() || ::ftruncate(fd.get(), sizeof(FailpointFile)) != 0) {
    return Fail(OsError(errno, fmt::format("failpoints in {}", path)));
  }
  void* map =
      ::mmap(nullptr, sizeof(FailpointFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return Fail(OsError(errno, fmt::format("map failpoints in {}", path)));
  return Failpoints(static_cast<FailpointFile*>(map));
}

void Failpoints::Arm(std::string_view name, int64_t passes) {
  MW_CHECK(name.size() < file_->name.size()) << "a failpoint of " << name.size() << " bytes";
  file_->passes = 0;
  file_->name.fill('\0');
  std::copy(name.begin(), name.end(), file_->name.begin());
  file_->passes = passes;
}

bool Failpoints::Pass(std::string_view name) {
  if (file_->passes.load() <= 0) return false;
  const auto end = std::find(file_->name.begin(), file_->name.end(), '\0');
  if (name != std::string_view(file_->name.begin(), end)) return false;
  // Several may pass at once: one of them counts down to nothing.
  int64_t left = file_->passes.load();
  while (left > 0 && !file_->passes.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

namespace internal {

Failpoints* OwnFailpoints() {
  static Failpoints* const own = []() -> Failpoints* {
    const char* path = std::getenv("MESHWRIGHT_FAILPOINTS");
    if (path == nullptr || *path == '\0') return nullptr;
    const auto opened = Failpoints::Open(path);
    static std::unique_ptr<Failpoints> kept;
    if (opened.has_value()) kept = std::make_unique<Failpoints>(*opened);
    return kept.get();
  }();
  return own;
}

void DieAtFailpoint(std::string_view name) {
  if (OwnFailpoints()->Pass(name)) (void)::kill(::getpid(), SIGKILL);
}

}  // namespace internal
}  // namespace meshwright
