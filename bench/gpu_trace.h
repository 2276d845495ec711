// When a GPU is busy: what CUPTI saw of kernels, copies and fills between Start() and Stop().
//
// A library of its own (libmw_gpu_trace.so, beside the program) that is opened at run time, so that
// mw_bench needs nothing of CUDA to start. Tracing costs every kernel some time: gaps are a little
// longer than they are without.
//
// Thread rule: one thread, of a process with one tracer. Ownership: the library stays open.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::bench {

// What the library fills.
struct GpuActivity {
  double busy_s = 0;  // while at least one of them ran
  double span_s = 0;  // from the begin of the first to the end of the last
  int64_t count = 0;
  int64_t dropped = 0;  // that did not fit
};

// extern "C" of the library. 0, or a code of CUPTI.
inline constexpr char kTraceStartSymbol[] = "meshwright_gpu_trace_start";  // int()
inline constexpr char kTraceStopSymbol[] = "meshwright_gpu_trace_stop";    // int(GpuActivity*)

class GpuTrace {
 public:
  // Errors: kUnavailable: why nothing can be traced, in one line.
  static Result<GpuTrace> Open();

  // Errors: kUnavailable with CUPTI's code.
  Status Start();
  Result<GpuActivity> Stop();

 private:
  int (*start_)() = nullptr;
  int (*stop_)(GpuActivity*) = nullptr;
};

}  // namespace meshwright::bench
