#include "planner/shared_cores.h"

#include <algorithm>

#include "base/check.h"

namespace meshwright::planner {

double SharedCores::Rate() const {
  return threads_ <= cores_ ? 1.0 : static_cast<double>(cores_) / threads_;
}

void SharedCores::AdvanceTo(double now_s) {
  virtual_s_ += (now_s - now_s_) * Rate();
  now_s_ = now_s;
}

void SharedCores::Begin(size_t device, double now_s, double work_s, int threads) {
  MW_CHECK(work_s >= 0 && threads >= 1) << work_s << " s on " << threads << " threads";
  AdvanceTo(now_s);
  jobs_.insert({virtual_s_ + work_s, device, threads});
  threads_ += threads;
}

std::optional<double> SharedCores::NextEnd() const {
  if (jobs_.empty()) return std::nullopt;
  return now_s_ + std::max(0.0, jobs_.begin()->end_virtual_s - virtual_s_) / Rate();
}

std::vector<size_t> SharedCores::Finish(double now_s) {
  AdvanceTo(now_s);
  std::vector<size_t> done;
  if (jobs_.empty()) return done;
  // The clock is a sum of products: it meets the end of a job up to rounding only.
  virtual_s_ = std::max(virtual_s_, jobs_.begin()->end_virtual_s);
  while (!jobs_.empty() && jobs_.begin()->end_virtual_s <= virtual_s_) {
    done.push_back(jobs_.begin()->device);
    threads_ -= jobs_.begin()->threads;
    MW_CHECK(threads_ >= 0) << "more threads ended than began";
    jobs_.erase(jobs_.begin());
  }
  return done;
}

}  // namespace meshwright::planner
