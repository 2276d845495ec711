#include "device/cpu/queue.h"

#include <cstring>

namespace meshwright::device {
namespace {

Status NotRecorded() {
  return Unimplemented("the queue of a CPU does its work at once; there is nothing to record");
}

// Calls run(place in the strided side, place in the dense side).
template <typename Run>
void ForRuns(const StridedRuns& runs, const Run& run) {
  const int64_t count = runs.runs();
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    int64_t rest = i;
    for (size_t loop = runs.loops.size(); loop-- > 0;) {
      offset += rest % runs.loops[loop].count * runs.loops[loop].stride_bytes;
      rest /= runs.loops[loop].count;
    }
    run(offset, i * runs.run_bytes);
  }
}

void CopyBytes(void* to, int64_t to_offset, const void* from, int64_t from_offset, int64_t bytes) {
  std::memcpy(static_cast<std::byte*>(to) + to_offset,
              static_cast<const std::byte*>(from) + from_offset, static_cast<size_t>(bytes));
}

}  // namespace

Status CpuQueue::Copy(void* to, const void* from, int64_t bytes) {
  CopyBytes(to, 0, from, 0, bytes);
  return OkStatus();
}

Status CpuQueue::Fill(void* to, std::byte value, int64_t bytes) {
  std::memset(to, std::to_integer<int>(value), static_cast<size_t>(bytes));
  return OkStatus();
}

Status CpuQueue::Gather(void* dense, const void* strided, const StridedRuns& runs) {
  ForRuns(runs, [&](int64_t in_strided, int64_t in_dense) {
    CopyBytes(dense, in_dense, strided, in_strided, runs.run_bytes);
  });
  return OkStatus();
}

Status CpuQueue::Scatter(void* strided, const void* dense, const StridedRuns& runs) {
  ForRuns(runs, [&](int64_t in_strided, int64_t in_dense) {
    CopyBytes(strided, in_strided, dense, in_dense, runs.run_bytes);
  });
  return OkStatus();
}

Status CpuQueue::CopyIn(void* to, const void* host, int64_t bytes) { return Copy(to, host, bytes); }

Status CpuQueue::CopyOut(void* host, const void* from, int64_t bytes) {
  return Copy(host, from, bytes);
}

Status CpuQueue::Mark(int32_t* host, int32_t value) {
  *host = value;
  return OkStatus();
}

Status CpuQueue::StartRecording() { return NotRecorded(); }

Result<std::unique_ptr<Recording>> CpuQueue::FinishRecording() { return Fail(NotRecorded()); }

Status CpuQueue::Replay(Recording&) { return NotRecorded(); }

}  // namespace meshwright::device
