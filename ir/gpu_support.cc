#include "ir/gpu_support.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::ir {

bool RunsOnGpus(Op op) {
  switch (op) {
    case Op::kConv2d:
    case Op::kConv2dGradInput:
    case Op::kConv2dGradKernel:
    case Op::kWindowArgmax:
    case Op::kAvgPool:
    case Op::kAvgPoolGrad:
    case Op::kPagedAttention:
      return false;
    default:
      return true;
  }
}

std::string WhyNotOnGpus(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (const ValueId output : node.outputs) {
      const DType dtype = graph.type(output).dtype;
      if (dtype == DType::kF64 || dtype == DType::kI64) {
        return fmt::format("GPUs do not compute in {}", DTypeName(dtype));
      }
    }
    if (!RunsOnGpus(node.op)) return fmt::format("GPUs have no kernel for {}", OpName(node.op));
    if (node.op == Op::kRotary && node.inputs.size() > 1) {
      return "GPUs have no rotary by positions that a program is told";
    }
    if (node.op == Op::kExpertSlots && node.inputs.size() > 1) {
      return "GPUs give experts room in the order of tokens, not of scores";
    }
    if (node.op == Op::kExpertSlots && node.attrs.Real("slots_factor") > 0) {
      return "kernels of GPUs cannot say that bounded slots are full; leave out "
             "model.expert_slots_factor";
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
