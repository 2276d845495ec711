// plan --stop-after=executable: the kernels of every executable with what they cost.
#include <fmt/format.h>

#include <set>
#include <string>

#include "ir/fused.h"
#include "ir/schema.h"
#include "planner/layout.h"
#include "report/plan_report.h"

namespace meshwright::report {
namespace {

struct Totals {
  int kernels = 0;
  ir::OpCost cost;
  double seconds = 0;
};

std::string ResultNames(const ir::Graph& graph, const ir::Node& node) {
  std::string text;
  for (ValueId id : node.outputs) {
    text +=
        fmt::format("{}%{} {}", text.empty() ? "" : ", ", id.value(), graph.type(id).ToString());
  }
  return text;
}

// Collectives depend on the device's group: their seconds are in the forecast.
std::string FormatKernels(const ir::Graph& graph, const planner::CostModel& model, int device,
                          Totals& totals) {
  const mesh::DeviceProfile& profile = model.ProfileOf(device);
  std::string text;
  for (const ir::Node& node : graph.nodes) {
    if (node.op == ir::Op::kInput) continue;
    const ir::OpCost cost = ir::CostOf(graph, node);
    const bool is_collective = planner::IsCollective(node.op);
    const planner::NodeWork work =
        is_collective ? planner::NodeWork{.is_free = true} : planner::WorkOf(graph, node);
    const double seconds = model.NodeSeconds(work, device);
    ++totals.kernels;
    totals.cost.flops += cost.flops;
    totals.cost.bytes += cost.bytes;
    totals.seconds += seconds;
    const double memory_s = work.bytes / profile.Rates(work.lead).bytes_per_s;
    const char* const bound = is_collective                            ? "links"
                              : work.is_free                           ? "-"
                              : seconds <= memory_s + profile.launch_s ? "memory"
                                                                       : "compute";
    text += fmt::format("  {:>10.2f} {:>9.2f} {:>10.1f}  {:<7} {} -> {}\n", cost.flops / 1e6,
                        cost.bytes / 1048576.0, seconds * 1e6, bound, KernelName(node),
                        ResultNames(graph, node));
  }
  return text;
}

std::string FormatRoofs(const mesh::DeviceProfile& profile, const std::string& device) {
  return fmt::format("\ndevice {}: {}, {:.0f} GFLOP/s ({:.0f} of bf16 operands) and {:.0f} GB/s\n",
                     device, profile.name, profile.PeakOf(ir::DType::kF32) / 1e9,
                     profile.PeakOf(ir::DType::kBF16) / 1e9,
                     profile.Rates(mesh::KernelClass::kElementwise).bytes_per_s / 1e9);
}

}  // namespace

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

std::string FormatExecutables(const planner::Plan& plan, const mesh::Topology& topology) {
  const planner::CostModel model(planner::TopologyOf(plan.layout, topology));
  std::string text = "stages' first devices\n";
  std::set<int> stages;
  for (const ir::Program& program : plan.Main()) {
    if (!stages.insert(program.stage.value()).second) continue;
    const int device = program.device.value();
    text += FormatRoofs(model.ProfileOf(device), planner::FormatDevices(plan.layout, device, 1));
    for (const ir::Executable& executable : program.executables) {
      Totals totals;
      const std::string kernels = FormatKernels(*executable.graph, model, device, totals);
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

}  // namespace meshwright::report
