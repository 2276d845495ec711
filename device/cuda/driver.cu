// The plugin's Driver: the CUDA runtime.
#include "device/cuda/driver.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace meshwright::device::cuda {
namespace {

static_assert(kSuccess == cudaSuccess && kOutOfMemory == cudaErrorMemoryAllocation &&
              kInsufficientDriver == cudaErrorInsufficientDriver &&
              kNoDevice == cudaErrorNoDevice && kNotReady == cudaErrorNotReady &&
              kIllegalAddress == cudaErrorIllegalAddress &&
              kLaunchFailure == cudaErrorLaunchFailure);

// Asynchronous copies and fills take sizes of size_t.
size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

cudaStream_t Stream(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t Event(EventHandle event) { return static_cast<cudaEvent_t>(event); }

// A failed call leaves its code behind for the next cudaGetLastError() of another library.
Code Clear(cudaError_t code) {
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code;
}

// A launch's own code: cudaGetLastError() might tell of an earlier call.
template <typename... Args>
Code LaunchKernel(void (*kernel)(Args...), int64_t blocks, int threads, StreamHandle stream,
                  Args... args) {
  void* places[] = {&args...};
  return Clear(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                dim3(static_cast<unsigned>(blocks)),
                                dim3(static_cast<unsigned>(threads)), places, 0, Stream(stream)));
}

// ---- Tiles --------------------------------------------------------------------------------------

constexpr int kMostLoops = 8;
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;

struct Runs {
  int64_t units = 0;      // of T, in all
  int64_t run_units = 0;  // in a run
  int loops = 0;
  int64_t count[kMostLoops] = {};
  int64_t stride[kMostLoops] = {};  // in units
};

template <typename T, bool kGather>
__global__ void CopyRuns(T* dense, T* strided, Runs runs) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < runs.units;
       i += step) {
    int64_t rest = i / runs.run_units;
    int64_t offset = i - rest * runs.run_units;
    for (int loop = runs.loops - 1; loop >= 0; --loop) {
      const int64_t next = rest / runs.count[loop];
      offset += (rest - next * runs.count[loop]) * runs.stride[loop];
      rest = next;
    }
    if constexpr (kGather) {
      dense[i] = strided[offset];
    } else {
      strided[offset] = dense[i];
    }
  }
}

template <typename T, bool kGather>
Code Launch(void* dense, void* strided, const StridedRuns& of, StreamHandle stream) {
  constexpr int64_t kUnit = sizeof(T);
  Runs runs;
  runs.run_units = of.run_bytes / kUnit;
  runs.units = of.runs() * runs.run_units;
  runs.loops = static_cast<int>(of.loops.size());
  for (int i = 0; i < runs.loops; ++i) {
    runs.count[i] = of.loops[static_cast<size_t>(i)].count;
    runs.stride[i] = of.loops[static_cast<size_t>(i)].stride_bytes / kUnit;
  }
  const int64_t blocks = std::min((runs.units + kThreads - 1) / kThreads, kMostBlocks);
  if (blocks == 0) return kSuccess;
  return LaunchKernel(CopyRuns<T, kGather>, blocks, kThreads, stream, static_cast<T*>(dense),
                      static_cast<T*>(strided), runs);
}

// With the widest unit that places and strides are multiples of.
template <bool kGather>
Code Copy(void* dense, void* strided, const StridedRuns& runs, StreamHandle stream) {
  if (runs.loops.size() > kMostLoops) return cudaErrorInvalidValue;
  uint64_t bits = reinterpret_cast<uintptr_t>(dense) | reinterpret_cast<uintptr_t>(strided) |
                  static_cast<uint64_t>(runs.run_bytes);
  for (const StridedRuns::Loop& loop : runs.loops) bits |= static_cast<uint64_t>(loop.stride_bytes);
  if (bits % 16 == 0) return Launch<uint4, kGather>(dense, strided, runs, stream);
  if (bits % 4 == 0) return Launch<uint32_t, kGather>(dense, strided, runs, stream);
  if (bits % 2 == 0) return Launch<uint16_t, kGather>(dense, strided, runs, stream);
  return Launch<uint8_t, kGather>(dense, strided, runs, stream);
}

__global__ void StoreMark(volatile int32_t* host, int32_t value) { *host = value; }

// ---- The calls ----------------------------------------------------------------------------------

class RuntimeDriver final : public Driver {
 public:
  Code ReadVersions(Versions* versions) override {
    versions->architecture = MESHWRIGHT_CUDA_ARCHITECTURE;
    const cudaError_t code = cudaDriverGetVersion(&versions->driver);
    return code == cudaSuccess ? Clear(cudaRuntimeGetVersion(&versions->runtime)) : Clear(code);
  }
  Code CountDevices(int32_t* count) override { return Clear(cudaGetDeviceCount(count)); }

  Code Describe(int32_t device, Description* description) override {
    cudaDeviceProp properties{};
    const cudaError_t code = cudaGetDeviceProperties(&properties, device);
    if (code != cudaSuccess) return Clear(code);
    std::snprintf(description->name, sizeof(description->name), "%s", properties.name);
    description->major = properties.major;
    description->minor = properties.minor;
    description->multiprocessors = properties.multiProcessorCount;
    description->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    description->l2_bytes = properties.l2CacheSize;
    for (size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
      std::snprintf(description->uuid + 2 * i, 3, "%02x",
                    static_cast<unsigned>(static_cast<unsigned char>(properties.uuid.bytes[i])));
    }
    description->shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
    return Clear(
        cudaDeviceGetPCIBusId(description->pci_bus_id, sizeof(description->pci_bus_id), device));
  }

