#include "base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace meshwright {
namespace {

constexpr rlim_t kMost = 1 << 20;  // what Linux lets a process have, fs.nr_open, by default

rlimit Read() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = limit.rlim_max = 1024;
  return limit;
}

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit limit = Read();
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return DescriptorLimit();
}

int64_t DescriptorLimit() { return static_cast<int64_t>(std::min(Read().rlim_cur, kMost)); }

}  // namespace meshwright
