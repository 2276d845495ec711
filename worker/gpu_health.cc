#include "worker/gpu_health.h"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace meshwright::worker {
namespace {

constexpr int kNvmlOk = 0;
constexpr unsigned kGpuSensor = 0;
enum ErrorType : unsigned { kCorrected = 0, kUncorrected = 1 };
constexpr unsigned kSinceBoot = 0;  // of the counters of errors

using NvmlDevice = void*;
// NVML's structs of one type of numbers are read as arrays of it.
using NvmlUse = std::array<unsigned, 2>;               // of GPU and memory, per cent
using NvmlMemory = std::array<unsigned long long, 3>;  // total, free, used

// Why a GPU's clocks are below what it could do; those that are of the GPU and not of its work.
struct ThrottleReason {
  const char* name;
  unsigned long long bit;
};
constexpr ThrottleReason kThrottleReasons[] = {{"power_cap", 0x4},
                                               {"hardware_slowdown", 0x8},
                                               {"software_thermal", 0x20},
                                               {"hardware_thermal", 0x40},
                                               {"power_brake", 0x80}};

template <typename Function>
void BindSymbol(const SymbolLookup& nvml, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(nvml(name));
}

}  // namespace

struct GpuHealth::Api {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_bus_id)(const char*, NvmlDevice*) = nullptr;
  // Null where this version has none.
  int (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;
  int (*power_limit)(NvmlDevice, unsigned*) = nullptr;
  int (*use)(NvmlDevice, unsigned*) = nullptr;
  int (*memory)(NvmlDevice, unsigned long long*) = nullptr;
  int (*errors)(NvmlDevice, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*throttle)(NvmlDevice, unsigned long long*) = nullptr;
};

struct GpuHealth::Gpu {
  std::string device;
  NvmlDevice handle = nullptr;
  double errors[2] = {0, 0};  // that are counted already, by ErrorType
};

SymbolLookup FindNvml() {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  return [library](const char* name) { return ::dlsym(library, name); };
}

GpuHealth::GpuHealth(std::unique_ptr<Api> api) : api_(std::move(api)) {}

GpuHealth::~GpuHealth() { (void)api_->shutdown(); }

std::unique_ptr<GpuHealth> GpuHealth::Open(const SymbolLookup& nvml,
                                           const std::vector<GpuPlace>& gpus) {
  if (!nvml) return nullptr;
  auto api = std::make_unique<Api>();
  BindSymbol(nvml, "nvmlInit_v2", api->init);
  BindSymbol(nvml, "nvmlShutdown", api->shutdown);
  BindSymbol(nvml, "nvmlDeviceGetHandleByPciBusId_v2", api->by_bus_id);
  BindSymbol(nvml, "nvmlDeviceGetTemperature", api->temperature);
  BindSymbol(nvml, "nvmlDeviceGetPowerUsage", api->power);
  BindSymbol(nvml, "nvmlDeviceGetEnforcedPowerLimit", api->power_limit);
  BindSymbol(nvml, "nvmlDeviceGetUtilizationRates", api->use);
  BindSymbol(nvml, "nvmlDeviceGetMemoryInfo", api->memory);
  BindSymbol(nvml, "nvmlDeviceGetTotalEccErrors", api->errors);
  BindSymbol(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", api->throttle);
  if (api->init == nullptr || api->shutdown == nullptr || api->by_bus_id == nullptr ||
      api->init() != kNvmlOk) {
    return nullptr;
  }
  std::unique_ptr<GpuHealth> health(new GpuHealth(std::move(api)));
  for (const GpuPlace& place : gpus) {
    Gpu gpu;
    gpu.device = std::to_string(place.device);
    if (health->api_->by_bus_id(place.pci_bus_id.c_str(), &gpu.handle) != kNvmlOk) continue;
    health->gpus_.push_back(std::move(gpu));
  }
  return health;
}

void GpuHealth::Observe(MetricsRegistry& registry) {
  for (Gpu& gpu : gpus_) {
    const MetricLabels labels = {{"device", gpu.device}};
    const auto set = [&](const char* name, const char* help, double value) {
      registry.MakeGauge(name, help, labels).Set(value);
    };
    unsigned value = 0;
    if (api_->temperature != nullptr &&
        api_->temperature(gpu.handle, kGpuSensor, &value) == kNvmlOk) {
      set("meshwright_gpu_temperature_celsius", "Temperature of a GPU.", value);
    }
    if (api_->power != nullptr && api_->power(gpu.handle, &value) == kNvmlOk) {
      set("meshwright_gpu_power_watts", "Power that a GPU takes.", value / 1e3);
    }
    if (api_->power_limit != nullptr && api_->power_limit(gpu.handle, &value) == kNvmlOk) {
      set("meshwright_gpu_power_limit_watts", "Power that a GPU may take.", value / 1e3);
    }
    NvmlUse use = {};
    if (api_->use != nullptr && api_->use(gpu.handle, use.data()) == kNvmlOk) {
      set("meshwright_gpu_utilization_ratio", "Share of the time in which a GPU ran kernels.",
          use[0] / 1e2);
    }
    NvmlMemory memory = {};
    if (api_->memory != nullptr && api_->memory(gpu.handle, memory.data()) == kNvmlOk) {
      set("meshwright_gpu_memory_used_bytes", "Memory of a GPU that all processes hold.",
          static_cast<double>(memory[2]));
      set("meshwright_gpu_memory_bytes", "Memory of a GPU.", static_cast<double>(memory[0]));
    }
    ObserveErrors(registry, gpu);
    unsigned long long reasons = 0;
    if (api_->throttle == nullptr || api_->throttle(gpu.handle, &reasons) != kNvmlOk) continue;
    for (const ThrottleReason& reason : kThrottleReasons) {
      registry
          .MakeGauge("meshwright_gpu_throttled", "1 while a GPU's clocks are low for the reason.",
                     {{"device", gpu.device}, {"reason", reason.name}})
          .Set((reasons & reason.bit) != 0 ? 1 : 0);
    }
  }
}

void GpuHealth::ObserveErrors(MetricsRegistry& registry, Gpu& gpu) {
  if (api_->errors == nullptr) return;
  for (const auto& [type, kind] :
       {std::pair{kCorrected, "corrected"}, {kUncorrected, "uncorrected"}}) {
    unsigned long long count = 0;
    if (api_->errors(gpu.handle, type, kSinceBoot, &count) != kNvmlOk) continue;
    Counter errors = registry.MakeCounter("meshwright_gpu_memory_errors_total",
                                          "Errors of a GPU's memory since the machine started.",
                                          {{"device", gpu.device}, {"kind", kind}});
    errors.Increment(static_cast<double>(count) - gpu.errors[type]);
    gpu.errors[type] = static_cast<double>(count);
  }
}

}  // namespace meshwright::worker
