// What every device does, whatever it is: the same tests on the CPU, on a GPU that this process
// emulates, and on the GPU of this machine where there is one.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "device/cuda/device.h"
#include "device/cuda/plugin.h"
#include "device/device.h"
#include "tests/emulated/driver.h"

namespace meshwright::device {
namespace {

using ir::MemoryKind;
using ::testing::HasSubstr;

constexpr int64_t kTimeoutMs = 60'000;
constexpr int64_t kLimitBytes = int64_t{64} << 20;

enum class Maker { kCpu, kEmulated, kGpu };

std::string MakerName(const testing::TestParamInfo<Maker>& info) {
  return info.param == Maker::kCpu ? "Cpu" : info.param == Maker::kEmulated ? "Emulated" : "Gpu";
}

class DeviceSuite : public testing::TestWithParam<Maker> {
 protected:
  void SetUp() override {
    DeviceOptions options;
    options.name = "test:0";
    options.memory_limit_bytes = kLimitBytes;
    if (GetParam() == Maker::kCpu) {
      Take(MakeCpuDevice(options));
    } else if (GetParam() == Maker::kEmulated) {
      Take(cuda::CudaDevice::Make(emulated_, 0, options));
    } else {
      const Result<cuda::System>& system = cuda::ThisSystem();
      if (!system.has_value()) GTEST_SKIP() << "no GPU: " << system.error().message();
      Take(cuda::CudaDevice::Make(system->plugin.driver(), 0, options));
    }
    ASSERT_TRUE(device_->EnterThread().ok());
  }

  template <typename Made>
  void Take(Made made) {
    ASSERT_TRUE(made.has_value()) << made.error();
    device_ = std::move(*made);
  }

  std::unique_ptr<Memory> Allocate(int64_t bytes) {
    auto memory = device_->Allocate({MemoryKind::kActivations, bytes});
    EXPECT_TRUE(memory.has_value()) << memory.error();
    return std::move(*memory);
  }

  void Finish(Queue& queue) {
    const Status status = queue.Finish(Deadline::After(kTimeoutMs));
    EXPECT_TRUE(status.ok()) << status;
  }

  void Put(Queue& queue, const Memory& memory, const std::vector<int32_t>& values) {
    ASSERT_TRUE(queue.CopyIn(memory.data(), values.data(), Bytes(values)).ok());
  }

  std::vector<int32_t> Get(Queue& queue, const Memory& memory, size_t count) {
    std::vector<int32_t> values(count, -1);
    EXPECT_TRUE(queue.CopyOut(values.data(), memory.data(), Bytes(values)).ok());
    Finish(queue);
    return values;
  }

  static int64_t Bytes(const std::vector<int32_t>& values) {
    return static_cast<int64_t>(values.size() * sizeof(int32_t));
  }

  static std::vector<int32_t> Count(size_t count, int32_t first) {
    std::vector<int32_t> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }

  emulated::EmulatedDriver emulated_{{.memory_bytes = int64_t{128} << 20}};
  std::unique_ptr<Device> device_;
};

TEST_P(DeviceSuite, MemoryIsZeroedAndAligned) {
  for (const int64_t bytes : {int64_t{4}, int64_t{4096}, (int64_t{5} << 20) + 4}) {
    const auto memory = Allocate(bytes);
    EXPECT_EQ(memory->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % kAlignmentBytes, 0u);
    const auto values = Get(device_->queue(), *memory, static_cast<size_t>(bytes / 4));
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](int32_t v) { return v == 0; }));
  }
}

TEST_P(DeviceSuite, MemoryIsCountedByKindAndGivenBack) {
  MemoryUse use(MemoryKind::kWeights, 4096);
  use[MemoryKind::kGradients] = 1024;
  auto memory = device_->Allocate(use);
  ASSERT_TRUE(memory.has_value()) << memory.error();
  EXPECT_EQ(device_->memory(), use);
  memory->reset();
  EXPECT_EQ(device_->memory().total(), 0);
}

TEST_P(DeviceSuite, MoreThanTheLimitIsRefusedWithTheNumbers) {
  const auto half = Allocate(kLimitBytes / 2);
  const auto refused = device_->Allocate({MemoryKind::kActivations, kLimitBytes});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(kLimitBytes)));
  EXPECT_THAT(refused.error().message(), HasSubstr("test:0"));
  EXPECT_EQ(device_->memory().total(), kLimitBytes / 2);
}

