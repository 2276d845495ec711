// What tests of the NCCL fabric have in common: fabrics that do the same at once, a number on a
// device.
//
// Thread rule: as the house's.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/emulated/nccl_house.h"

namespace meshwright::collective::nccl_test {

using emulated::HouseOptions;
using emulated::NcclHouse;
using Fabrics = std::vector<std::unique_ptr<Fabric>>;
using HostDeadline = ::meshwright::Deadline;

// In a thread per process; results by process.
inline std::vector<Status> OnEach(int processes, const std::function<Status(int)>& body) {
  std::vector<Status> results(static_cast<size_t>(processes));
  std::vector<std::thread> threads;
  for (int i = 0; i < processes; ++i) {
    threads.emplace_back([&, i] { results[static_cast<size_t>(i)] = body(i); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline std::vector<Status> ConnectAll(Fabrics& fabrics) {
  return OnEach(static_cast<int>(fabrics.size()),
                [&](int i) { return fabrics[static_cast<size_t>(i)]->Connect(); });
}

inline void CloseAll(Fabrics& fabrics) {
  OnEach(static_cast<int>(fabrics.size()), [&](int i) {
    fabrics[static_cast<size_t>(i)].reset();
    return OkStatus();
  });
}

inline HouseOptions Ranks(int count) {
  HouseOptions options;
  for (int rank = 0; rank < count; ++rank) options.process_of_rank.push_back(rank);
  return options;
}

inline std::vector<int> Upto(int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

// A float on a rank's device.
class Number {
 public:
  Number(NcclHouse& house, int rank, float value)
      : queue_(house.collectives(rank)),
        memory_(house.device(rank).Allocate({ir::MemoryKind::kOther, 64}).value()) {
    EXPECT_TRUE(queue_.CopyIn(memory_->data(), &value, sizeof(value)).ok());
  }
  std::byte* data() { return memory_->data(); }
  Result<float> Read(Fabric& fabric) {
    MW_TRY(queue_.Finish(HostDeadline::After(20'000), [&] { return fabric.Poll(); }));
    MW_TRY(fabric.status());  // an abort empties the queue, too
    float value = 0;
    MW_TRY(queue_.CopyOut(&value, memory_->data(), sizeof(value)));
    return value;
  }

 private:
  device::Queue& queue_;
  std::unique_ptr<device::Memory> memory_;
};

inline Result<float> SumOnce(NcclHouse& house, Fabric& fabric, Group& group, int rank) {
  Number number(house, rank, static_cast<float>(rank + 1));
  MW_TRY(group.AllReduce(number.data(), 1, ir::DType::kF32, Reduction::kSum));
  return number.Read(fabric);
}

}  // namespace meshwright::collective::nccl_test
