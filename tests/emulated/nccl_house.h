// NcclHouse: the processes of one mesh whose ranks compute on emulated GPUs and meet in the
// emulated NCCL. Everything is in this process; a "process" of the mesh has a library and a fabric.
//
// A thread asks all devices for their state all the time, as real ones go on by themselves.
//
// Thread rule: made and destroyed by the test's thread; the accessors from any. Ownership: owns
// everything; fabrics must be gone before it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/nccl/fabric.h"
#include "device/cuda/device.h"
#include "tests/emulated/driver.h"
#include "tests/emulated/nccl.h"

namespace meshwright::emulated {

struct HouseOptions {
  std::vector<int> process_of_rank;
  uint64_t seed = 1;
  nccl::Timing timing = {};
  int64_t memory_bytes = int64_t{64} << 20;  // of each device
};

class NcclHouse {
 public:
  explicit NcclHouse(HouseOptions options);
  ~NcclHouse();

  int process_count() const { return static_cast<int>(libraries_.size()); }
  std::vector<int> ranks_of(int process) const;
  // Members "worker-N", this process's ranks, generous timeouts.
  collective::FabricOptions FabricOptionsOf(int process) const;
  Result<std::unique_ptr<collective::Fabric>> MakeFabric(int process,
                                                         collective::FabricOptions options);
  // A fabric per process, which have accepted each other's invitations.
  std::vector<std::unique_ptr<collective::Fabric>> MakeFabrics();

  EmulatedNetwork& network() { return network_; }
  EmulatedDriver& driver() { return *driver_; }
  EmulatedNccl& library(int process) { return *libraries_[static_cast<size_t>(process)]; }
  device::Device& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  device::Queue& collectives(int rank) { return *queues_[static_cast<size_t>(rank)]; }

 private:
  void Pump();

  const HouseOptions options_;
  EmulatedNetwork network_;
  std::unique_ptr<EmulatedDriver> driver_;
  EmulatedCombiner combiner_;
  std::vector<std::unique_ptr<EmulatedNccl>> libraries_;
  std::vector<std::unique_ptr<device::cuda::CudaDevice>> devices_;
  std::vector<std::unique_ptr<device::Queue>> queues_;
  std::vector<std::unique_ptr<device::Queue>> pumped_;
  std::atomic<bool> stop_{false};
  std::thread pump_;
};

// Accepts what all of them give. The first error.
Status Introduce(const std::vector<collective::Fabric*>& fabrics);

}  // namespace meshwright::emulated
