#include "worker/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a library of two GPUs says; the second one has no memory errors to count.
struct FakeNvml {
  unsigned temperature = 61;
  unsigned long long uncorrected = 0;
  unsigned long long throttle = 0;
  bool starts = true;
  int started = 0;
};
FakeNvml* fake_nvml = nullptr;

void* HandleOfGpu(size_t index) { return reinterpret_cast<void*>(index + 1); }

int FakeInit() {
  if (!fake_nvml->starts) return 9;  // the driver is not loaded
  ++fake_nvml->started;
  return 0;
}
int FakeShutdown() {
  --fake_nvml->started;
  return 0;
}
int FakeByBusId(const char* id, void** device) {
  if (std::strcmp(id, "0000:01:00.0") == 0) *device = HandleOfGpu(0);
  if (std::strcmp(id, "0000:02:00.0") == 0) *device = HandleOfGpu(1);
  return *device == nullptr ? 6 : 0;
}
int FakeTemperature(void* device, unsigned, unsigned* celsius) {
  *celsius = device == HandleOfGpu(0) ? fake_nvml->temperature : 40;
  return 0;
}
int FakePower(void*, unsigned* milliwatts) {
  *milliwatts = 350'500;
  return 0;
}
int FakeUse(void*, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = 97;
  gpu_and_memory[1] = 12;
  return 0;
}
int FakeMemory(void*, unsigned long long* total_free_used) {
  total_free_used[0] = 100;
  total_free_used[1] = 70;
  total_free_used[2] = 30;
  return 0;
}
int FakeErrors(void* device, unsigned type, unsigned, unsigned long long* count) {
  if (device != HandleOfGpu(0)) return 3;  // not supported
  *count = type == 1 ? fake_nvml->uncorrected : 0;
  return 0;
}
int FakeThrottle(void*, unsigned long long* reasons) {
  *reasons = fake_nvml->throttle;
  return 0;
}

SymbolLookup FakeSymbols(const std::string& without = "") {
  static const std::map<std::string, void*> symbols = {
      {"nvmlInit_v2", reinterpret_cast<void*>(&FakeInit)},
      {"nvmlShutdown", reinterpret_cast<void*>(&FakeShutdown)},
      {"nvmlDeviceGetHandleByPciBusId_v2", reinterpret_cast<void*>(&FakeByBusId)},
      {"nvmlDeviceGetTemperature", reinterpret_cast<void*>(&FakeTemperature)},
      {"nvmlDeviceGetPowerUsage", reinterpret_cast<void*>(&FakePower)},
      {"nvmlDeviceGetUtilizationRates", reinterpret_cast<void*>(&FakeUse)},
      {"nvmlDeviceGetMemoryInfo", reinterpret_cast<void*>(&FakeMemory)},
      {"nvmlDeviceGetTotalEccErrors", reinterpret_cast<void*>(&FakeErrors)},
      {"nvmlDeviceGetCurrentClocksThrottleReasons", reinterpret_cast<void*>(&FakeThrottle)},
  };
  return [without](const char* name) -> void* {
    const auto it = symbols.find(name);
    return it == symbols.end() || name == without ? nullptr : it->second;
  };
}

class GpuHealthTest : public ::testing::Test {
 protected:
  GpuHealthTest() { fake_nvml = &fake_; }
  ~GpuHealthTest() override { fake_nvml = nullptr; }

  FakeNvml fake_;
  MetricsRegistry registry_;
  const std::vector<GpuPlace> gpus_ = {
      {0, "0000:01:00.0"}, {1, "0000:02:00.0"}, {2, "0000:7f:00.0"}};
};

TEST_F(GpuHealthTest, EachGpuThatIsKnownHasItsQuantitiesInBaseUnits) {
  fake_.throttle = 0x44;
  const auto health = GpuHealth::Open(FakeSymbols(), gpus_);
  ASSERT_NE(health, nullptr);
  health->Observe(registry_);
  const std::string text = registry_.Serialize();
  for (const char* line : {"meshwright_gpu_temperature_celsius{device=\"0\"} 61\n",
                           "meshwright_gpu_temperature_celsius{device=\"1\"} 40\n",
                           "meshwright_gpu_power_watts{device=\"0\"} 350.5\n",
                           "meshwright_gpu_utilization_ratio{device=\"1\"} 0.97\n",
                           "meshwright_gpu_memory_used_bytes{device=\"0\"} 30\n",
                           "meshwright_gpu_memory_bytes{device=\"0\"} 100\n",
                           "meshwright_gpu_throttled{device=\"0\",reason=\"power_cap\"} 1\n",
                           "meshwright_gpu_throttled{device=\"0\",reason=\"hardware_thermal\"} 1\n",
                           "meshwright_gpu_throttled{device=\"0\",reason=\"power_brake\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("device=\"2\""))) << "NVML does not know it";
}

TEST_F(GpuHealthTest, WhatAGpuOrAVersionDoesNotHaveIsNotThere) {
  const auto health = GpuHealth::Open(FakeSymbols("nvmlDeviceGetPowerUsage"), gpus_);
  ASSERT_NE(health, nullptr);
  health->Observe(registry_);
  const std::string text = registry_.Serialize();
  EXPECT_THAT(text, Not(HasSubstr("_watts")));
  EXPECT_THAT(text, HasSubstr("meshwright_gpu_memory_errors_total{device=\"0\""));
  EXPECT_THAT(text, Not(HasSubstr("meshwright_gpu_memory_errors_total{device=\"1\"")));
}

TEST_F(GpuHealthTest, ErrorsAreCountedOnce) {
  fake_.uncorrected = 3;
  const auto health = GpuHealth::Open(FakeSymbols(), gpus_);
  health->Observe(registry_);
  health->Observe(registry_);
  const std::string name = "meshwright_gpu_memory_errors_total{device=\"0\",kind=\"uncorrected\"} ";
  EXPECT_THAT(registry_.Serialize(), HasSubstr(name + "3\n"));
  fake_.uncorrected = 5;
  health->Observe(registry_);
  EXPECT_THAT(registry_.Serialize(), HasSubstr(name + "5\n"));
}

TEST_F(GpuHealthTest, WithoutTheLibraryThereIsNone) {
  EXPECT_EQ(GpuHealth::Open(nullptr, gpus_), nullptr);
  EXPECT_EQ(GpuHealth::Open(FakeSymbols("nvmlDeviceGetHandleByPciBusId_v2"), gpus_), nullptr);
  fake_.starts = false;
  EXPECT_EQ(GpuHealth::Open(FakeSymbols(), gpus_), nullptr);
}

TEST_F(GpuHealthTest, TheLibraryIsLeftAtTheEnd) {
  { const auto health = GpuHealth::Open(FakeSymbols(), gpus_); }
  EXPECT_EQ(fake_.started, 0);
}

}  // namespace
}  // namespace meshwright::worker