TEST_P(DeviceSuite, CopiesAndFillsHappenInOrder) {
  const auto a = Allocate(4096);
  const auto b = Allocate(4096);
  Queue& queue = device_->queue();
  const auto values = Count(1024, 5);
  Put(queue, *a, values);
  ASSERT_TRUE(queue.Copy(b->data(), a->data(), 4096).ok());
  ASSERT_TRUE(queue.Fill(a->data(), std::byte{1}, 2048).ok());
  ASSERT_TRUE(queue.Copy(b->data(), a->data(), 16).ok());
  auto expected = values;
  std::fill_n(expected.begin(), 4, 0x01010101);
  EXPECT_EQ(Get(queue, *b, 1024), expected);
}

TEST_P(DeviceSuite, PageableMemoryIsDoneWithWhenTheCallReturns) {
  const auto memory = Allocate(4096);
  Queue& queue = device_->queue();
  auto values = Count(1024, 1);
  ASSERT_TRUE(queue.CopyIn(memory->data(), values.data(), 4096).ok());
  std::fill(values.begin(), values.end(), 0);
  ASSERT_TRUE(queue.CopyOut(values.data(), memory->data(), 4096).ok());
  EXPECT_EQ(values, Count(1024, 1));
}

TEST_P(DeviceSuite, HostMemoryIsReadAndWrittenByTheQueue) {
  const auto memory = Allocate(4096);
  auto host = device_->AllocateHost(4096);
  ASSERT_TRUE(host.has_value()) << host.error();
  EXPECT_EQ((*host)->bytes(), 4096);
  auto* words = reinterpret_cast<int32_t*>((*host)->data());
  EXPECT_EQ(words[1023], 0);
  Queue& queue = device_->queue();
  const auto values = Count(1024, 7);
  std::copy(values.begin(), values.end(), words);
  ASSERT_TRUE(queue.CopyIn(memory->data(), words, 4096).ok());
  Finish(queue);
  std::fill_n(words, 1024, 0);
  ASSERT_TRUE(queue.CopyOut(words, memory->data(), 4096).ok());
  Finish(queue);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), words));
}

// Rows of a box of a [6, 8, 10] tensor: offset [1, 2, 3], size [4, 5, 6].
TEST_P(DeviceSuite, TilesAreGatheredAndScattered) {
  const auto tensor = Allocate(6 * 8 * 10 * 4);
  const auto dense = Allocate(4 * 5 * 6 * 4);
  Queue& queue = device_->queue();
  Put(queue, *tensor, Count(480, 0));
  const StridedRuns::Loop loops[] = {{4, 8 * 10 * 4}, {5, 10 * 4}};
  const StridedRuns runs{6 * 4, loops};
  std::byte* const box = tensor->data() + (1 * 80 + 2 * 10 + 3) * 4;
  ASSERT_TRUE(queue.Gather(dense->data(), box, runs).ok());
  std::vector<int32_t> expected;
  for (int i = 1; i < 5; ++i) {
    for (int j = 2; j < 7; ++j) {
      for (int k = 3; k < 9; ++k) expected.push_back(i * 80 + j * 10 + k);
    }
  }
  EXPECT_EQ(Get(queue, *dense, 120), expected);
  ASSERT_TRUE(queue.Fill(tensor->data(), std::byte{0}, 480 * 4).ok());
  ASSERT_TRUE(queue.Scatter(box, dense->data(), runs).ok());
  const auto values = Get(queue, *tensor, 480);
  const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
  EXPECT_EQ(sum, std::accumulate(expected.begin(), expected.end(), int64_t{0}));
  for (const int32_t value : expected) EXPECT_EQ(values[static_cast<size_t>(value)], value);
}

// Odd sizes and places, for which no wide accesses are possible.
TEST_P(DeviceSuite, TilesOfOddBytes) {
  const auto tensor = Allocate(64);
  const auto dense = Allocate(64);
  Queue& queue = device_->queue();
  std::vector<unsigned char> bytes(64);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  ASSERT_TRUE(queue.CopyIn(tensor->data(), bytes.data(), 64).ok());
  const StridedRuns::Loop loops[] = {{5, 7}};
  ASSERT_TRUE(queue.Gather(dense->data() + 1, tensor->data() + 3, {3, loops}).ok());
  ASSERT_TRUE(queue.CopyOut(bytes.data(), dense->data(), 64).ok());
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(bytes[i + 1], 3 + i / 3 * 7 + i % 3) << i;
}

