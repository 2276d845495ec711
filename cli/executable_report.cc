// plan --stop-after=executable: the kernels of every executable with what they cost.
#include <fmt/format.h>

#include <set>
#include <string>

#include "cli/plan_report.h"
#include "ir/fused.h"
#include "ir/schema.h"

namespace meshwright::cli {
namespace {

struct Totals {
  int kernels = 0;
  ir::OpCost cost;
  double seconds = 0;
};

// "einsum bsd,df->bsf + add + gelu": the ops of a fused body in order.
std::string KernelName(const ir::Node& node) {
  const auto named = [](ir::Op op, const ir::Attrs& attrs) {
    const std::string equation = attrs.Str("equation");
    return std::string(ir::OpName(op)) + (equation.empty() ? "" : " " + equation);
  };
  if (node.op != ir::Op::kFused) return named(node.op, node.attrs);
  const Result<ir::FusedBody> body = ir::ParseFusedBody(node.attrs);
  std::string text;
  if (!body) return "fused";
  for (const ir::FusedStep& step : body->steps) {
    text += (text.empty() ? "" : " + ") + named(step.op, step.attrs);
  }
  return text;
}

std::string ResultNames(const ir::Graph& graph, const ir::Node& node) {
  std::string text;
  for (ValueId id : node.outputs) {
    text +=
        fmt::format("{}%{} {}", text.empty() ? "" : ", ", id.value(), graph.type(id).ToString());
  }
  return text;
}

std::string FormatKernels(const ir::Graph& graph, const Rates& rates, Totals& totals) {
  std::string text;
  for (const ir::Node& node : graph.nodes) {
    if (node.op == ir::Op::kInput) continue;
    const ir::OpCost cost = ir::CostOf(graph, node);
    const Rates own = RatesFor(graph, node, rates);
    const double seconds = RooflineSeconds(cost, own);
    ++totals.kernels;
    totals.cost.flops += cost.flops;
    totals.cost.bytes += cost.bytes;
    totals.seconds += seconds;
    const bool memory = cost.bytes / own.bytes_per_s > cost.flops / own.flops_per_s;
    text += fmt::format("  {:>10.2f} {:>9.2f} {:>10.1f}  {:<7} {} -> {}\n", cost.flops / 1e6,
                        cost.bytes / 1048576.0, seconds * 1e6, memory ? "memory" : "compute",
                        KernelName(node), ResultNames(graph, node));
  }
  return text;
}

}  // namespace

std::string FormatExecutables(const planner::Plan& plan, const mesh::Topology& topology) {
  const Rates rates = RatesOf(topology);
  std::string text = fmt::format(
      "roofline at {:.0f} GFLOP/s ({:.0f} of 16-bit operands) and {:.0f} GB/s per device; "
      "stages' first devices\n",
      rates.flops_per_s / 1e9, rates.flops_per_s * kHalfSpeedup / 1e9, rates.bytes_per_s / 1e9);
  std::set<int> stages;
  for (const ir::Program& program : plan.step) {
    if (!stages.insert(program.stage.value()).second) continue;
    for (const ir::Executable& executable : program.executables) {
      Totals totals;
      const std::string kernels = FormatKernels(*executable.graph, rates, totals);
      text += fmt::format(
          "\nexecutable {}: {} kernels, {:.3f} GFLOP, {:.1f} MiB moved, {:.3f} ms, {:.1f} MiB of "
          "workspace\n  {:>10} {:>9} {:>10}  {:<7} KERNEL -> RESULTS\n{}",
          executable.graph->name, totals.kernels, totals.cost.flops / 1e9,
          totals.cost.bytes / 1048576.0, totals.seconds * 1e3,
          static_cast<double>(ir::PlanWorkspace(*executable.graph).bytes) / 1048576.0, "MFLOP",
          "MiB", "us", "BOUND", kernels);
    }
  }
  return text;
}

}  // namespace meshwright::cli
