// AddProcessMetrics of base/metrics.h. Source: proc(5), /proc/self/stat and /proc/stat.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/metrics.h"
#include "base/text.h"

namespace meshwright {
namespace {

// Fields of /proc/self/stat after the command name, which may itself hold spaces and brackets.
// Index 0 is field 3 (state) of proc(5). Empty when unreadable.
std::vector<std::string> ReadStat() {
  const Result<std::string> text = ReadFile("/proc/self/stat");
  if (!text.has_value()) return {};
  const size_t end = text->rfind(')');
  if (end == std::string::npos) return {};
  return Split(Trim(std::string_view(*text).substr(end + 1)), ' ');
}

double Field(const std::vector<std::string>& fields, size_t proc_number) {
  const size_t index = proc_number - 3;
  return index < fields.size() ? std::strtod(fields[index].c_str(), nullptr) : 0;
}

// Seconds since 1970 at which the machine started; 0 when unknown.
double BootTimeSeconds() {
  const Result<std::string> text = ReadFile("/proc/stat");
  if (!text.has_value()) return 0;
  for (const std::string& line : Split(*text, '\n')) {
    if (line.rfind("btime ", 0) == 0) return std::strtod(line.c_str() + 6, nullptr);
  }
  return 0;
}

double CountOpenFds() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  double count = -1;  // the folder itself is open now
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(folder);
  return count;
}

double MaxFds() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

}  // namespace

void AddProcessMetrics(MetricsRegistry& registry) {
  Counter cpu = registry.MakeCounter("process_cpu_seconds_total",
                                     "Total user and system CPU time spent in seconds.");
  Gauge resident =
      registry.MakeGauge("process_resident_memory_bytes", "Resident memory size in bytes.");
  Gauge virtual_memory =
      registry.MakeGauge("process_virtual_memory_bytes", "Virtual memory size in bytes.");
  Gauge open_fds = registry.MakeGauge("process_open_fds", "Number of open file descriptors.");
  Gauge max_fds = registry.MakeGauge("process_max_fds", "Maximum number of open file descriptors.");
  Gauge threads = registry.MakeGauge("process_threads", "Number of threads.");
  Gauge start = registry.MakeGauge("process_start_time_seconds",
                                   "Start time of the process since unix epoch in seconds.");
  registry.AddRefresh([cpu, resident, virtual_memory, open_fds, max_fds, threads, start]() mutable {
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    const std::vector<std::string> fields = ReadStat();
    const double cpu_seconds = (Field(fields, 14) + Field(fields, 15)) / ticks;
    cpu.Increment(cpu_seconds - cpu.value());
    threads.Set(Field(fields, 20));
    start.Set(BootTimeSeconds() + Field(fields, 22) / ticks);
    virtual_memory.Set(Field(fields, 23));
    resident.Set(Field(fields, 24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
    open_fds.Set(CountOpenFds());
    max_fds.Set(MaxFds());
  });
}

}  // namespace meshwright
