#include "search/least_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ir/averages.h"
#include "ir/param_groups.h"
#include "planner/resolve_layout.h"
#include "search/open_choices.h"

namespace meshwright::search {
namespace {

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
  const int64_t states = job.optimizer.name == "adamw" ? 2 : 1;
  int64_t weights = 0;
  int64_t optimizer = 0;
  int64_t gradients = 0;
  int64_t narrow = 0;  // copies of weights in the type that microbatches compute in
  const ir::Graph& graph = job.main().graph;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::TensorType& type = graph.type(graph.node(id).outputs[0]);
    const ir::DType kept = type.dtype == ir::DType::kF64 ? ir::DType::kF64 : ir::DType::kF32;
    // Gradients may wait in the type that the loss is computed in.
    const int64_t gradient_bytes =
        std::min(ir::DTypeBytes(type.dtype), ir::DTypeBytes(job.train.compute_dtype));
    weights += type.bytes();
    if (ir::IsFrozen(graph.node(id))) continue;
    if (graph.node(id).attrs.Has(ir::kAverageAttr)) optimizer += type.bytes();
    optimizer += states * type.elements() * ir::DTypeBytes(kept);
    gradients += type.elements() * gradient_bytes;
    narrow += type.elements() * gradient_bytes;
  }
  const auto is_near = [](const std::string& memory) { return memory == "device"; };
  if (!is_near(job.parallel.weights_memory)) weights = narrow = 0;
  if (!is_near(job.parallel.optimizer_memory)) optimizer = 0;
  if (!is_near(job.parallel.gradients_memory)) gradients = 0;
  if (job.trained() == nullptr) return weights;
  const int64_t zero = job.parallel.zero;
  const bool open_experts = job.parallel.expert == 0 && CommonExperts(job) > 1;
  if (job.parallel.data == 0 || zero < 0 || open_experts) return weights + optimizer + gradients;
  // Replicas that share experts have as many copies of these fewer; other weights have more.
  const int64_t copies =
      std::max<int64_t>(1, job.parallel.data / std::max<int64_t>(1, job.parallel.expert));
  // Weights of which replicas read narrow copies are there once from the first stage on.
  const int64_t replicated =
      zero < 1 ? weights * copies : std::min(weights * copies, weights + narrow * copies);
  return (zero < 3 ? replicated : weights) + optimizer * (zero < 1 ? copies : 1) +
         gradients * (zero < 2 ? copies : 1);
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
  return ResourceExhausted(fmt::format(
      "no layout fits: weights, gradients and optimizer state alone are {}, the {} devices have {} "
      "together; the job needs at least {:.0f} devices of this memory, or {} on each of these{}",
      FormatBytes(needed), topology.devices.size(), FormatBytes(there),
      std::ceil(missing * devices),
      FormatBytes(static_cast<int64_t>(std::ceil(static_cast<double>(needed) / devices))),
      HostMemoryText(job, there)));
}

}  // namespace meshwright::search
