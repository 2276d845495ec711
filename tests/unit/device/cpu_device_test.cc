#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "device/cpu/shared_file.h"
#include "device/device.h"
#include "tests/scale.h"

namespace meshwright::device {
namespace {

using ir::MemoryKind;
using ::testing::HasSubstr;

std::unique_ptr<Device> MakeDevice(DeviceOptions options = {}) {
  if (options.name.empty()) options.name = "cpu:0";
  auto device = MakeCpuDevice(std::move(options));
  EXPECT_TRUE(device.has_value()) << device.error();
  return std::move(*device);
}

TEST(CpuDevice, MemoryIsZeroedWritableAndAligned) {
  auto device = MakeDevice();
  for (int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{100'000}, (int64_t{5} << 20) + 3}) {
    auto memory = device->Allocate({MemoryKind::kActivations, bytes});
    ASSERT_TRUE(memory.has_value()) << memory.error();
    std::byte* data = (*memory)->data();
    EXPECT_EQ((*memory)->bytes(), bytes);
    const auto address = reinterpret_cast<uintptr_t>(data);
    const bool large = bytes >= (2 << 20);  // huge pages start at a multiple of their size
    EXPECT_EQ(address % (large ? 2 << 20 : 64), 0u);
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(data, data + bytes, std::byte{0xAB});
  }
}

// More than one call populates.
TEST(CpuDevice, AllPagesArePresentBeforeTheyAreUsed) {
  for (const bool shared : {false, true}) {
    DeviceOptions options;
    options.share_memory = shared;
    auto device = MakeDevice(options);
    constexpr int64_t kBytes = (int64_t{70} << 20) + 5;
    auto memory = device->Allocate({MemoryKind::kActivations, kBytes});
    ASSERT_TRUE(memory.has_value()) << memory.error();
    const auto page = sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> present(static_cast<size_t>((kBytes + page - 1) / page));
    ASSERT_EQ(mincore((*memory)->data(), static_cast<size_t>(kBytes), present.data()), 0);
    const auto missing = std::count_if(present.begin(), present.end(),
                                       [](unsigned char bits) { return (bits & 1) == 0; });
    EXPECT_EQ(missing, 0) << (shared ? "shared" : "private");
  }
}

TEST(CpuDevice, SharedMemoryIsSeenByWhoOpensItsHandleAndGoneWithIt) {
  DeviceOptions options;
  options.share_memory = true;
  auto device = MakeDevice(options);
  for (int64_t bytes : {int64_t{100}, (int64_t{5} << 20) + 3}) {
    auto memory = device->Allocate({MemoryKind::kActivations, bytes});
    ASSERT_TRUE(memory.has_value()) << memory.error();
    std::byte* data = (*memory)->data();
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    ASSERT_NE((*memory)->shared(), nullptr);
    const SharedHandle handle = *(*memory)->shared();
    EXPECT_GE(handle.bytes, bytes);
    auto file = SharedFile::Open(handle);
    ASSERT_TRUE(file.has_value()) << file.error();
    auto mapped = file->Map();
    ASSERT_TRUE(mapped.has_value()) << mapped.error();
    data[bytes - 1] = std::byte{7};
    EXPECT_EQ((*mapped)[bytes - 1], std::byte{7});
    memory->reset();
    EXPECT_EQ((*mapped)[bytes - 1], std::byte{7}) << "a mapping outlives its maker's";
    EXPECT_FALSE(SharedFile::Open(handle).has_value());
    munmap(*mapped, static_cast<size_t>(SharedFile::MappedBytes(handle.bytes)));
  }
  EXPECT_EQ(MakeDevice()->Allocate({MemoryKind::kWeights, 64}).value()->shared(), nullptr);
}

// True when the allocation is private. Leaves the process without descriptors.
bool IsPrivateWithoutDescriptors(Device& device) {
  const rlimit none{0, 0};
  const bool limited = setrlimit(RLIMIT_NOFILE, &none) == 0;
  const auto memory = device.Allocate({MemoryKind::kWeights, 100'000});
  return limited && memory.has_value() && (*memory)->shared() == nullptr;
}

TEST(CpuDevice, WhereMemoryCannotBeSharedItIsPrivate) {
  // The checks of the address sanitizer need descriptors themselves.
  if (kSanitizedBuild) GTEST_SKIP() << "a process without descriptors";
  DeviceOptions options;
  options.share_memory = true;
  auto device = MakeDevice(options);
  EXPECT_EXIT(_exit(IsPrivateWithoutDescriptors(*device) ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST(CpuDevice, MoreSharedMemoryThanTheMachineHasIsAnErrorToo) {
  DeviceOptions options;
  options.share_memory = true;
  const auto memory = MakeDevice(options)->Allocate({MemoryKind::kWeights, int64_t{1} << 46});
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), StatusCode::kResourceExhausted);
}

TEST(CpuDevice, AccountsMemoryByKindUntilItIsFreed) {
  auto device = MakeDevice();
  MemoryUse mixed(MemoryKind::kActivations, 1000);
  mixed[MemoryKind::kWorkspace] = 24;
  auto arena = device->Allocate(mixed);
  auto weights = device->Allocate({MemoryKind::kWeights, 512});
  ASSERT_TRUE(arena.has_value() && weights.has_value());
  EXPECT_EQ(device->memory()[MemoryKind::kActivations], 1000);
  EXPECT_EQ(device->memory()[MemoryKind::kWorkspace], 24);
  EXPECT_EQ(device->memory()[MemoryKind::kWeights], 512);
  EXPECT_EQ(device->memory().total(), 1536);
  arena->reset();
  EXPECT_EQ(device->memory(), MemoryUse(MemoryKind::kWeights, 512));
  weights->reset();
  EXPECT_EQ(device->memory().total(), 0);
}

TEST(CpuDevice, MemoryOutlivesTheDevice) {
  auto device = MakeDevice();
  auto memory = device->Allocate({MemoryKind::kWeights, 64});
  ASSERT_TRUE(memory.has_value());
  device.reset();
  (*memory)->data()[63] = std::byte{1};
  memory->reset();
}

TEST(CpuDevice, TheLimitIsAHardOneAndItsErrorHasTheNumbers) {
  DeviceOptions options;
  options.name = "cpu:3";
  options.memory_limit_bytes = 1000;
  auto device = MakeDevice(options);
  auto first = device->Allocate({MemoryKind::kWeights, 900});
  ASSERT_TRUE(first.has_value());
  const auto second = device->Allocate({MemoryKind::kGradients, 200});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(second.error().message(),
              HasSubstr("cpu:3: device memory: 200 bytes asked for (gradients 200), 900 in use "
                        "(weights 900), limit 1000"));
  EXPECT_EQ(device->memory().total(), 900) << "a refused allocation is not charged";
  EXPECT_TRUE(device->Allocate({MemoryKind::kGradients, 100}).has_value());
}

TEST(CpuDevice, MoreThanTheMachineHasIsAnErrorAndNotADeath) {
  auto device = MakeDevice();
  const auto memory = device->Allocate({MemoryKind::kWeights, int64_t{1} << 46});
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(memory.error().message(), HasSubstr("70368744177664 bytes"));
  EXPECT_EQ(device->memory().total(), 0);
}

TEST(CpuDevice, MoreMemoryOfTheHostThanThereIsIsAnErrorToo) {
  DeviceOptions options;
  options.name = "cpu:3";
  const auto memory = MakeDevice(options)->AllocateHost(int64_t{1} << 46);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(memory.error().ToString(), HasSubstr("cpu:3"));
  EXPECT_THAT(memory.error().message(), HasSubstr("70368744177664 bytes"));
}

TEST(CpuDevice, TheTeamHasTheDevicesThreadsOnceEntered) {
  DeviceOptions options;
  options.threads = 2;
  auto device = MakeDevice(options);
  EXPECT_EQ(device->team(), nullptr);
  ASSERT_TRUE(device->EnterThread().ok());
  ASSERT_NE(device->team(), nullptr);
  EXPECT_EQ(device->team()->size(), 2);
  std::vector<int> counts(100, 0);
  device->team()->ParallelFor(100, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(i)];
  });
  EXPECT_EQ(counts, std::vector<int>(100, 1));
  auto single = MakeDevice();
  ASSERT_TRUE(single->EnterThread().ok());
  EXPECT_EQ(single->team(), nullptr) << "one thread needs no team";
}

TEST(CpuDevice, EnterThreadPinsTheCallingThread) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  int cpu = 0;
  while (!CPU_ISSET(static_cast<size_t>(cpu), &usable)) ++cpu;
  DeviceOptions options;
  options.cpus = {cpu};
  auto device = MakeDevice(options);
  std::thread thread([&] {
    const Status status = device->EnterThread();
    EXPECT_TRUE(status.ok()) << status;
    cpu_set_t set;
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    EXPECT_EQ(CPU_COUNT(&set), 1);
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(cpu), &set));
  });
  thread.join();
}

TEST(CpuDevice, OptionsThatDoNotFitAreNamed) {
  const auto error = [](int threads, std::vector<int> cpus) {
    DeviceOptions options{"cpu:0", threads, std::move(cpus), 0};
    const auto device = MakeCpuDevice(std::move(options));
    EXPECT_FALSE(device.has_value());
    return device.has_value() ? "" : device.error().message();
  };
  EXPECT_THAT(error(0, {}), HasSubstr("0 threads"));
  EXPECT_THAT(error(2, {1}), HasSubstr("1 cores to pin 2 threads"));
  EXPECT_THAT(error(1, {-1}), HasSubstr("core -1"));
  DeviceOptions absent{"cpu:0", 1, {1000}, 0};
  auto device = MakeDevice(absent);
  std::thread thread(
      [&] { EXPECT_EQ(device->EnterThread().code(), StatusCode::kInvalidArgument); });
  thread.join();
}

}  // namespace
}  // namespace meshwright::device
