// A whole mesh as threads of this process: plan, load, run, and read logical tensors back.
//
// Thread rule: one thread at a time; the devices' own threads are the runtime's (worker/runtime.h).
// Errors: those of planning, loading and running.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "ir/job.h"
#include "planner/plan.h"
#include "worker/runtime.h"

namespace meshwright::rehearsal {

// Tokens drawn from a fixed stream: sample n, position i is a function of (seed, n, i) alone.
class SyntheticTokens : public ops::TokenSource {
 public:
  explicit SyntheticTokens(int vocabulary, uint64_t seed = 7)
      : vocabulary_(vocabulary), seed_(seed) {}
  Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override;

 private:
  int vocabulary_;
  uint64_t seed_;
};

// A logical tensor, converted to double.
struct LogicalTensor {
  ir::Dims dims;
  std::vector<double> values;
  friend bool operator==(const LogicalTensor&, const LogicalTensor&) = default;
};

// What one device holds of a persistent tensor, converted to double.
struct StateBlock {
  int rank = 0;
  std::string name;
  ir::Dims dims;  // of the whole tensor
  ir::Box box;
  std::vector<double> values;
};

// Calls `visit` for every element of a box, with its number in the box and in the whole tensor.
void ForEachElement(const ir::Dims& dims, const ir::Box& box,
                    const std::function<void(size_t in_box, size_t in_tensor)>& visit);

// The tensors whose blocks these are. Errors: kInternal: replicas that are not equal bit by bit, an
// element that is in no block.
Result<std::map<std::string, LogicalTensor>> Assemble(const std::vector<StateBlock>& blocks);

class VirtualCluster {
 public:
  // Plans `job` on `devices` local devices, loads it and runs the init programs. memory_bytes: of
  // each device; 0: any.
  static Result<std::unique_ptr<VirtualCluster>> Start(const ir::JobRequest& job, int devices,
                                                       ops::FeedSource* feed,
                                                       ops::Backend backend = ops::Backend::kCpu,
                                                       int64_t memory_bytes = 0);

  // As Start(), with a plan made elsewhere; without `eval` programs it cannot validate.
  static Result<std::unique_ptr<VirtualCluster>> StartPlan(planner::Plan plan, uint64_t seed,
                                                           ops::FeedSource* feed,
                                                           ops::Backend backend,
                                                           const worker::GpuOptions& gpus = {},
                                                           ops::NodeObserver* observer = nullptr);

  const planner::Plan& plan() const { return plan_; }
  worker::JobRuntime& runtime() { return *runtime_; }

  // Runs training steps; reports of the reporting device.
  Result<std::vector<worker::StepReport>> Train(int64_t first_step, int64_t count);
  // Validation loss: sum of loss_sum / sum of count over `batches`.
  Result<double> Validate(int64_t batches);
  // All blocks of weights and optimizer state, by device.
  Result<std::vector<StateBlock>> ReadState();
  // Every weight and optimizer tensor by name, assembled from the devices; replicas must be equal
  // bit by bit.
  Result<std::map<std::string, LogicalTensor>> Gather();
  // Bytes and calls summed over devices, by axes and kind, since the start.
  std::map<std::pair<std::string, collective::Kind>, collective::Counters> Traffic() const;

 private:
  planner::Plan plan_;
  std::optional<TempDir> scratch_;  // where the plan has something on a disk
  std::unique_ptr<worker::JobRuntime> runtime_;
};

// Largest |a - b| over all tensors, relative to the largest entry of the tensor in `a`; infinity
// when names or shapes differ.
double LargestDifference(const std::map<std::string, LogicalTensor>& a,
                         const std::map<std::string, LogicalTensor>& b,
                         std::string* where = nullptr);

}  // namespace meshwright::rehearsal
