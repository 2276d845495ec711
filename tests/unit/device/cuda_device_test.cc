// The CUDA device above a driver that fails.
#include "device/cuda/device.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "device/cuda/plugin.h"
#include "tests/emulated/driver.h"

namespace meshwright::device::cuda {
namespace {

using emulated::EmulatedDriver;
using ir::MemoryKind;
using ::testing::HasSubstr;

constexpr int64_t kTimeoutMs = 10'000;

std::unique_ptr<CudaDevice> MakeDevice(EmulatedDriver& driver, int32_t index = 0) {
  DeviceOptions options;
  options.name = "cuda:" + std::to_string(index);
  auto device = CudaDevice::Make(driver, index, options);
  EXPECT_TRUE(device.has_value()) << device.error();
  return std::move(*device);
}

Status Finish(Queue& queue) { return queue.Finish(Deadline::After(kTimeoutMs)); }

TEST(CudaDevice, OutOfMemorySaysWhatWasAskedForAndWhatIsFree) {
  EmulatedDriver driver({.memory_bytes = 1 << 20});
  const auto device = MakeDevice(driver);
  const auto arena = device->Allocate({MemoryKind::kWeights, 600 << 10});
  ASSERT_TRUE(arena.has_value()) << arena.error();
  const auto refused = device->Allocate({MemoryKind::kWeights, 600 << 10});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("cuda:0: allocating an arena: "
                                                   "cudaErrorMemoryAllocation"));
  EXPECT_THAT(refused.error().message(), HasSubstr("614400 bytes asked for, 434176 of 1048576"));
  EXPECT_EQ(device->memory().total(), 600 << 10) << "the refused bytes are not charged";
  EXPECT_TRUE(device->status().ok()) << "running out of memory is not the device's end";
  EXPECT_TRUE(device->Allocate({MemoryKind::kWeights, 4096}).has_value());
}

TEST(CudaDevice, AStickyErrorIsTheAnswerToEverythingAfterIt) {
  EmulatedDriver driver;
  const auto device = MakeDevice(driver);
  const auto memory = device->Allocate({MemoryKind::kWeights, 4096});
  ASSERT_TRUE(memory.has_value());
  ASSERT_TRUE(device->queue().Fill((*memory)->data(), std::byte{1}, 4096).ok());
  driver.SpoilDevice(0, kIllegalAddress);
  const Status first = Finish(device->queue());
  EXPECT_EQ(first.code(), StatusCode::kUnavailable);
  EXPECT_EQ(first.blame(), Blame::kHardware);
  EXPECT_THAT(first.message(),
              HasSubstr("cuda:0: waiting for the device: cudaErrorIllegalAddress (an illegal "
                        "memory access was encountered); this process cannot use the device"));
  EXPECT_EQ(device->status(), first);
  EXPECT_EQ(device->queue().Fill((*memory)->data(), std::byte{1}, 1), first);
  EXPECT_EQ(device->Allocate({MemoryKind::kWeights, 1}).error().message(), first.message());
  EXPECT_EQ(device->MakeEvent().error(), first);
}

TEST(CudaDevice, OneLostDeviceLeavesTheOthers) {
  EmulatedDriver driver({.devices = 2});
  const auto lost = MakeDevice(driver, 0);
  const auto well = MakeDevice(driver, 1);
  auto memory = lost->Allocate({MemoryKind::kWeights, 64});
  ASSERT_TRUE(memory.has_value());
  ASSERT_TRUE(lost->queue().Fill((*memory)->data(), std::byte{1}, 64).ok());
  driver.SpoilDevice(0, kLaunchFailure);
  EXPECT_FALSE(Finish(lost->queue()).ok());
  EXPECT_TRUE(well->Allocate({MemoryKind::kWeights, 64}).has_value());
  EXPECT_TRUE(well->status().ok());
}

// Another job of this process would compute on a lost context.
TEST(CudaDevice, ALostDeviceIsLostForWhoeverOpensItLater) {
  EmulatedDriver driver({.devices = 2});
  {
    const auto lost = MakeDevice(driver, 0);
    ASSERT_TRUE(lost->queue().Mark(reinterpret_cast<int32_t*>(&driver), 0).ok());
    driver.SpoilDevice(0, kLaunchFailure);
    EXPECT_FALSE(Finish(lost->queue()).ok());
  }
  const int64_t calls = driver.calls("Describe");
  const auto again = CudaDevice::Make(driver, 0, {.name = "cuda:0 again"});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().blame(), Blame::kHardware);
  EXPECT_THAT(again.error().message(), HasSubstr("cuda:0: waiting for the device"));
  EXPECT_LE(driver.calls("Describe"), calls + 1);
  EXPECT_TRUE(CudaDevice::Make(driver, 1, {.name = "cuda:1"}).has_value());
}

