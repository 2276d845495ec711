#include "bench/gpu_trace.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace meshwright::bench {
namespace {

constexpr char kFile[] = "libmw_gpu_trace.so";

Status StatusOf(int code, const char* what) {
  if (code == 0) return OkStatus();
  return Unavailable(fmt::format("{}: CUPTI error {}", what, code));
}

}  // namespace

Result<GpuTrace> GpuTrace::Open() {
  std::error_code error;
  const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (binary.parent_path() / kFile).string();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Fail(Unavailable(fmt::format("no trace: {}", dlerror())));
  GpuTrace trace;
  trace.start_ = reinterpret_cast<int (*)()>(dlsym(library, kTraceStartSymbol));
  trace.stop_ = reinterpret_cast<int (*)(GpuActivity*)>(dlsym(library, kTraceStopSymbol));
  if (trace.start_ == nullptr || trace.stop_ == nullptr) {
    return Fail(Unavailable(fmt::format("no trace: {} is of another build", path)));
  }
  return trace;
}

Status GpuTrace::Start() { return StatusOf(start_(), "starting a trace"); }

Result<GpuActivity> GpuTrace::Stop() {
  GpuActivity activity;
  MW_TRY(StatusOf(stop_(&activity), "reading a trace"));
  return activity;
}

}  // namespace meshwright::bench
