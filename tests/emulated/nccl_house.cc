#include "tests/emulated/nccl_house.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::emulated {

NcclHouse::NcclHouse(HouseOptions options) : options_(std::move(options)) {
  const auto ranks = static_cast<int32_t>(options_.process_of_rank.size());
  driver_ = std::make_unique<EmulatedDriver>(EmulatedOptions{
      .devices = ranks, .memory_bytes = options_.memory_bytes, .seed = options_.seed});
  const int processes =
      1 + *std::max_element(options_.process_of_rank.begin(), options_.process_of_rank.end());
  for (int i = 0; i < processes; ++i) {
    libraries_.push_back(std::make_unique<EmulatedNccl>(network_));
    libraries_.back()->set_driver(*driver_);
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    devices_.push_back(
        device::cuda::CudaDevice::Make(*driver_, rank, {.name = fmt::format("cuda:{}", rank)})
            .value());
    queues_.push_back(devices_.back()->MakeQueue(true).value());
    pumped_.push_back(devices_.back()->MakeQueue(false).value());
  }
  pump_ = std::thread([this] { Pump(); });
}

NcclHouse::~NcclHouse() {
  stop_.store(true);
  pump_.join();
}

void NcclHouse::Pump() {
  while (!stop_.load()) {
    for (const auto& queue : pumped_) (void)driver_->QueryStream(queue->native());
    std::this_thread::yield();
  }
}

std::vector<int> NcclHouse::ranks_of(int process) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < options_.process_of_rank.size(); ++rank) {
    if (options_.process_of_rank[rank] == process) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

collective::FabricOptions NcclHouse::FabricOptionsOf(int process) const {
  collective::FabricOptions options;
  for (const int home : options_.process_of_rank) {
    options.members.push_back(
        {fmt::format("worker-{}", home), "", "host", 0x1000u + static_cast<uint64_t>(home)});
  }
  options.local_ranks = ranks_of(process);
  options.generation = MeshGeneration(7);
  return options;
}

Result<std::unique_ptr<collective::Fabric>> NcclHouse::MakeFabric(
    int process, collective::FabricOptions options) {
  std::vector<collective::LocalRank> ranks;
  for (const int rank : ranks_of(process)) {
    ranks.push_back({rank, &device(rank), &collectives(rank)});
  }
  return collective::MakeNcclFabric(std::move(options), std::move(ranks),
                                    {.library = library(process),
                                     .combiner = combiner_,
                                     .cuda_driver = 13000,
                                     .cuda_runtime = 13000,
                                     .timing = options_.timing});
}

std::vector<std::unique_ptr<collective::Fabric>> NcclHouse::MakeFabrics() {
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
  std::vector<collective::Fabric*> pointers;
  for (int i = 0; i < process_count(); ++i) {
    fabrics.push_back(MakeFabric(i, FabricOptionsOf(i)).value());
    pointers.push_back(fabrics.back().get());
  }
  (void)Introduce(pointers);
  return fabrics;
}

Status Introduce(const std::vector<collective::Fabric*>& fabrics) {
  std::vector<std::string> invitations;
  for (collective::Fabric* fabric : fabrics) {
    MW_ASSIGN_OR_RETURN(std::string text, fabric->Invitation());
    invitations.push_back(std::move(text));
  }
  for (collective::Fabric* fabric : fabrics) MW_TRY(fabric->Accept(invitations));
  return OkStatus();
}

}  // namespace meshwright::emulated
