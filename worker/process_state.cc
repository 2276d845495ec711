#include "worker/process_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <vector>

namespace meshwright::worker {
namespace {

int64_t NumberOf(std::string_view text) {
  int64_t number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

ProcessState ReadStat(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return {};
  return ParseProcessStat(line, ::sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessState ParseProcessStat(std::string_view line, int64_t ticks_per_s) {
  // The name stands in parentheses and may have some itself; what follows the last one is of fixed
  // form: state is its field 0, utime 11, stime 12.
  constexpr size_t kUserTime = 11;
  constexpr size_t kSystemTime = 12;
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string_view::npos || ticks_per_s <= 0) return {};
  std::vector<std::string_view> fields;
  for (std::string_view rest = line.substr(name_end + 2); fields.size() <= kSystemTime;) {
    const size_t end = rest.find(' ');
    fields.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (fields.size() <= kSystemTime) return {};
  const int64_t ticks = NumberOf(fields[kUserTime]) + NumberOf(fields[kSystemTime]);
  return {std::string(fields[0].substr(0, 1)), ticks * 1000 / ticks_per_s};
}

ProcessState ReadProcess(pid_t process) { return ReadStat(fmt::format("/proc/{}/stat", process)); }

ProcessState ReadThread(pid_t process, pid_t thread) {
  return ReadStat(fmt::format("/proc/{}/task/{}/stat", process, thread));
}

}  // namespace meshwright::worker
