#include "base/disk_metrics.h"

#include <sys/statvfs.h>

namespace meshwright {

void SetDiskMetrics(MetricsRegistry& registry, const std::string& use, const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return;
  const auto block = static_cast<double>(info.f_frsize);
  registry
      .MakeGauge("meshwright_disk_bytes", "Size of a file system that this process writes to.",
                 {{"use", use}})
      .Set(block * static_cast<double>(info.f_blocks));
  registry
      .MakeGauge("meshwright_disk_available_bytes", "What of it is free for this process.",
                 {{"use", use}})
      .Set(block * static_cast<double>(info.f_bavail));
}

}  // namespace meshwright
