#include "tests/emulated/driver.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/queue.h"
#include "device/cuda/error.h"
#include "tests/emulated/driver_parts.h"

namespace meshwright::emulated {
namespace {

using device::cuda::EventHandle;
using device::cuda::GraphHandle;
using device::cuda::kIllegalAddress;
using device::cuda::kNotReady;
using device::cuda::kOutOfMemory;
using device::cuda::kSuccess;
using device::cuda::StreamHandle;

constexpr Code kInvalidValue = 1;

thread_local int32_t current_device = 0;

}  // namespace

void Stream::WaitForPeers(bool waits) {
  const std::lock_guard<std::mutex> lock(driver_.mutex_);
  waits_for_peers_ = waits;
}

Code Stream::Push(Work work) { return Push(Given{std::move(work), Given::Kind::kLaunch, nullptr}); }

Code Stream::Push(Given given) {
  const std::lock_guard<std::mutex> lock(driver_.mutex_);
  EmulatedDriver::Device& device = *driver_.devices_[static_cast<size_t>(device_)];
  if (device.lost != kSuccess) return device.lost;
  if (captured_) {
    captured_->push_back(std::move(given.work));
    return kSuccess;
  }
  if (given.kind == Given::Kind::kLaunch) {
    ++launches_;
    driver_.most_outstanding_ = std::max(driver_.most_outstanding_, launches_);
    if (launches_ > driver_.options_.most_launches) {
      driver_.Blame(fmt::format("a launch waits inside the driver: {} are outstanding", launches_));
    }
  }
  work_.push_back(std::move(given));
  return kSuccess;
}

bool Stream::busy() const {
  return std::ranges::any_of(work_,
                             [](const Given& given) { return given.kind != Given::Kind::kEvent; });
}

EmulatedDriver::EmulatedDriver(EmulatedOptions options) : options_(options) {
  for (int32_t i = 0; i < options_.devices; ++i) {
    auto device = std::make_unique<Device>();
    device->bytes = Pages(options_.memory_bytes);
    void* base = ::mmap(nullptr, static_cast<size_t>(device->bytes), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    device->base = static_cast<std::byte*>(base);
    MarkUsable(device->base, device->bytes, false);
    device->random.seed(options_.seed * 1000003 + static_cast<uint64_t>(i));
    devices_.push_back(std::move(device));
  }
}

EmulatedDriver::~EmulatedDriver() {
  for (const auto& device : devices_) {
    MarkUsable(device->base, device->bytes, true);
    (void)::munmap(device->base, static_cast<size_t>(device->bytes));
    for (Stream* stream : device->streams) delete stream;
  }
  device::cuda::ForgetPoison(*this);
}

void EmulatedDriver::Fail(const std::string& call, Code code, int skip, int times) {
  const std::lock_guard<std::mutex> lock(mutex_);
  failures_[call] = {code, skip, times};
}

void EmulatedDriver::SpoilDevice(int32_t device, Code code, int64_t after) {
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_[static_cast<size_t>(device)]->spoil = code;
  devices_[static_cast<size_t>(device)]->spoil_after = after;
}

void EmulatedDriver::Hang(int32_t device, bool hangs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_[static_cast<size_t>(device)]->hangs = hangs;
}

std::vector<std::string> EmulatedDriver::misuse() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return misuse_;
}

void EmulatedDriver::BlameCaptured(const std::string& what, const Stream& stream, bool is) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is && stream.captured_ != nullptr) Blame(what + " while the stream is captured");
}

int64_t EmulatedDriver::most_outstanding() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return most_outstanding_;
}

void EmulatedDriver::BlameBusy(const std::string& what, const Device& device) {
  if (device.lost != kSuccess) return;
  const bool busy =
      std::ranges::any_of(device.streams, [](const Stream* of) { return of->busy(); });
  if (busy) Blame(fmt::format("{} while the device may be using it", what));
}

int64_t EmulatedDriver::calls(const std::string& call) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = calls_.find(call);
  return it == calls_.end() ? 0 : it->second;
}

int64_t EmulatedDriver::alive(const std::string& kind) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = alive_.find(kind);
  return it == alive_.end() ? 0 : it->second;
}

bool EmulatedDriver::IsDeviceMemory(const void* data) const {
  const auto* place = static_cast<const std::byte*>(data);
  return std::any_of(devices_.begin(), devices_.end(), [&](const auto& device) {
    return place >= device->base && place < device->base + device->bytes;
  });
}

