#include "worker/available_memory.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/file.h"
#include "base/text.h"

namespace meshwright::worker {
namespace {

// The number that a text begins with, behind spaces.
std::optional<int64_t> NumberAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> NumberIn(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  return text.has_value() ? NumberAt(*text) : std::nullopt;
}

// name: "MemAvailable:", "MemTotal:".
std::optional<int64_t> OfMachine(const std::string& proc, std::string_view name) {
  const Result<std::string> text = ReadFile(proc + "/meminfo");
  if (!text.has_value()) return std::nullopt;
  for (const std::string& line : Split(*text, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto kib = NumberAt(std::string_view(line).substr(name.size()));
    return kib ? std::optional(*kib * 1024) : std::nullopt;
  }
  return std::nullopt;
}

struct GroupMemory {
  int64_t most = 0;
  int64_t used = 0;
};

// No limit, or no such group: nothing.
std::optional<GroupMemory> OfGroup(const std::string& proc, const std::string& cgroups) {
  const Result<std::string> groups = ReadFile(proc + "/self/cgroup");
  if (!groups.has_value()) return std::nullopt;
  for (const std::string& line : Split(*groups, '\n')) {
    if (!line.starts_with("0::")) continue;
    const std::string folder = cgroups + line.substr(3);
    const auto most = NumberIn(folder + "/memory.max");
    const auto used = NumberIn(folder + "/memory.current");
    if (most && used) return GroupMemory{*most, *used};
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> AvailableMemoryBytes(const std::string& proc, const std::string& cgroups) {
  const auto machine = OfMachine(proc, "MemAvailable:");
  const auto group = OfGroup(proc, cgroups);
  if (!group) return machine;
  const int64_t left = std::max<int64_t>(0, group->most - group->used);
  return machine ? std::min(*machine, left) : left;
}

std::optional<int64_t> WholeMemoryBytes(const std::string& proc, const std::string& cgroups) {
  const auto machine = OfMachine(proc, "MemTotal:");
  const auto group = OfGroup(proc, cgroups);
  if (!group) return machine;
  return machine ? std::min(*machine, group->most) : group->most;
}

}  // namespace meshwright::worker
