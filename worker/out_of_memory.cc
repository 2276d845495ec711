#include "worker/out_of_memory.h"

#include <charconv>
#include <string_view>

#include "base/file.h"
#include "base/text.h"

namespace meshwright::worker {

std::optional<int64_t> OutOfMemoryKills(const std::string& proc, const std::string& cgroups) {
  const Result<std::string> groups = ReadFile(proc + "/self/cgroup");
  if (!groups.has_value()) return std::nullopt;
  for (const std::string& line : Split(*groups, '\n')) {
    // The line of version 2 is "0::PATH".
    if (line.rfind("0::", 0) != 0) continue;
    const Result<std::string> events = ReadFile(cgroups + line.substr(3) + "/memory.events");
    if (!events.has_value()) return std::nullopt;
    for (const std::string& event : Split(*events, '\n')) {
      constexpr std::string_view kName = "oom_kill ";
      if (event.rfind(kName, 0) != 0) continue;
      int64_t kills = 0;
      const char* const end = event.data() + event.size();
      const auto [at, error] = std::from_chars(event.data() + kName.size(), end, kills);
      if (error == std::errc() && at == end) return kills;
    }
  }
  return std::nullopt;
}

}  // namespace meshwright::worker