// Without the events the copies of the second queue would read too early, or too late.
TEST_P(DeviceSuite, EventsOrderQueues) {
  auto second = device_->MakeQueue(true);
  ASSERT_TRUE(second.has_value()) << second.error();
  auto written = device_->MakeEvent();
  auto read = device_->MakeEvent();
  ASSERT_TRUE(written.has_value() && read.has_value());
  Queue& first = device_->queue();
  const auto value = Allocate(4096);
  const auto seen = Allocate(10 * 4096);
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(first.Fill(value->data(), std::byte(round + 1), 4096).ok());
    ASSERT_TRUE(first.Record(**written).ok());
    ASSERT_TRUE((*second)->WaitFor(**written).ok());
    ASSERT_TRUE((*second)->Copy(seen->data() + round * 4096, value->data(), 4096).ok());
    ASSERT_TRUE((*second)->Record(**read).ok());
    ASSERT_TRUE(first.WaitFor(**read).ok());
  }
  const auto values = Get(**second, *seen, 10 * 1024);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(values[static_cast<size_t>(round * 1024)], 0x01010101 * (round + 1));
  }
  Finish(first);
}

TEST_P(DeviceSuite, WaitingForAnEventThatWasNeverRecordedWaitsForNothing) {
  auto event = device_->MakeEvent();
  ASSERT_TRUE(event.has_value());
  ASSERT_TRUE(device_->queue().WaitFor(**event).ok());
  Finish(device_->queue());
}

TEST_P(DeviceSuite, MarksSayHowFarTheQueueGot) {
  auto host = device_->AllocateHost(4);
  ASSERT_TRUE(host.has_value()) << host.error();
  auto* mark = reinterpret_cast<int32_t*>((*host)->data());
  Queue& queue = device_->queue();
  for (const int32_t value : {1, 2, 3}) ASSERT_TRUE(queue.Mark(mark, value).ok());
  Finish(queue);
  EXPECT_EQ(*mark, 3);
}

TEST_P(DeviceSuite, RecordingsRepeatTheirWorkOnNewData) {
  Queue& queue = device_->queue();
  const auto a = Allocate(4096);
  const auto b = Allocate(4096);
  if (!queue.can_record()) {
    EXPECT_EQ(queue.StartRecording().code(), StatusCode::kUnimplemented);
    return;
  }
  Put(queue, *a, Count(1024, 0));
  Finish(queue);
  ASSERT_TRUE(queue.StartRecording().ok());
  ASSERT_TRUE(queue.Copy(b->data(), a->data(), 4096).ok());
  ASSERT_TRUE(queue.Fill(a->data(), std::byte{0}, 2048).ok());
  auto recording = queue.FinishRecording();
  ASSERT_TRUE(recording.has_value()) << recording.error();
  EXPECT_EQ(Get(queue, *b, 1024), std::vector<int32_t>(1024, 0)) << "recorded work was done";
  for (const int32_t first : {10, 20}) {
    Put(queue, *a, Count(1024, first));
    ASSERT_TRUE(queue.Replay(**recording).ok());
    EXPECT_EQ(Get(queue, *b, 1024), Count(1024, first));
    EXPECT_EQ(Get(queue, *a, 1024)[0], 0);
  }
}

TEST_P(DeviceSuite, AnEmptyRecordingIsReplayedAsNothing) {
  Queue& queue = device_->queue();
  if (!queue.can_record()) GTEST_SKIP() << "the queue does its work at once";
  ASSERT_TRUE(queue.StartRecording().ok());
  auto recording = queue.FinishRecording();
  ASSERT_TRUE(recording.has_value()) << recording.error();
  EXPECT_TRUE(queue.Replay(**recording).ok());
  Finish(queue);
}

TEST_P(DeviceSuite, AllIsWellAtTheEnd) { EXPECT_TRUE(device_->status().ok()); }

INSTANTIATE_TEST_SUITE_P(All, DeviceSuite,
                         testing::Values(Maker::kCpu, Maker::kEmulated, Maker::kGpu), MakerName);

}  // namespace
}  // namespace meshwright::device