Code EmulatedDriver::Enter(const std::string& call, int32_t device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++calls_[call];
  Device& of = *devices_[static_cast<size_t>(device)];
  if (of.lost != kSuccess) return of.lost;
  const auto it = failures_.find(call);
  if (it == failures_.end()) return kSuccess;
  Failure& failure = it->second;
  if (failure.skip > 0) {
    --failure.skip;
    return kSuccess;
  }
  const Code code = failure.code;
  if (--failure.times <= 0) failures_.erase(it);
  if (device::cuda::IsSticky(code)) of.lost = code;
  return code;
}

int32_t EmulatedDriver::CurrentDevice() const {
  return std::min(current_device, options_.devices - 1);
}

EmulatedDriver::Device& EmulatedDriver::DeviceOf(StreamHandle stream) {
  return *devices_[static_cast<size_t>(static_cast<Stream*>(stream)->device_)];
}

int64_t EmulatedDriver::overlaps() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return overlaps_;
}

Code EmulatedDriver::ReadVersions(device::cuda::Versions* versions) {
  *versions = {13000, 13000};
  return Enter("ReadVersions", 0);
}

Code EmulatedDriver::CountDevices(int32_t* count) {
  *count = options_.devices;
  return Enter("CountDevices", 0);
}

Code EmulatedDriver::Describe(int32_t device, device::cuda::Description* description) {
  if (device < 0 || device >= options_.devices) return kInvalidValue;
  std::strcpy(description->name, "Emulated GPU");
  description->major = 9;
  description->minor = 0;
  description->multiprocessors = 4;
  description->memory_bytes = options_.memory_bytes;
  description->l2_bytes = int64_t{1} << 20;
  description->shared_bytes_per_block = int64_t{227} << 10;
  std::snprintf(description->uuid, sizeof(description->uuid), "emulated-%d", device);
  std::snprintf(description->pci_bus_id, sizeof(description->pci_bus_id), "0000:%02x:00.0", device);
  return Enter("Describe", device);
}

const char* EmulatedDriver::ErrorName(Code code) {
  switch (code) {
    case kOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case kIllegalAddress:
      return "cudaErrorIllegalAddress";
    case device::cuda::kLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorEmulated";
  }
}

const char* EmulatedDriver::ErrorText(Code code) {
  return code == kIllegalAddress ? "an illegal memory access was encountered" : "emulated";
}

Code EmulatedDriver::UseDevice(int32_t device) {
  if (device < 0 || device >= options_.devices) return kInvalidValue;
  current_device = device;
  return kSuccess;
}

// ---- Streams and events -------------------------------------------------------------------------

Code EmulatedDriver::MakeStream(StreamHandle* stream, bool) {
  const Code code = Enter("MakeStream", CurrentDevice());
  if (code != kSuccess) return code;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto* made = new Stream(*this, CurrentDevice());
  devices_[static_cast<size_t>(CurrentDevice())]->streams.push_back(made);
  ++alive_["stream"];
  *stream = made;
  return kSuccess;
}

// As CUDA, which does not wait: what is in the stream is still done. Here at once, where nothing
// else has to be done before.
Code EmulatedDriver::DestroyStream(StreamHandle stream) {
  const Code code = Enter("DestroyStream", CurrentDevice());
  Device& device = DeviceOf(stream);
  auto* const destroyed = static_cast<Stream*>(stream);
  while (RunSome(device, destroyed)) {
  }
  const std::lock_guard<std::mutex> run_lock(device.running);
  const std::lock_guard<std::mutex> lock(mutex_);
  --alive_["stream"];
  if (!destroyed->work_.empty() && device.lost == kSuccess) return code;  // the driver's, then
  std::erase(device.streams, destroyed);
  delete destroyed;
  return code;
}

