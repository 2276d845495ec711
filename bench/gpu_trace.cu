#include "bench/gpu_trace.h"

#include <cupti.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace meshwright::bench {
namespace {

constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kBufferAlignment = 8;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

// Records of the toolkit that this is built with; the library of the same version writes them.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

using Interval = std::pair<uint64_t, uint64_t>;  // ns

// CUPTI hands records over on a thread of its own.
struct Records {
  Mutex mutex;
  std::vector<Interval> intervals MW_GUARDED_BY(mutex);
  int64_t dropped MW_GUARDED_BY(mutex) = 0;
};

Records& TheRecords() {
  static Records records;
  return records;
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}

// Where a record of each kind has its times.
template <typename Record>
Interval TimesOf(const CUpti_Activity* record) {
  const auto* of_kind = reinterpret_cast<const Record*>(record);
  return {of_kind->start, of_kind->end};
}

Interval TimesOfAny(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return TimesOf<CopyRecord>(record);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return TimesOf<FillRecord>(record);
    default:
      return TimesOf<KernelRecord>(record);
  }
}

// Records of kernels in graphs may come without times.
void Keep(const CUpti_Activity* record, Records& records) MW_REQUIRES(records.mutex) {
  const bool known =
      record->kind == CUPTI_ACTIVITY_KIND_KERNEL ||
      std::find(std::begin(kKinds), std::end(kKinds), record->kind) != std::end(kKinds);
  if (!known) return;
  const Interval times = TimesOfAny(record);
  if (times.first == 0 || times.second < times.first) {
    ++records.dropped;
  } else {
    records.intervals.push_back(times);
  }
}

void CUPTIAPI TakeBuffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t /*bytes*/,
                         size_t valid_bytes) {
  Records& records = TheRecords();
  const MutexLock lock(records.mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    Keep(record, records);
  }
  size_t dropped = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
    records.dropped += static_cast<int64_t>(dropped);
  }
  std::free(buffer);
}

GpuActivity Summary(std::vector<Interval>& intervals) {
  GpuActivity activity;
  activity.count = static_cast<int64_t>(intervals.size());
  if (intervals.empty()) return activity;
  std::sort(intervals.begin(), intervals.end());
  uint64_t busy_ns = 0, until = intervals.front().first;
  for (const auto& [start, end] : intervals) {
    if (end <= until) continue;
    busy_ns += end - std::max(start, until);
    until = end;
  }
  activity.busy_s = static_cast<double>(busy_ns) * 1e-9;
  activity.span_s = static_cast<double>(until - intervals.front().first) * 1e-9;
  return activity;
}

int Start() {
  Records& records = TheRecords();
  {
    const MutexLock lock(records.mutex);
    records.intervals.clear();
    records.dropped = 0;
  }
  CUptiResult result = cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer);
  for (const CUpti_ActivityKind kind : kKinds) {
    if (result == CUPTI_SUCCESS) result = cuptiActivityEnable(kind);
  }
  return static_cast<int>(result);
}

int Stop(GpuActivity* activity) {
  for (const CUpti_ActivityKind kind : kKinds) (void)cuptiActivityDisable(kind);
  const CUptiResult result = cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  if (result != CUPTI_SUCCESS) return static_cast<int>(result);
  Records& records = TheRecords();
  const MutexLock lock(records.mutex);
  *activity = Summary(records.intervals);
  activity->dropped = records.dropped;
  return 0;
}

}  // namespace
}  // namespace meshwright::bench

extern "C" __attribute__((visibility("default"))) int meshwright_gpu_trace_start() {
  return meshwright::bench::Start();
}

extern "C" __attribute__((visibility("default"))) int meshwright_gpu_trace_stop(
    meshwright::bench::GpuActivity* activity) {
  return meshwright::bench::Stop(activity);
}