TEST(CudaDevice, ADeviceThatWasGivenUpAnswersWithTheCause) {
  EmulatedDriver driver;
  const auto device = MakeDevice(driver);
  const Status cause = Unavailable("cuda:0: it hangs").WithBlame(Blame::kHardware);
  device->GiveUp(cause);
  device->GiveUp(Internal("something later"));
  EXPECT_EQ(device->status(), cause);
  EXPECT_EQ(Finish(device->queue()), cause);
  EXPECT_EQ(CudaDevice::Make(driver, 0, {.name = "cuda:0 again"}).error(), cause);
}

TEST(CudaDevice, AnErrorOfOneCallIsItsOwn) {
  EmulatedDriver driver;
  const auto device = MakeDevice(driver);
  driver.Fail("MakeEvent", 1);
  const auto event = device->MakeEvent();
  ASSERT_FALSE(event.has_value());
  EXPECT_EQ(event.error().code(), StatusCode::kInternal);
  EXPECT_THAT(event.error().message(), HasSubstr("making an event: cudaErrorEmulated"));
  EXPECT_TRUE(device->MakeEvent().has_value());
}

TEST(CudaDevice, AWaitEndsAtItsDeadlineOrWhenItIsInterrupted) {
  EmulatedDriver driver;
  const auto device = MakeDevice(driver);
  bool ready = false;
  auto* stream = static_cast<emulated::Stream*>(device->queue().native());
  ASSERT_EQ(stream->Push([&] { return ready; }), kSuccess);
  EXPECT_EQ(device->queue().Finish(Deadline::After(1)).code(), StatusCode::kDeadlineExceeded);
  int asked = 0;
  const Status stopped = device->queue().Finish(Deadline::After(kTimeoutMs), [&] {
    return ++asked < 3 ? OkStatus() : Aborted("the job was stopped");
  });
  EXPECT_EQ(stopped.message(), "the job was stopped");
  EXPECT_EQ(asked, 3);
  ready = true;
  EXPECT_TRUE(Finish(device->queue()).ok());
}

TEST(CudaDevice, NothingIsLeftBehind) {
  EmulatedDriver driver;
  {
    const auto device = MakeDevice(driver);
    const auto arena = device->Allocate({MemoryKind::kWeights, 4096});
    const auto pooled = device->AllocatePooled(100);
    const auto host = device->AllocateHost(100);
    const auto event = device->MakeEvent();
    const auto queue = device->MakeQueue(true);
    ASSERT_TRUE(arena && pooled && host && event && queue);
    EXPECT_EQ((*pooled)->bytes(), 100);
    ASSERT_TRUE((*queue)->StartRecording().ok());
    ASSERT_TRUE((*queue)->Fill((*arena)->data(), std::byte{1}, 64).ok());
    const auto recording = (*queue)->FinishRecording();
    ASSERT_TRUE(recording.has_value());
    EXPECT_EQ(driver.alive("graph"), 1);
  }
  for (const char* kind : {"allocation", "host", "stream", "event", "graph"}) {
    EXPECT_EQ(driver.alive(kind), 0) << kind;
  }
}