bool EmulatedDriver::RunSome(Device& device, const Stream* only) {
  const std::unique_lock<std::mutex> run_lock(device.running, std::try_to_lock);
  if (!run_lock.owns_lock()) return true;  // another thread runs it
  std::vector<Stream*> order;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Stream* stream : device.streams) {
      if (only != nullptr && stream != only) continue;
      if (!stream->work_.empty()) order.push_back(stream);
    }
    if (device.hangs) return false;
    std::shuffle(order.begin(), order.end(), device.random);
    if (!order.empty() && device.spoil && device.spoil_after-- <= 0) device.lost = *device.spoil;
    if (device.lost != kSuccess) {  // nothing is done on it any more
      for (Stream* stream : device.streams) stream->work_.clear();
      return false;
    }
  }
  device.Protect(true);
  bool done = false;
  for (Stream* stream : order) {
    Work* next = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!stream->work_.empty()) next = &stream->work_.front().work;
      was_event_ = false;
    }
    // References to a deque's elements outlive what is pushed behind them.
    if (next == nullptr || !(*next)()) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stream->work_.front().kind == Stream::Given::Kind::kLaunch) --stream->launches_;
    stream->work_.pop_front();
    const bool overlaps = std::ranges::any_of(device.streams, [&](const Stream* other) {
      return other != stream && other->waits_for_peers_;
    });
    if (overlaps && !was_event_) ++overlaps_;
    done = true;
    break;
  }
  device.Protect(false);
  return done;
}

Code EmulatedDriver::QueryStream(StreamHandle stream) {
  Device& device = DeviceOf(stream);
  const Code code = Enter("QueryStream", static_cast<Stream*>(stream)->device_);
  if (code != kSuccess) return code;
  BlameCaptured("a question for its state", *static_cast<Stream*>(stream), true);
  if (!RunSome(device)) {
    // What it waits for may be work that another device's host has given and left to itself.
    for (const auto& other : devices_) {
      if (other.get() != &device) (void)RunSome(*other);
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (device.lost != kSuccess) return device.lost;
  return static_cast<Stream*>(stream)->work_.empty() ? kSuccess : kNotReady;
}

Code EmulatedDriver::MakeEvent(EventHandle* event) {
  const Code code = Enter("MakeEvent", CurrentDevice());
  if (code != kSuccess) return code;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++alive_["event"];
  *event = new std::shared_ptr<Event>(std::make_shared<Event>());
  return kSuccess;
}

Code EmulatedDriver::DestroyEvent(EventHandle event) {
  const Code code = Enter("DestroyEvent", CurrentDevice());
  const std::lock_guard<std::mutex> lock(mutex_);
  --alive_["event"];
  delete static_cast<std::shared_ptr<Event>*>(event);
  return code;
}

Code EmulatedDriver::RecordEvent(EventHandle event, StreamHandle stream) {
  const Code code = Enter("RecordEvent", CurrentDevice());
  if (code != kSuccess) return code;
  const auto recorded = *static_cast<std::shared_ptr<Event>*>(event);
  int64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = ++recorded->recorded;
  }
  const auto pass = [this, recorded, number] {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorded->passed = std::max(recorded->passed, number);
    was_event_ = true;
    return true;
  };
  return static_cast<Stream*>(stream)->Push({pass, Stream::Given::Kind::kEvent, nullptr});
}

// The last record before the call is waited for, as in CUDA; none: nothing.
Code EmulatedDriver::WaitForEvent(StreamHandle stream, EventHandle event) {
  const Code code = Enter("WaitForEvent", CurrentDevice());
  if (code != kSuccess) return code;
  const auto awaited = *static_cast<std::shared_ptr<Event>*>(event);
  int64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = awaited->recorded;
  }
  const auto wait = [this, awaited, number] {
    const std::lock_guard<std::mutex> lock(mutex_);
    was_event_ = true;
    return awaited->passed >= number;
  };
  return static_cast<Stream*>(stream)->Push({wait, Stream::Given::Kind::kEvent, nullptr});
}

// ---- Work ---------------------------------------------------------------------------------------

Code EmulatedDriver::Copy(void* to, const void* from, int64_t bytes, StreamHandle stream) {
  const Code code = Enter("Copy", CurrentDevice());
  if (code != kSuccess) return code;
  auto* target = static_cast<Stream*>(stream);
  BlameCaptured("a copy of pageable memory", *target, IsPageable(from) || IsPageable(to));
  const auto copy = [to, bytes](const void* source) {
    if (bytes > 0) std::memcpy(to, source, static_cast<size_t>(bytes));
    return true;
  };
  if (IsPageable(from)) {
    const auto* begin = static_cast<const std::byte*>(from);
    return target->Push(
        [copy, kept = std::vector<std::byte>(begin, begin + bytes)] { return copy(kept.data()); });
  }
  const Code pushed = target->Push([copy, from] { return copy(from); });
  if (pushed != kSuccess || !IsPageable(to)) return pushed;
  Code state = kNotReady;
  while (state == kNotReady) state = QueryStream(stream);
  return state;
}

