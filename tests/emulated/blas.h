// EmulatedBlas: matrix products as plain loops in an emulated stream (driver.h).
//
// Sums are in double, so that a result is the exact product rounded once to f32 and once more to
// c's type. It refuses what cuBLASLt refuses: leading dims smaller than rows, addresses that are
// not aligned as promised, epilogues with an aux whose rows are not whole 8 elements; and, so that
// tests see the other way, any epilogue at all when asked to.
//
// Thread rule: thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "ops/cuda/blas.h"

namespace meshwright::emulated {

class EmulatedBlas final : public ops::cuda::Blas {
 public:
  Result<const ops::cuda::BlasPlan*> Plan(const ops::cuda::BlasProduct& product) override;
  Status Run(const ops::cuda::BlasPlan& plan, const ops::cuda::BlasMemory& memory,
             device::cuda::StreamHandle stream) override;

  void RefuseEpilogues(bool refuse);
  // How many products have been planned, and how many of them with an epilogue.
  int plans() const;
  int epilogues() const;
  int runs() const;

 private:
  mutable std::mutex mutex_;
  bool refuse_epilogues_ = false;
  int runs_ = 0;
  std::map<ops::cuda::BlasProduct, std::unique_ptr<ops::cuda::BlasPlan>> plans_;
};

}  // namespace meshwright::emulated
