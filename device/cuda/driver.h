// Driver: what this room needs of the CUDA runtime, without its headers.
//
// The plugin implements it (driver.cu); tests implement it on the host. Every call is a call of the
// runtime and returns its code; what the calls mean together is up to CudaDevice and CudaQueue.
//
// Thread rule: thread-safe; UseDevice() is of the calling thread, as in CUDA. Handles belong to the
// device that was in use when they were made.
#pragma once

#include <cstdint>

#include "device/queue.h"

namespace meshwright::device::cuda {

using Code = int32_t;  // cudaError_t
inline constexpr Code kSuccess = 0;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kInsufficientDriver = 35;
inline constexpr Code kNoDevice = 100;
inline constexpr Code kNotReady = 600;
inline constexpr Code kIllegalAddress = 700;
inline constexpr Code kLaunchFailure = 719;

using StreamHandle = void*;
using EventHandle = void*;
using GraphHandle = void*;  // an instantiated graph
using HostCall = void (*)(void* with);

// What one GPU is. The values that decide which code may run on it and how fast it could be.
struct Description {
  char name[256] = {};
  int32_t major = 0;  // compute capability
  int32_t minor = 0;
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // the most that a kernel may ask for
  char pci_bus_id[32] = {};
  char uuid[40] = {};  // in hexadecimal; a part of a GPU has one of its own
};

struct Versions {
  int32_t driver = 0;   // the newest CUDA that the driver knows, as 1000 * major + 10 * minor
  int32_t runtime = 0;  // the one that the plugin was built with
  // The oldest GPU that the plugin has code for, as 10 * major + minor; 0: it does not know.
  int32_t architecture = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;

  virtual Code ReadVersions(Versions* versions) = 0;
  virtual Code CountDevices(int32_t* count) = 0;
  virtual Code Describe(int32_t device, Description* description) = 0;
  virtual const char* ErrorName(Code code) = 0;  // "cudaErrorIllegalAddress"
  virtual const char* ErrorText(Code code) = 0;

  virtual Code UseDevice(int32_t device) = 0;
  virtual Code ReadMemory(int64_t* free_bytes, int64_t* total_bytes) = 0;

  virtual Code Allocate(void** data, int64_t bytes) = 0;
  virtual Code Release(void* data) = 0;
  // From the device's pool, in the order of the stream.
  virtual Code AllocateOrdered(void** data, int64_t bytes, StreamHandle stream) = 0;
  virtual Code ReleaseOrdered(void* data, StreamHandle stream) = 0;
  // Pinned, and mapped at the same address for the device.
  virtual Code AllocateHost(void** data, int64_t bytes) = 0;
  virtual Code ReleaseHost(void* data) = 0;

  virtual Code MakeStream(StreamHandle* stream, bool urgent) = 0;
  virtual Code DestroyStream(StreamHandle stream) = 0;
  virtual Code QueryStream(StreamHandle stream) = 0;  // kNotReady while there is work
  virtual Code MakeEvent(EventHandle* event) = 0;
  virtual Code DestroyEvent(EventHandle event) = 0;
  virtual Code RecordEvent(EventHandle event, StreamHandle stream) = 0;
  virtual Code WaitForEvent(StreamHandle stream, EventHandle event) = 0;

  // Any two of host and device. Pageable host memory is done with when the call returns.
  virtual Code Copy(void* to, const void* from, int64_t bytes, StreamHandle stream) = 0;
  virtual Code Fill(void* to, int32_t value, int64_t bytes, StreamHandle stream) = 0;
  virtual Code Gather(void* dense, const void* strided, const StridedRuns& runs,
                      StreamHandle stream) = 0;
  virtual Code Scatter(void* strided, const void* dense, const StridedRuns& runs,
                       StreamHandle stream) = 0;
  // Stores `value` where the host can see it at any time, also after the device has failed.
  virtual Code Mark(int32_t* host, int32_t value, StreamHandle stream) = 0;

  // Calls it on a thread of the driver when the stream gets there; what is behind it waits until it
  // returns. It may not call the runtime.
  virtual Code CallHost(HostCall call, void* with, StreamHandle stream) = 0;

  virtual Code StartCapture(StreamHandle stream) = 0;
  // Null and kSuccess when nothing was captured.
  virtual Code FinishCapture(StreamHandle stream, GraphHandle* graph) = 0;
  virtual Code LaunchGraph(GraphHandle graph, StreamHandle stream) = 0;
  virtual Code DestroyGraph(GraphHandle graph) = 0;
};

}  // namespace meshwright::device::cuda
