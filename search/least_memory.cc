#include "search/least_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "ir/averages.h"
#include "ir/factored.h"
#include "ir/param_groups.h"
#include "planner/resolve_layout.h"
#include "search/open_choices.h"

namespace meshwright::search {
namespace {

// Of all devices together, each once.
struct JobBytes {
  int64_t weights = 0;
  int64_t frozen = 0;  // of the weights
  int64_t optimizer = 0;
  int64_t gradients = 0;
  int64_t narrow = 0;      // copies of weights in the type that microbatches compute in
  int64_t multiplied = 0;  // of these, what products read, forward and backward
};

// What the optimizer remembers of one param.
int64_t OptimizerBytes(const ir::OptimizerSpec& optimizer, const ir::Node& param,
                       const ir::TensorType& type) {
  const bool wide = type.dtype == ir::DType::kF64;
  if (optimizer.name == "adafactor") {
    const Result<ir::Factored> factored = ir::FactoredOf(param, type);
    if (!factored.has_value()) return 0;  // a plan says why it has none
    const ir::DType kept = wide ? ir::DType::kF64 : ir::DType::kF32;
    return ir::TensorType{kept, factored->RowsOf(type.dims)}.bytes() +
           ir::TensorType{kept, factored->ColumnsOf(type.dims)}.bytes();
  }
  const ir::DType kept = wide ? ir::DType::kF64 : optimizer.moments_dtype;
  return (optimizer.name == "adamw" ? 2 : 1) * type.elements() * ir::DTypeBytes(kept);
}

JobBytes JobBytesOf(const ir::JobRequest& job) {
  JobBytes sum;
  const ir::Graph& graph = job.main().graph;
  std::set<ValueId> multiplied;
  for (const ir::Node& node : graph.nodes) {
    if (node.op != ir::Op::kEinsum) continue;
    for (ValueId input : node.inputs) {
      while (graph.producer(input).op == ir::Op::kCast) input = graph.producer(input).inputs[0];
      multiplied.insert(input);
    }
  }
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = graph.node(id);
    const ir::TensorType& type = graph.type(param.outputs[0]);
    sum.weights += type.bytes();
    if (ir::IsFrozen(param)) {
      sum.frozen += type.bytes();
      continue;
    }
    // Gradients may wait in the type that the loss is computed in.
    const int64_t narrow = type.elements() * std::min(ir::DTypeBytes(type.dtype),
                                                      ir::DTypeBytes(job.train.compute_dtype));
    if (param.attrs.Has(ir::kAverageAttr)) sum.optimizer += type.bytes();
    sum.optimizer += OptimizerBytes(job.optimizer, param, type);
    sum.gradients += narrow;
    sum.narrow += narrow;
    if (multiplied.contains(param.outputs[0])) sum.multiplied += narrow;
  }
  return sum;
}

// What the memory of the hosts would change; empty: nothing.
std::string HostMemoryText(const ir::JobRequest& job, int64_t there) {
  ir::JobRequest with_host = job;
  std::string keys;
  for (const planner::MemoryPin& pin : planner::kMemoryPins) {
    const bool counts = pin.memory != &ir::ParallelSpec::activations_memory;
    if (!counts || job.parallel.*pin.memory != "device") continue;
    with_host.parallel.*pin.memory = "host";
    keys += fmt::format("{}parallelism.{}_memory = \"host\"", keys.empty() ? "" : ", ", pin.kind);
    if (LeastStateBytes(with_host) <= there) break;
  }
  const int64_t less = LeastStateBytes(job) - LeastStateBytes(with_host);
  if (less == 0) return "";
  return fmt::format(". Of it {} can be in the memory of the hosts: {}", FormatBytes(less), keys);
}

}  // namespace

int64_t LeastStateBytes(const ir::JobRequest& job) {
  const ir::ParallelSpec& parallel = job.parallel;
  JobBytes sum = JobBytesOf(job);
  const auto is_near = [](const std::string& memory) { return memory == "device"; };
  // What the host may renew is in its memory: copies of weights come, and stay while there is a
  // backward to read them, and a gradient goes as soon as it is made.
  if (parallel.host_update != 0 && !is_near(parallel.optimizer_memory)) {
    sum.weights = sum.frozen + sum.multiplied;
    sum.gradients = 0;
  }
  if (!is_near(parallel.weights_memory)) sum.weights = sum.narrow = 0;
  if (!is_near(parallel.optimizer_memory)) sum.optimizer = 0;
  if (!is_near(parallel.gradients_memory)) sum.gradients = 0;
  if (job.trained() == nullptr) return sum.weights;
  const int64_t zero = parallel.zero;
  const bool open_experts = parallel.expert == 0 && CommonExperts(job) > 1;
  if (parallel.data == 0 || zero < 0 || open_experts) {
    return sum.weights + sum.optimizer + sum.gradients;
  }
  // Replicas that share experts have as many copies of these fewer; other weights have more.
  const int64_t copies =
      std::max<int64_t>(1, parallel.data / std::max<int64_t>(1, parallel.expert));
  // Weights of which replicas read narrow copies are there once from the first stage on.
  const int64_t replicated =
      zero < 1 ? sum.weights * copies
               : std::min(sum.weights * copies, sum.weights + sum.narrow * copies);
  return (zero < 3 ? replicated : sum.weights) + sum.optimizer * (zero < 1 ? copies : 1) +
         sum.gradients * (zero < 2 ? copies : 1);
}

Status CheckLeastMemory(const ir::JobRequest& job, const mesh::Topology& topology) {
  int64_t there = 0;
  for (const mesh::Device& device : topology.devices) {
    if (device.memory_bytes == 0) return OkStatus();
    there += device.memory_bytes;
  }
  const int64_t needed = LeastStateBytes(job);
  if (needed <= there) return OkStatus();
  const auto devices = static_cast<double>(topology.devices.size());
  const double missing = static_cast<double>(needed) / static_cast<double>(there);
  const bool alike = FormatBytes(needed) == FormatBytes(there);
  const auto text = [&](int64_t bytes) {
    return alike ? FormatCount(bytes) + " bytes" : FormatBytes(bytes);
  };
  return ResourceExhausted(fmt::format(
      "no layout fits: weights, gradients and optimizer state alone are {}, the {} devices have {} "
      "together; the job needs at least {:.0f} devices of this memory, or {} on each of these{}",
      text(needed), topology.devices.size(), text(there), std::ceil(missing * devices),
      text(static_cast<int64_t>(std::ceil(static_cast<double>(needed) / devices))),
      HostMemoryText(job, there)));
}

}  // namespace meshwright::search
