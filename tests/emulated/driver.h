// EmulatedDriver: a CUDA driver whose devices are memory of this process and whose streams are
// lists of functions, for tests of everything above it.
//
// Nothing runs when it is given. Work runs while some thread asks for a stream's state
// (QueryStream): then one function that may run now is picked from all streams of that device, in
// an order drawn from a seed, or of the other devices where there is none. A program that is right
// only in the order of its calls fails. Between runs the devices' memory cannot be touched at all:
// a host that does, crashes.
//
// Failures: Fail() lets a call by name fail with a code; a sticky code, or SpoilDevice(), loses the
// device as CUDA does. What CUDA leaves undefined, or does only after an unbounded wait, is written
// down in misuse(): memory that goes while work is queued that may touch it, graphs that go while
// they are to run, launches for which the driver has no place, and calls that do not belong into a
// graph.
//
// Thread rule: thread-safe; functions of one device never run at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "device/cuda/driver.h"

namespace meshwright::emulated {

using device::cuda::Code;

class EmulatedDriver;

// Returns false when it cannot be done yet: it is asked again later, and what is behind it waits.
using Work = std::function<bool()>;

// What a StreamHandle points at.
class Stream {
 public:
  // Appends one launch; while the stream is captured, to the graph. Returns the device's error, if
  // any.
  Code Push(Work work);
  // Of the function at the front: it waits for other devices (see overlaps()).
  void WaitForPeers(bool waits);
  int32_t device() const { return device_; }
  EmulatedDriver& driver() const { return driver_; }

 private:
  friend class EmulatedDriver;
  struct Given {
    enum class Kind : uint8_t { kLaunch, kPart, kEvent };  // kPart: of a launch that ends later
    Work work;
    Kind kind = Kind::kLaunch;
    const void* graph = nullptr;  // that it is of
  };
  Stream(EmulatedDriver& driver, int32_t device) : driver_(driver), device_(device) {}
  Code Push(Given given);
  // Has something to do that may touch memory.
  bool busy() const;

  EmulatedDriver& driver_;
  const int32_t device_;
  std::deque<Given> work_;  // guarded by the driver, and below
  int64_t launches_ = 0;    // in work_
  bool waits_for_peers_ = false;
  std::unique_ptr<std::vector<Work>> captured_;
};

struct EmulatedOptions {
  int32_t devices = 1;
  int64_t memory_bytes = int64_t{256} << 20;  // of each
  uint64_t seed = 1;
  int64_t most_launches = 1000;  // of a stream; the next would wait for the device
};

class EmulatedDriver final : public device::cuda::Driver {
 public:
  explicit EmulatedDriver(EmulatedOptions options = {});
  ~EmulatedDriver() override;

  // The next `times` calls of this name ("Allocate", "Copy", ...) after `skip` good ones fail.
  void Fail(const std::string& call, Code code, int skip = 0, int times = 1);
  // The device is lost with this code when its streams get to what is given next, or so many
  // functions later.
  void SpoilDevice(int32_t device, Code code, int64_t after = 0);
  // Its streams do nothing until they no longer hang.
  void Hang(int32_t device, bool hangs);
  std::vector<std::string> misuse() const;
  // The most launches that one stream ever had before it.
  int64_t most_outstanding() const;
  // Calls by name so far.
  int64_t calls(const std::string& call) const;
  // What has been made and not destroyed: "allocation", "host", "stream", "event", "graph".
  int64_t alive(const std::string& kind) const;
  bool IsDeviceMemory(const void* data) const;
  // Functions, events apart, that ran while another stream of their device waited for peers.
  int64_t overlaps() const;

  Code ReadVersions(device::cuda::Versions* versions) override;
  Code CountDevices(int32_t* count) override;
  Code Describe(int32_t device, device::cuda::Description* description) override;
  const char* ErrorName(Code code) override;
  const char* ErrorText(Code code) override;
  Code UseDevice(int32_t device) override;
  Code ReadMemory(int64_t* free_bytes, int64_t* total_bytes) override;
  Code Allocate(void** data, int64_t bytes) override;
  Code Release(void* data) override;
  Code AllocateOrdered(void** data, int64_t bytes, device::cuda::StreamHandle stream) override;
  Code ReleaseOrdered(void* data, device::cuda::StreamHandle stream) override;
  Code AllocateHost(void** data, int64_t bytes) override;
  Code ReleaseHost(void* data) override;
  Code MakeStream(device::cuda::StreamHandle* stream, bool urgent) override;
  Code DestroyStream(device::cuda::StreamHandle stream) override;
  Code QueryStream(device::cuda::StreamHandle stream) override;
  Code MakeEvent(device::cuda::EventHandle* event) override;
  Code DestroyEvent(device::cuda::EventHandle event) override;
  Code RecordEvent(device::cuda::EventHandle event, device::cuda::StreamHandle stream) override;
  Code WaitForEvent(device::cuda::StreamHandle stream, device::cuda::EventHandle event) override;
  Code Copy(void* to, const void* from, int64_t bytes, device::cuda::StreamHandle stream) override;
  Code Fill(void* to, int32_t value, int64_t bytes, device::cuda::StreamHandle stream) override;
  Code Gather(void* dense, const void* strided, const device::StridedRuns& runs,
              device::cuda::StreamHandle stream) override;
  Code Scatter(void* strided, const void* dense, const device::StridedRuns& runs,
               device::cuda::StreamHandle stream) override;
  Code Mark(int32_t* host, int32_t value, device::cuda::StreamHandle stream) override;
  Code CallHost(device::cuda::HostCall call, void* with,
                device::cuda::StreamHandle stream) override;
  Code StartCapture(device::cuda::StreamHandle stream) override;
  Code FinishCapture(device::cuda::StreamHandle stream, device::cuda::GraphHandle* graph) override;
  Code LaunchGraph(device::cuda::GraphHandle graph, device::cuda::StreamHandle stream) override;
  Code DestroyGraph(device::cuda::GraphHandle graph) override;

 private:
  friend class Stream;
  struct Device;
  struct Event;
  struct Graph;
  struct Failure {
    Code code = 0;
    int skip = 0;
    int times = 0;
  };

  struct Pinned {
    int64_t bytes = 0;
    int32_t device = 0;  // in use when it was made
  };

  void BlameCaptured(const std::string& what, const Stream& stream, bool is);
  // REQUIRES mutex_, as the next.
  void Blame(const std::string& what) { misuse_.push_back(what); }
  void BlameBusy(const std::string& what, const Device& device);
  // Counts the call; the code that it must fail with, of an injected failure or a lost device.
  Code Enter(const std::string& call, int32_t device);
  int32_t CurrentDevice() const;
  Device& DeviceOf(device::cuda::StreamHandle stream);
  Code Take(void** data, int64_t bytes);
  void Give(void* data);
  // Runs one function of the device, or of one stream, that can run. False: none can.
  bool RunSome(Device& device, const Stream* only = nullptr);
  bool IsPageable(const void* data) const;

  const EmulatedOptions options_;
  mutable std::mutex mutex_;  // guards all below but `running` of the devices
  int64_t overlaps_ = 0;
  bool was_event_ = false;  // the last function that ran
  std::map<std::string, Failure> failures_;
  std::map<std::string, int64_t> calls_;
  std::map<std::string, int64_t> alive_;
  std::map<const std::byte*, Pinned> host_;  // blocks
  std::vector<std::string> misuse_;
  int64_t most_outstanding_ = 0;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace meshwright::emulated