Code EmulatedDriver::Fill(void* to, int32_t value, int64_t bytes, StreamHandle stream) {
  const Code code = Enter("Fill", CurrentDevice());
  if (code != kSuccess) return code;
  return static_cast<Stream*>(stream)->Push([=] {
    std::memset(to, value, static_cast<size_t>(bytes));
    return true;
  });
}

Code EmulatedDriver::Gather(void* dense, const void* strided, const device::StridedRuns& runs,
                            StreamHandle stream) {
  const Code code = Enter("Gather", CurrentDevice());
  if (code != kSuccess) return code;
  using Loops = std::vector<device::StridedRuns::Loop>;
  return static_cast<Stream*>(stream)->Push(
      [=, run_bytes = runs.run_bytes, loops = Loops(runs.loops.begin(), runs.loops.end())] {
        return device::CpuQueue().Gather(dense, strided, {run_bytes, loops}).ok();
      });
}

Code EmulatedDriver::Scatter(void* strided, const void* dense, const device::StridedRuns& runs,
                             StreamHandle stream) {
  const Code code = Enter("Scatter", CurrentDevice());
  if (code != kSuccess) return code;
  using Loops = std::vector<device::StridedRuns::Loop>;
  return static_cast<Stream*>(stream)->Push(
      [=, run_bytes = runs.run_bytes, loops = Loops(runs.loops.begin(), runs.loops.end())] {
        return device::CpuQueue().Scatter(strided, dense, {run_bytes, loops}).ok();
      });
}

Code EmulatedDriver::Mark(int32_t* host, int32_t value, StreamHandle stream) {
  const Code code = Enter("Mark", CurrentDevice());
  if (code != kSuccess) return code;
  return static_cast<Stream*>(stream)->Push([host, value] {
    std::atomic_ref<int32_t>(*host).store(value);
    return true;
  });
}

// The host has its own memory only.
Code EmulatedDriver::CallHost(device::cuda::HostCall call, void* with, StreamHandle stream) {
  const Code code = Enter("CallHost", CurrentDevice());
  if (code != kSuccess) return code;
  BlameCaptured("a call of the host", *static_cast<Stream*>(stream), true);
  const Device* const device = &DeviceOf(stream);
  return static_cast<Stream*>(stream)->Push([=] {
    device->Protect(false);
    call(with);
    device->Protect(true);
    return true;
  });
}

// ---- Graphs -------------------------------------------------------------------------------------

Code EmulatedDriver::StartCapture(StreamHandle stream) {
  const Code code = Enter("StartCapture", CurrentDevice());
  if (code != kSuccess) return code;
  const std::lock_guard<std::mutex> lock(mutex_);
  static_cast<Stream*>(stream)->captured_ = std::make_unique<std::vector<Work>>();
  return kSuccess;
}

Code EmulatedDriver::FinishCapture(StreamHandle stream, GraphHandle* graph) {
  const Code code = Enter("FinishCapture", CurrentDevice());
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto captured = std::move(static_cast<Stream*>(stream)->captured_);
  if (code != kSuccess || captured == nullptr || captured->empty()) return code;
  ++alive_["graph"];
  *graph = new Graph{std::move(*captured)};
  return kSuccess;
}

Code EmulatedDriver::LaunchGraph(GraphHandle graph, StreamHandle stream) {
  const Code code = Enter("LaunchGraph", CurrentDevice());
  if (code != kSuccess) return code;
  // One launch, that is done with its last function.
  const std::vector<Work>& work = static_cast<Graph*>(graph)->work;
  for (size_t i = 0; i < work.size(); ++i) {
    const auto kind =
        i + 1 < work.size() ? Stream::Given::Kind::kPart : Stream::Given::Kind::kLaunch;
    const Code pushed = static_cast<Stream*>(stream)->Push({work[i], kind, graph});
    if (pushed != kSuccess) return pushed;
  }
  return kSuccess;
}

Code EmulatedDriver::DestroyGraph(GraphHandle graph) {
  const Code code = Enter("DestroyGraph", CurrentDevice());
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& device : devices_) {
    for (const Stream* stream : device->streams) {
      const bool runs = std::ranges::any_of(
          stream->work_, [&](const Stream::Given& given) { return given.graph == graph; });
      if (runs && device->lost == kSuccess) Blame("DestroyGraph of one that is still to run");
    }
  }
  --alive_["graph"];
  delete static_cast<Graph*>(graph);
  return code;
}

}  // namespace meshwright::emulated
