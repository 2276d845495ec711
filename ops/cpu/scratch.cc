#include "ops/cpu/scratch.h"

#include <cstddef>
#include <new>
#include <vector>

namespace meshwright::ops::cpu {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

}  // namespace

float* ThreadScratch(int64_t count) {
  thread_local std::vector<Line> lines;
  const size_t needed =
      (static_cast<size_t>(count) * sizeof(float) + sizeof(Line) - 1) / sizeof(Line);
  if (lines.size() < needed) {
    lines.clear();
    lines.resize(needed);
  }
  return reinterpret_cast<float*>(lines.data());
}

}  // namespace meshwright::ops::cpu
