// One training step of a job on one device of this process: what the benchmarks time and take
// apart.
//
// Thread rule: one thread. Ownership: keeps the runtime and its token source.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "planner/plan.h"
#include "worker/runtime.h"

namespace meshwright::bench {

// Tokens from a fixed stream.
class RandomTokens final : public ops::TokenSource {
 public:
  explicit RandomTokens(int64_t vocabulary) : vocabulary_(vocabulary) {}
  Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override;

 private:
  const int64_t vocabulary_;
};

struct DeviceRunOptions {
  std::string job_file;
  std::vector<std::string> overrides;  // section.key=value
  int threads = 1;
  ops::NodeObserver* observer = nullptr;
  worker::GpuOptions gpus;  // of one GPU; none: a CPU device
};

// A job as planned for one device.
struct PlannedRun {
  planner::Plan plan;
  int64_t vocabulary = 0;
  uint64_t seed = 0;
  ir::DType compute_dtype = ir::DType::kF32;
};
// Errors: as of loading the job file and of the planner.
Result<PlannedRun> PlanRun(const DeviceRunOptions& options);

class DeviceRun {
 public:
  // Plans the job for one device and fills its weights.
  // Errors: as of PlanRun and of the runtime.
  static Result<std::unique_ptr<DeviceRun>> Start(const DeviceRunOptions& options);

  // Seconds of each step. record: what the device does in them is written down.
  Result<std::vector<double>> Step(int64_t count, bool record = false);
  // Of the last Step() that recorded.
  std::vector<ir::StepRecord> TakeRecorded() { return runtime_->TakeRecorded(); }

  const planner::Plan& plan() const { return plan_; }
  const ir::Program& step_program() const { return plan_.Of("step")[0]; }

 private:
  explicit DeviceRun(int64_t vocabulary) : tokens_(vocabulary) {}

  RandomTokens tokens_;
  planner::Plan plan_;
  std::unique_ptr<worker::JobRuntime> runtime_;
  int64_t next_step_ = 0;
};

}  // namespace meshwright::bench
