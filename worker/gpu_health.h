// GPU health by NVML, the library that comes with NVIDIA's driver: temperature, power, use, memory,
// memory errors and why clocks are low.
//
// NVML is looked for when a worker with GPUs starts. Without it, or where it does not know a GPU or
// a quantity, the metric is not there: nothing else depends on it. GPUs are found by their PCI bus
// ids, since NVML counts them in another order than CUDA does.
//
// Thread rule: Observe by one thread at a time. Ownership: the registry outlives it.
// Source: NVML API reference of CUDA 12; the library is stable by symbol name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"

namespace meshwright::worker {

struct GpuPlace {
  int device = 0;  // local, as in the other metrics of devices
  std::string pci_bus_id;
};

// Where a function of a library is; null: it has none of that name.
using SymbolLookup = std::function<void*(const char* name)>;

// Of libnvidia-ml.so.1, which then stays loaded; empty: there is none.
SymbolLookup FindNvml();

class GpuHealth {
 public:
  // Null: NVML does not start, or lacks what every version of it has.
  static std::unique_ptr<GpuHealth> Open(const SymbolLookup& nvml,
                                         const std::vector<GpuPlace>& gpus);
  ~GpuHealth();
  GpuHealth(const GpuHealth&) = delete;
  GpuHealth& operator=(const GpuHealth&) = delete;

  // Sets the series of all GPUs; one that has ceased to answer keeps its last values.
  void Observe(MetricsRegistry& registry);

 private:
  struct Api;
  struct Gpu;
  explicit GpuHealth(std::unique_ptr<Api> api);
  void ObserveErrors(MetricsRegistry& registry, Gpu& gpu);

  std::unique_ptr<Api> api_;
  std::vector<Gpu> gpus_;
};

}  // namespace meshwright::worker
