// Locks: only those that clang's thread safety analysis sees.
#include <fmt/format.h>

#include <array>

#include "tests/tidy/rules.h"

namespace meshwright::tidy {
namespace {

constexpr std::array<std::string_view, 13> kUnseen = {
    "std::mutex",
    "std::timed_mutex",
    "std::recursive_mutex",
    "std::recursive_timed_mutex",
    "std::shared_mutex",
    "std::shared_timed_mutex",
    "std::condition_variable",
    "std::condition_variable_any",
    "std::lock_guard",
    "std::scoped_lock",
    "std::unique_lock",
    "std::shared_lock",
    "pthread_mutex_t",
};

}  // namespace

// base/mutex.h wraps them. Beside it none: the others may only become fewer.
const std::set<std::string>& FilesWithOwnLocks() {
  static const std::set<std::string> files = {
      "base/mutex.h",
      "worker/actor_host.cc",
      "worker/actor_host.h",
      "worker/grpc/link.cc",
  };
  return files;
}

Violations CheckLocks(const SourceTree& tree, const std::set<std::string>& own) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (RoomOf(path) == "tests") continue;
    bool used = false;
    for (size_t i = 0; i < file.code_lines.size(); ++i) {
      for (const std::string_view lock : kUnseen) {
        if (!ContainsWord(file.code_lines[i], lock)) continue;
        used = true;
        if (own.contains(path)) continue;
        violations.push_back(
            fmt::format("{}:{}: {} is not seen by the thread safety analysis; take Mutex, "
                        "MutexLock and CondVar of base/mutex.h",
                        path, i + 1, lock));
      }
    }
    if (!used && own.contains(path)) {
      violations.push_back(path + ": has no locks of its own any more; take it off the list");
    }
  }
  return violations;
}

}  // namespace meshwright::tidy
