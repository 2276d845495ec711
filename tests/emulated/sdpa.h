// EmulatedSdpa: the graphs of attention and its gradient that cuDNN gets (ops/cuda/sdpa_graph.h),
// computed node by node in an emulated stream (driver.h).
//
// Thread rule: thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "ops/cuda/sdpa.h"

namespace meshwright::emulated {

class EmulatedSdpa final : public ops::cuda::Sdpa {
 public:
  Result<const ops::cuda::SdpaPlan*> Plan(const ops::cuda::SdpaShape& shape) override;
  Status Run(const ops::cuda::SdpaPlan& plan, const ops::cuda::SdpaMemory& memory,
             device::cuda::StreamHandle stream) override;

  void RefuseGradients(bool refuse);
  // What every later Plan() answers.
  void FailPlans(Status status);
  int plans() const;
  int runs() const;

 private:
  mutable std::mutex mutex_;
  bool refuse_gradients_ = false;
  Status failure_;
  int runs_ = 0;
  std::map<ops::cuda::SdpaShape, std::unique_ptr<ops::cuda::SdpaPlan>> plans_;
};

}  // namespace meshwright::emulated
