// A plan by the job's pins: how much is computed again, and what a misfit could keep elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "ir/job.h"
#include "planner/layout.h"
#include "planner/padding.h"
#include "planner/plan.h"
#include "planner/recompute_modes.h"
#include "planner/resolve_layout.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {
namespace {

// What a refusal for memory adds where it fits with what is in the memory `from` in that of the
// host, with as few kinds there as fit. Empty: it does not.
std::string HostInsteadOf(const char* from, const ir::JobRequest& job,
                          const mesh::Topology& topology, const Layout& layout, PlanScope scope,
                          const ShardingChooser& choose) {
  ir::JobRequest with_host = job;
  std::string keys;
  for (const MemoryPin& pin : kMemoryPins) {
    if (job.parallel.*pin.memory != from) continue;
    with_host.parallel.*pin.memory = "host";
    keys += fmt::format("{}parallelism.{}_memory = \"host\"", keys.empty() ? "" : ", ", pin.kind);
    const Result<Plan> plan = MakePlanOf(with_host, topology, layout, scope, choose);
    if (!plan.has_value()) continue;
    int64_t device_bytes = 0;
    int64_t host_bytes = 0;
    for (const DeviceMemory& memory : plan->memory) {
      device_bytes = std::max(device_bytes, memory.total_bytes);
      host_bytes = std::max(host_bytes, memory.host.total_bytes);
    }
    constexpr double kMib = 1048576.0;
    return fmt::format(
        ". It fits with {}: {:.1f} MiB of a device, {:.1f} MiB of its host's memory, which come "
        "and go in each step",
        keys, static_cast<double>(device_bytes) / kMib, static_cast<double>(host_bytes) / kMib);
  }
  return "";
}

// A refusal for memory says what the host's would do, of what is on a disk and of what is on the
// device.
Result<Plan> OfferHostMemory(Status refusal, const ir::JobRequest& job,
                             const mesh::Topology& topology, const Layout& layout, PlanScope scope,
                             const ShardingChooser& choose) {
  if (refusal.code() != StatusCode::kResourceExhausted || job.trained() == nullptr) {
    return Fail(std::move(refusal));
  }
  std::string offer = HostInsteadOf("disk", job, topology, layout, scope, choose);
  if (offer.empty()) offer = HostInsteadOf("device", job, topology, layout, scope, choose);
  if (offer.empty()) return Fail(std::move(refusal));
  return Fail(Status(refusal.code(), refusal.message() + offer));
}

}  // namespace

Status OfferPadding(Status refusal, const ir::JobRequest& job, const mesh::Topology& topology,
                    const Layout& layout) {
  if (!refusal.field().empty() || layout.tensor() == 1) return refusal;
  ir::JobRequest padding = job;
  Layout one_axis = layout;
  std::string keys;
  if (job.parallel.shardings == "search") {
    padding.parallel.shardings = "rules";
    one_axis.tensor_axes.clear();
    padding.parallel.tensor_axes.clear();
    keys = "parallelism.shardings = \"rules\"";
  }
  if (job.optimizer.name == "adafactor" && job.trained() != nullptr) {
    padding.optimizer.name = "adamw";
    keys += fmt::format("{}another optimizer than adafactor", keys.empty() ? "" : " and ");
  }
  if (keys.empty()) return refusal;
  const Result<std::optional<PaddedJob>> padded = PadJob(padding, one_axis);
  if (!padded.has_value() || !*padded || (*padded)->notes.empty()) return refusal;
  const Result<Plan> plan = MakePlanOf(padding, topology, one_axis, PlanScope::kOnePerStage);
  // What has no room is legal.
  if (!plan.has_value() && plan.error().code() != StatusCode::kResourceExhausted) {
    return refusal;
  }
  return Status(refusal.code(), fmt::format("{}; or have it padded, with {}: {}", refusal.message(),
                                            keys, Join((*padded)->notes, "; ")));
}

Result<Plan> MakePlan(const ir::JobRequest& job, const mesh::Topology& topology, PlanScope scope,
                      const ShardingChooser& choose) {
  MW_TRY(ir::ValidateJob(job));
  const int layers = LayerCount(job.main().graph);
  MW_ASSIGN_OR_RETURN(Layout layout,
                      ResolveLayout(job, static_cast<int64_t>(topology.devices.size()), layers));
  const auto plan_with = [&](Recompute mode) -> Result<Plan> {
    MW_ASSIGN_OR_RETURN(layout.recompute,
                        RecomputeOfLayers(mode, job.parallel.recompute_layers, layers));
    Result<Plan> plan = MakePlanOf(job, topology, layout, scope, choose);
    const std::string idle =
        IdleDevicesNote(job, layout, static_cast<int64_t>(topology.devices.size()));
    if (plan.has_value() && !idle.empty()) plan->notes.insert(plan->notes.begin(), idle);
    return plan;
  };
  const std::string& wanted = job.parallel.recompute;
  const auto offered = [&](Result<Plan> plan) -> Result<Plan> {
    if (plan.has_value()) return plan;
    if (plan.error().code() == StatusCode::kInvalidArgument) {
      return Fail(OfferPadding(plan.error(), job, topology, layout));
    }
    return OfferHostMemory(plan.error(), job, topology, layout, scope, choose);
  };
  if (wanted == "gathers") return offered(plan_with(Recompute::kGathers));
  if (wanted == "selective") return offered(plan_with(Recompute::kSelective));
  if (wanted == "full") return offered(plan_with(Recompute::kFull));
  Result<Plan> plan = plan_with(Recompute::kNone);
  // Without the compiler, programs are the graph as it is written.
  if (wanted == "none" || !job.train.compile) return offered(std::move(plan));
  for (const Recompute mode : {Recompute::kGathers, Recompute::kSelective, Recompute::kFull}) {
    if (mode == Recompute::kGathers && layout.tensor() == 1) continue;
    if (plan.has_value() || plan.error().code() != StatusCode::kResourceExhausted) break;
    plan = plan_with(mode);
    if (!plan.has_value()) continue;
    plan->notes.push_back(
        fmt::format("the backward {} again: the job does not fit with what they make kept",
                    mode == Recompute::kFull        ? "computes whole layers"
                    : mode == Recompute::kSelective ? "computes norms and activation functions"
                                                    : "gathers activations"));
  }
  return offered(std::move(plan));
}

}  // namespace meshwright::planner
