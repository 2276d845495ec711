#include "worker/machine_metrics.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/disk_metrics.h"
#include "base/mutex.h"
#include "device/cuda/plugin.h"
#include "worker/gpu_health.h"

namespace meshwright::worker {
namespace {

std::vector<GpuPlace> PlacesOf(const Gpus& gpus) {
  std::vector<GpuPlace> places;
  if (gpus.driver == nullptr) return places;
  const auto all = device::cuda::ListGpus(*gpus.driver);
  if (!all.has_value()) return places;
  for (size_t local = 0; local < gpus.indices.size(); ++local) {
    for (const device::cuda::Gpu& gpu : *all) {
      if (gpu.index != gpus.indices[local]) continue;
      places.push_back({static_cast<int>(local), gpu.description.pci_bus_id});
    }
  }
  return places;
}

// Scrapes may come at the same time.
class LockedHealth {
 public:
  explicit LockedHealth(std::unique_ptr<GpuHealth> health) : health_(std::move(health)) {}
  void Observe(MetricsRegistry& registry) {
    const MutexLock lock(mutex_);
    if (health_ != nullptr) health_->Observe(registry);
  }

 private:
  Mutex mutex_;
  const std::unique_ptr<GpuHealth> health_;
};

}  // namespace

void AddMachineMetrics(MetricsRegistry& registry, const WorkerDisks& disks, const Gpus& gpus) {
  const std::vector<GpuPlace> places = PlacesOf(gpus);
  const auto health = std::make_shared<LockedHealth>(
      places.empty() ? nullptr : GpuHealth::Open(FindNvml(), places));
  registry.AddRefresh([&registry, disks, health] {
    if (!disks.cache.empty()) SetDiskMetrics(registry, "cache", disks.cache);
    if (!disks.scratch.empty()) SetDiskMetrics(registry, "scratch", disks.scratch);
    health->Observe(registry);
  });
}

}  // namespace meshwright::worker