  const char* ErrorName(Code code) override {
    return cudaGetErrorName(static_cast<cudaError_t>(code));
  }
  const char* ErrorText(Code code) override {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
  }

  Code UseDevice(int32_t device) override { return Clear(cudaSetDevice(device)); }

  Code ReadMemory(int64_t* free_bytes, int64_t* total_bytes) override {
    size_t free = 0;
    size_t total = 0;
    const cudaError_t code = cudaMemGetInfo(&free, &total);
    *free_bytes = static_cast<int64_t>(free);
    *total_bytes = static_cast<int64_t>(total);
    return Clear(code);
  }

  Code Allocate(void** data, int64_t bytes) override {
    return Clear(cudaMalloc(data, Size(bytes)));
  }
  Code Release(void* data) override { return Clear(cudaFree(data)); }
  Code AllocateOrdered(void** data, int64_t bytes, StreamHandle stream) override {
    return Clear(cudaMallocAsync(data, Size(bytes), Stream(stream)));
  }
  Code ReleaseOrdered(void* data, StreamHandle stream) override {
    return Clear(cudaFreeAsync(data, Stream(stream)));
  }
  Code AllocateHost(void** data, int64_t bytes) override {
    return Clear(cudaHostAlloc(data, Size(bytes), cudaHostAllocMapped | cudaHostAllocPortable));
  }
  Code ReleaseHost(void* data) override { return Clear(cudaFreeHost(data)); }

  Code MakeStream(StreamHandle* stream, bool urgent) override {
    int least = 0;
    int greatest = 0;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (code != cudaSuccess) return Clear(code);
    cudaStream_t made = nullptr;
    code = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, urgent ? greatest : least);
    *stream = made;
    return Clear(code);
  }
  Code DestroyStream(StreamHandle stream) override {
    return Clear(cudaStreamDestroy(Stream(stream)));
  }
  Code QueryStream(StreamHandle stream) override { return Clear(cudaStreamQuery(Stream(stream))); }

  Code MakeEvent(EventHandle* event) override {
    cudaEvent_t made = nullptr;
    const cudaError_t code = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    *event = made;
    return Clear(code);
  }
  Code DestroyEvent(EventHandle event) override { return Clear(cudaEventDestroy(Event(event))); }
  Code RecordEvent(EventHandle event, StreamHandle stream) override {
    return Clear(cudaEventRecord(Event(event), Stream(stream)));
  }
  Code WaitForEvent(StreamHandle stream, EventHandle event) override {
    return Clear(cudaStreamWaitEvent(Stream(stream), Event(event), cudaEventWaitDefault));
  }

  Code Copy(void* to, const void* from, int64_t bytes, StreamHandle stream) override {
    return Clear(cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyDefault, Stream(stream)));
  }
  Code Fill(void* to, int32_t value, int64_t bytes, StreamHandle stream) override {
    return Clear(cudaMemsetAsync(to, value, Size(bytes), Stream(stream)));
  }
  Code Gather(void* dense, const void* strided, const StridedRuns& runs,
              StreamHandle stream) override {
    return cuda::Copy<true>(dense, const_cast<void*>(strided), runs, stream);
  }
  Code Scatter(void* strided, const void* dense, const StridedRuns& runs,
               StreamHandle stream) override {
    return cuda::Copy<false>(const_cast<void*>(dense), strided, runs, stream);
  }
  Code Mark(int32_t* host, int32_t value, StreamHandle stream) override {
    return LaunchKernel<volatile int32_t*, int32_t>(StoreMark, 1, 1, stream, host, value);
  }

  Code CallHost(HostCall call, void* with, StreamHandle stream) override {
    return Clear(cudaLaunchHostFunc(Stream(stream), call, with));
  }

  // Relaxed: the other modes refuse calls that may wait for the device, and loading a kernel at its
  // first launch is one. Calls of other threads do not end up in the graph in any mode, and calls
  // of this one that may not be part of it are not made.
  Code StartCapture(StreamHandle stream) override {
    return Clear(cudaStreamBeginCapture(Stream(stream), cudaStreamCaptureModeRelaxed));
  }

  Code FinishCapture(StreamHandle stream, GraphHandle* graph) override {
    cudaGraph_t captured = nullptr;
    cudaError_t code = cudaStreamEndCapture(Stream(stream), &captured);
    if (code != cudaSuccess) return Clear(code);
    size_t nodes = 0;
    code = cudaGraphGetNodes(captured, nullptr, &nodes);
    cudaGraphExec_t made = nullptr;
    if (code == cudaSuccess && nodes > 0) code = cudaGraphInstantiate(&made, captured, 0);
    (void)cudaGraphDestroy(captured);
    *graph = made;
    // Now, not in the step that replays it first.
    if (made != nullptr) code = cudaGraphUpload(made, Stream(stream));
    if (code != cudaSuccess && made != nullptr) {
      (void)cudaGraphExecDestroy(made);
      *graph = nullptr;
    }
    return Clear(code);
  }

  Code LaunchGraph(GraphHandle graph, StreamHandle stream) override {
    return Clear(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), Stream(stream)));
  }
  Code DestroyGraph(GraphHandle graph) override {
    return Clear(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
  }
};

}  // namespace
}  // namespace meshwright::device::cuda

extern "C" __attribute__((visibility("default"))) const char* meshwright_cuda_interface() {
  return MESHWRIGHT_CUDA_INTERFACE;
}

extern "C" __attribute__((visibility("default"))) meshwright::device::cuda::Driver*
meshwright_cuda_driver() {
  // Never destroyed: what does not end may use it until the process is gone.
  static auto* const driver = std::make_unique<meshwright::device::cuda::RuntimeDriver>().release();
  return driver;
}
