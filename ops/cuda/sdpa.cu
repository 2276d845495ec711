// Attention by cuDNN.
#include "ops/cuda/sdpa.h"

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/plugin_tools.h"
#include "ops/cuda/sdpa_plan.cuh"
#include "ops/cuda/workspace.h"

namespace meshwright::ops::cuda {
namespace {

// The library on one GPU. One call at a time: a handle has one stream.
struct OnDevice {
  cudnnHandle_t handle MW_GUARDED_BY(mutex) = nullptr;
  Mutex mutex;
};

class CudnnSdpaPlan final : public SdpaPlan {
 public:
  CudnnSdpaPlan(OnDevice& device, const SdpaShape& shape, CudnnPlan plan)
      : device_(device), shape_(shape), plan_(std::move(plan)) {
    std::array<bool, kSdpaNames> named{};
    for (const GraphTensor& tensor : MakeSdpaGraph(shape).tensors) {
      named[static_cast<size_t>(tensor.name)] = true;
    }
    for (int name = 1; name < kSdpaNames; ++name) {
      if (named[static_cast<size_t>(name)]) ids_.push_back(name);
    }
  }

  int64_t workspace_bytes() const override { return WorkspaceBytes(plan_.workspace_bytes); }

  Status Run(const SdpaMemory& memory, cudaStream_t stream) const {
    std::array<float, kSdpaNames> numbers{};
    std::vector<void*> data;
    for (const int64_t id : ids_) {
      const auto name = static_cast<SdpaName>(id);
      float& number = numbers[static_cast<size_t>(id)];
      number = ValueOf(name, shape_);
      data.push_back(name >= SdpaName::kScale ? &number : PlaceOf(name, memory));
    }
    const MutexLock lock(device_.mutex);
    MW_TRY(CudnnStatus(cudnnSetStream(device_.handle, stream), "cudnnSetStream"));
    return plan_.Run(device_.handle, ids_, data, WorkspaceAt(memory.workspace));
  }

 private:
  OnDevice& device_;
  const SdpaShape shape_;
  const CudnnPlan plan_;
  std::vector<int64_t> ids_;
};

class CudnnSdpa final : public Sdpa {
 public:
  // Handles are not destroyed: at the end of a process the runtime may be gone before them.
  Result<const SdpaPlan*> Plan(const SdpaShape& shape) override {
    if (!MayRunSdpa(shape)) return Fail(Unimplemented("cuDNN: a shape that it does not take"));
    int device = 0;
    if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) {
      return Fail(Internal(std::string("cudaGetDevice: ") + cudaGetErrorName(code)));
    }
    const MutexLock lock(mutex_);
    const auto [place, is_new] = plans_.try_emplace({device, shape});
    Entry& entry = place->second;
    if (is_new) entry = Make(device, shape);
    if (entry.status.ok()) return entry.plan.get();
    Status failed = entry.status;
    if (failed.code() != StatusCode::kUnimplemented) plans_.erase(place);  // may go another time
    return Fail(std::move(failed));
  }

  Status Run(const SdpaPlan& plan, const SdpaMemory& memory,
             device::cuda::StreamHandle stream) override {
    return static_cast<const CudnnSdpaPlan&>(plan).Run(memory, static_cast<cudaStream_t>(stream));
  }

 private:
  // What the library refuses is refused once.
  struct Entry {
    std::unique_ptr<const SdpaPlan> plan;
    Status status;
  };

  Entry Make(int index, const SdpaShape& shape) MW_REQUIRES(mutex_) {
    OnDevice& device = devices_[index];
    const MutexLock lock(device.mutex);
    if (device.handle == nullptr) {
      Status status = CudnnStatus(cudnnCreate(&device.handle), "cudnnCreate");
      if (!status.ok()) return {nullptr, std::move(status)};
    }
    Result<CudnnPlan> plan = PlanSdpa(shape, {device.handle, nullptr});
    if (!plan) return {nullptr, plan.error()};
    return {std::make_unique<CudnnSdpaPlan>(device, shape, *std::move(plan)), Status()};
  }

  Mutex mutex_;
  std::map<int, OnDevice> devices_ MW_GUARDED_BY(mutex_);  // by index; they stay in place
  std::map<std::pair<int, SdpaShape>, Entry> plans_ MW_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Sdpa> MakeCudnnSdpa() { return std::make_unique<CudnnSdpa>(); }

}  // namespace meshwright::ops::cuda