// What the emulation must not let pass: a GPU would read, wait or write where nothing is any more.
TEST(CudaDevice, MisuseIsWrittenDown) {
  EmulatedDriver driver({.most_launches = 2});
  const auto device = MakeDevice(driver);
  Queue& queue = device->queue();
  auto arena = device->Allocate({MemoryKind::kWeights, 4096});
  auto host = device->AllocateHost(64);
  ASSERT_TRUE(arena && host);
  std::byte* const data = (*arena)->data();
  ASSERT_TRUE(queue.StartRecording().ok());
  const std::vector<std::byte> pageable(64);
  ASSERT_TRUE(queue.CopyIn(data, pageable.data(), 64).ok());
  ASSERT_TRUE(queue.Fill(data, std::byte{1}, 64).ok());
  auto recording = queue.FinishRecording();
  ASSERT_TRUE(recording.has_value());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.Replay(**recording).ok());
  EXPECT_EQ(driver.most_outstanding(), 3);
  recording->reset();
  host->reset();
  arena->reset();
  const std::vector<std::string> misuse = driver.misuse();
  ASSERT_EQ(misuse.size(), 5u);
  EXPECT_THAT(misuse[0], HasSubstr("pageable memory while the stream is captured"));
  EXPECT_THAT(misuse[1], HasSubstr("a launch waits inside the driver: 3"));
  EXPECT_THAT(misuse[2], HasSubstr("DestroyGraph"));
  EXPECT_THAT(misuse[3], HasSubstr("ReleaseHost"));
  EXPECT_THAT(misuse[4], HasSubstr("Release of memory"));
}

TEST(CudaDevice, StickyCodesAreThoseAfterWhichCudaSaysToRestart) {
  for (const Code code : {201, 214, 226, 700, 702, 710, 714, 716, 719, 810, 911, 999}) {
    EXPECT_TRUE(IsSticky(code)) << code;
  }
  for (const Code code : {1, 2, 35, 100, 600, 701, 720}) EXPECT_FALSE(IsSticky(code)) << code;
}

TEST(CudaPlugin, WhyThereIsNoGpuFitsALine) {
  EmulatedDriver driver;
  driver.Fail("CountDevices", kInsufficientDriver);
  EXPECT_EQ(ListGpus(driver).error().message(),
            "the NVIDIA driver is for CUDA 13.0, this build needs 13.0");
  driver.Fail("CountDevices", kNoDevice);
  EXPECT_THAT(ListGpus(driver).error().message(), HasSubstr("shows no GPU"));
  driver.Fail("Describe", 801);
  EXPECT_THAT(ListGpus(driver).error().message(), HasSubstr("GPU 0: cudaErrorEmulated"));
  const auto gpus = ListGpus(driver);
  ASSERT_TRUE(gpus.has_value()) << gpus.error();
  EXPECT_EQ((*gpus)[0].description.multiprocessors, 4);
}

TEST(CudaPlugin, AFileThatIsNoPluginIsRefusedByName) {
  const auto missing = Plugin::Open("./no-such-plugin.so");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("no-such-plugin.so"));
  const auto other = Plugin::Open("libm.so.6");
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().message(), "libm.so.6 is no plugin of Meshwright");
}

// The plugin of this build opens wherever its libraries are, with a driver or without.
TEST(CudaPlugin, OpensAndHasWhatIsAskedOfIt) {
  const char* path = std::getenv("MESHWRIGHT_CUDA_PLUGIN");
  if (path == nullptr) GTEST_SKIP() << "this build has no plugin: there was no nvcc";
  const auto plugin = Plugin::Open(path);
  ASSERT_TRUE(plugin.has_value()) << plugin.error();
  Versions versions;
  (void)plugin->driver().ReadVersions(&versions);
  EXPECT_STREQ(plugin->driver().ErrorName(kIllegalAddress), "cudaErrorIllegalAddress");
  EXPECT_TRUE(plugin->Symbol("meshwright_cuda_parts").has_value());
  EXPECT_TRUE(plugin->Symbol("meshwright_cuda_combiner").has_value());
  EXPECT_THAT(plugin->Symbol("meshwright_no_such").error().message(), HasSubstr("no_such"));
}

TEST(CudaPlugin, ThisSystemHasGpusOrAReason) {
  const Result<System>& system = ThisSystem();
  if (system.has_value()) {
    EXPECT_FALSE(system->gpus.empty());
  } else {
    EXPECT_THAT(system.error().message(), testing::Not(HasSubstr("\n")));
    EXPECT_FALSE(system.error().message().empty());
  }
}

}  // namespace
}  // namespace meshwright::device::cuda
