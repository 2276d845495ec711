// The planner's answer: stages, shardings, schedule and one static program per device. Pure
// functions of the request and the topology; no files, no devices, no RPC.
//
// Pipeline: a Layout (degrees) -> stage split by cost -> one step graph (forward, backward, update)
// -> shardings by Redco's two rules on factors -> local SPMD pieces with explicit collectives ->
// schedule -> programs -> verified.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "ir/program.h"
#include "mesh/sharding.h"
#include "mesh/topology.h"
#include "planner/layout.h"
#include "planner/memory.h"
#include "planner/plan_scope.h"

namespace meshwright::planner {

struct StageInfo {
  mesh::Mesh mesh;                          // axes data, tensor
  std::vector<std::pair<int, int>> layers;  // first and last of each part that it holds
  double flops_per_step = 0;                // whole stage, forward + backward, all microbatches
};

struct ParamInfo {
  std::string name;
  ir::TensorType type;  // logical
  mesh::Sharding sharding;
  std::vector<int> stages;  // that hold a copy, owner first
};

struct Strategies;
struct StageAssignment;

// Programs by name, each in device order: "init" fills weights and optimizer state; of a trained
// program "step" is one training step (reports loss, grad_norm, lr, tokens and what the loss graph
// gives out besides), "eval" one validation batch (reports loss_sum, count); the rest are the job's
// own. All share the persistent slots.
using ProgramSet = std::map<std::string, std::vector<ir::Program>, std::less<>>;

struct Plan {
  Layout layout;
  std::vector<StageInfo> stages;
  std::vector<ParamInfo> params;
  std::vector<std::string> notes;       // fallbacks: what was replicated and why
  std::vector<std::string> made_notes;  // of these MakePlanOf's; callers add what they chose
  std::vector<DeviceMemory> memory;     // per device
  ProgramSet programs;
  std::string main = ir::kStepProgram;  // which of them decides the layout: what a forecast is of
  int reporting_device = 0;             // whose reports count
  double tokens_per_step = 0;
  double model_flops = 0;  // of a run of the main program (planner/cost_model.h)
  PlanScope scope = PlanScope::kAllDevices;
  // As the job asks, with memories, overlap and the host's share of the update decided.
  ir::ParallelSpec decided;
  // Per device. REQUIRES that there is one of this name.
  const std::vector<ir::Program>& Of(std::string_view name) const;
  const std::vector<ir::Program>& Main() const { return Of(main); }
  int64_t DevicesOf(const ir::Program& program) const;  // that it stands for
};

// Chooses the shardings of a staged graph: what replicas split (ZeRO) included, complete for
// MakePartition. Asked for the main program with no `known_params`, then for the others with those
// of the main one, which the answer keeps.
using ShardingChooser = std::function<Result<Strategies>(
    const ir::Graph& graph, const StageAssignment& stages, const Layout& layout,
    const std::map<std::string, mesh::Sharding>& known_params)>;

// Where the job does not fit a device's memory, the backward recomputes what is cheap
// (planner/recompute.h), if `train.compile` allows it. `choose`: as of MakePlanOf.
// Errors: kInvalidArgument with what would fit (degrees, batch, heads), kResourceExhausted naming
// device, need and budget, kInternal: the verifier rejects the programs.
Result<Plan> MakePlan(const ir::JobRequest& job, const mesh::Topology& topology,
                      PlanScope scope = PlanScope::kAllDevices, const ShardingChooser& choose = {});

// `refusal` of a job with this layout; where a degree does not divide what would be padded with
// other settings, it says with which.
Status OfferPadding(Status refusal, const ir::JobRequest& job, const mesh::Topology& topology,
                    const Layout& layout);

// The plan of a layout that is decided. `choose`: none: by planner/strategy.h's rules, with
// layout.zero applied to them; called by one thread after another. Errors: as MakePlan, and as
// `choose`.
Result<Plan> MakePlanOf(const ir::JobRequest& job, const mesh::Topology& topology,
                        const Layout& layout, PlanScope scope = PlanScope::kAllDevices,
                        const ShardingChooser& choose = {});

// The logical step that MakePlan starts from: loss in the types that it is computed in, gradients,
// update, and a report for every further scalar that the loss graph gives out. REQUIRES a trained
// program. Errors: as ir::Differentiate and ir::AppendUpdate.
Result<ir::Graph> MakeStepGraph(const ir::JobRequest& job);

// Stages, shardings, memory per device; with_programs adds every program's text. `reasons`: lines
// that follow the layout.
std::string FormatPlan(const Plan& plan, bool with_programs, const std::string& reasons = "");

}  // namespace meshwright::planner
