#include "ir/gpu_support.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::ir {

std::string WhyNotOnGpus(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (const ValueId output : node.outputs) {
      if (graph.type(output).dtype == DType::kF64) return "GPUs do not compute in f64";
    }
    if (node.op != Op::kAttention && node.op != Op::kAttentionQkv) continue;
    const int64_t head = graph.type(node.inputs[0]).dims.back();
    if (head <= kMostGpuHeadElements) continue;
    return fmt::format("heads of attention have {} elements, on GPUs at most {}", head,
                       kMostGpuHeadElements);
  }
  return "";
}

}  // namespace meshwright::ir
