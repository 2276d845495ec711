#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "ir/autodiff.h"
#include "ir/mixed_precision.h"
#include "ir/schema.h"
#include "ir/verify.h"
#include "planner/cost_model.h"
#include "planner/evaluation.h"
#include "planner/head_blocks.h"
#include "planner/layout.h"
#include "planner/lower.h"
#include "planner/memory.h"
#include "planner/pieces.h"
#include "planner/recompute.h"
#include "planner/stages.h"
#include "planner/step_pieces.h"
#include "planner/strategy.h"
#include "planner/zero.h"

namespace meshwright::planner {
namespace {

using ir::Graph;

// The loss in the types that it is computed in.
Result<Graph> MakeLossGraph(const ir::JobRequest& job) {
  Graph loss = FillLayers(job.loss);
  if (job.train.compute_dtype == ir::DType::kF32) return loss;
  return ir::ToMixedPrecision(loss, job.train.compute_dtype);
}

class PlanMaker {
 public:
  PlanMaker(const ir::JobRequest& job, const mesh::Topology& topology, Layout layout,
            PlanScope scope, const ShardingChooser& choose)
      : job_(job), topology_(TopologyOf(layout, topology)), scope_(scope), choose_(choose) {
    plan_.layout = std::move(layout);
    plan_.scope = scope;
  }

  Result<Plan> Run() {
    MW_TRY(PrepareStep());
    MW_TRY(PlanLaunches());
    DescribeStages();
    if (scope_ == PlanScope::kAllDevices) MW_TRY(Verify());
    plan_.reporting_device = ReportingDevice(plan_.layout);
    constexpr int64_t kDevicesPerThread = 8;
    plan_.memory.resize(plan_.step.size());
    ParallelItems(static_cast<int64_t>(plan_.step.size()), kDevicesPerThread, [&](int64_t device) {
      const auto i = static_cast<size_t>(device);
      plan_.memory[i] = PeakMemory({&plan_.init[i], &plan_.step[i], &plan_.eval[i]});
    });
    MW_TRY(CheckMemory());
    return std::move(plan_);
  }

 private:
  Status PrepareStep() {
    MW_ASSIGN_OR_RETURN(Graph graph, MakeStepGraph(job_));
    plan_.tokens_per_step =
        static_cast<double>(job_.train.global_batch) * static_cast<double>(job_.train.sequence);
    plan_.model_flops = ModelFlops(graph);
    MW_ASSIGN_OR_RETURN(staged_, StageStep(job_, std::move(graph), plan_.layout));
    MW_ASSIGN_OR_RETURN(strategies_, ChooseStepShardings());
    plan_.notes.insert(plan_.notes.end(), strategies_.notes.begin(), strategies_.notes.end());
    return OkStatus();
  }

  // At once: each is made from the staged step and its shardings alone.
  Status PlanLaunches() {
    Status init, evaluation, step;
    ParallelItems(3, 1, [&](int64_t launch) {
      if (launch == 0) init = PlanInit();
      if (launch == 1) evaluation = PlanEvaluation();
      if (launch == 2) step = PlanStep();  // the longest: of two threads it has one for itself
    });
    MW_TRY(step);
    MW_TRY(evaluation);
    return init;
  }

  Status PlanStep() {
    MW_ASSIGN_OR_RETURN(const Partition partition,
                        MakeStepPartition(job_, staged_, plan_.layout, strategies_));
    MW_ASSIGN_OR_RETURN(std::vector<StageSchedule> schedule,
                        MakeSchedule(plan_.layout.schedule, plan_.layout.shape(),
                                     static_cast<int>(plan_.layout.microbatches)));
    MW_ASSIGN_OR_RETURN(plan_.step, Lower("step", partition, std::move(schedule)));
    return OkStatus();
  }

  Result<Strategies> ChooseStepShardings() const {
    if (choose_) return choose_(staged_.graph, staged_.stages, plan_.layout, {});
    MW_ASSIGN_OR_RETURN(Strategies strategies, ChooseStrategies(staged_.graph, staged_.stages,
                                                                plan_.layout, {}, MaxTensor()));
    ApplyZero(staged_.graph, plan_.layout, strategies);
    return strategies;
  }

  // Weights are where the step has them.
  Result<Strategies> ChooseEvaluationShardings(const Graph& graph,
                                               const StageAssignment& stages) const {
    if (choose_) {
      std::map<std::string, mesh::Sharding> known;
      for (NodeId id : graph.NodesOf(ir::Op::kParam)) {
        const std::string name = graph.node(id).attrs.Str("name");
        known[name] = strategies_.params.at(name);
      }
      return choose_(graph, stages, plan_.layout, known);
    }
    MW_ASSIGN_OR_RETURN(Strategies strategies,
                        ChooseStrategies(graph, stages, plan_.layout,
                                         WholeOverData(strategies_.params), MaxTensor()));
    ReadShardedParams(graph, strategies_.params, strategies);
    return strategies;
  }

  Status PlanEvaluation() {
    MW_ASSIGN_OR_RETURN(const Graph loss, MakeLossGraph(job_));
    MW_ASSIGN_OR_RETURN(Graph graph, MakeEvaluationGraph(loss));
    MW_ASSIGN_OR_RETURN(graph, FuseWholeHead(job_, plan_.layout, std::move(graph)));
    const PipelineShape shape = plan_.layout.shape();
    MW_ASSIGN_OR_RETURN(const StageAssignment stages,
                        AssignStages(graph, staged_.stages.part_of_layer, shape));
    MW_ASSIGN_OR_RETURN(const Strategies strategies, ChooseEvaluationShardings(graph, stages));
    MW_ASSIGN_OR_RETURN(Partition partition, MakePartition(graph, stages, strategies, plan_.layout,
                                                           job_.parallel.bucket_bytes));
    MW_TRY(CompilePieces(job_, partition));
    MW_ASSIGN_OR_RETURN(plan_.eval,
                        Lower("eval", partition,
                              ForwardSchedule(shape, static_cast<int>(plan_.layout.microbatches))));
    return OkStatus();
  }

  Status PlanInit() {
    MW_ASSIGN_OR_RETURN(const Partition partition, MakeInitPartition(staged_.graph, staged_.stages,
                                                                     strategies_, plan_.layout));
    MW_ASSIGN_OR_RETURN(
        plan_.init, Lower("init", partition,
                          ForwardSchedule({static_cast<int>(plan_.layout.pipeline), 1, false}, 1)));
    return OkStatus();
  }

  Result<std::vector<ir::Program>> Lower(const char* name, const Partition& partition,
                                         std::vector<StageSchedule> schedule) {
    LowerInput input;
    input.name = name;
    input.partition = &partition;
    input.layout = &plan_.layout;
    input.microbatches =
        std::string_view(name) == "init" ? 1 : static_cast<int>(plan_.layout.microbatches);
    input.schedule = std::move(schedule);
    input.scope = scope_;
    input.topology = &topology_;
    return LowerToPrograms(input);
  }

  // All launches together: they share the persistent slots.
  Status Verify() const {
    std::vector<ir::Program> all;
    for (const auto* programs : {&plan_.init, &plan_.step, &plan_.eval}) {
      all.insert(all.end(), programs->begin(), programs->end());
    }
    Status verified = ir::VerifyPrograms(all);
    for (size_t i = 0; verified.ok() && i < plan_.init.size(); ++i) {
      verified = CheckInitialized(plan_.init[i], plan_.step[i]);
      if (verified.ok()) verified = CheckInitialized(plan_.init[i], plan_.eval[i]);
    }
    if (verified.ok()) return OkStatus();
    return Internal(fmt::format(
        "the planner made programs that the verifier rejects ({}): please report this job",
        verified.message()));
  }

  std::pair<int, int> LayersOf(int part) const {
    const std::vector<int>& part_of_layer = staged_.stages.part_of_layer;
    const auto range = std::equal_range(part_of_layer.begin(), part_of_layer.end(), part);
    const auto first = static_cast<int>(range.first - part_of_layer.begin());
    return {first, first + static_cast<int>(range.second - range.first) - 1};
  }

  void DescribeStages() {
    for (int stage = 0; stage < plan_.layout.pipeline; ++stage) {
      StageInfo info;
      info.mesh = StageMesh(plan_.layout, stage);
      for (int chunk = 0; chunk < plan_.layout.chunks; ++chunk) {
        info.layers.push_back(LayersOf(plan_.layout.shape().PartOf(stage, chunk)));
      }
      plan_.stages.push_back(std::move(info));
    }
    for (size_t i = 0; i < staged_.graph.nodes.size(); ++i) {
      const ir::Node& node = staged_.graph.nodes[i];
      if (node.op == ir::Op::kParam) continue;
      for (int stage : staged_.stages.node_stages[i]) {
        plan_.stages[static_cast<size_t>(stage)].flops_per_step +=
            ir::CostOf(staged_.graph, node).flops;
      }
    }
    for (NodeId id : staged_.graph.NodesOf(ir::Op::kParam)) {
      const ir::Node& node = staged_.graph.node(id);
      const std::string name = node.attrs.Str("name");
      if (node.attrs.Int("state") != 0) continue;
      plan_.params.push_back({name, staged_.graph.type(node.outputs[0]),
                              strategies_.params.at(name), staged_.stages.param_stages.at(name)});
    }
  }

  // The largest tensor degree for which there are devices, with the asked pipeline and data.
  int64_t MaxTensor() const {
    return device_count() / (plan_.layout.pipeline * std::max<int64_t>(1, job_.parallel.data));
  }

  int64_t device_count() const { return static_cast<int64_t>(topology_.devices.size()); }

  // Program i runs on device i of the topology.
  Status CheckMemory() const {
    for (size_t i = 0; i < plan_.memory.size(); ++i) {
      const int64_t first = plan_.step[i].device.value();
      for (int64_t device = first; device < first + plan_.DevicesOf(plan_.step[i]); ++device) {
        MW_TRY(CheckDeviceMemory(topology_, DeviceIndex(static_cast<int32_t>(device)),
                                 plan_.memory[i].total_bytes, plan_.layout.microbatches));
      }
    }
    return OkStatus();
  }

  const ir::JobRequest& job_;
  const mesh::Topology topology_;  // as the programs see it
  const PlanScope scope_;
  const ShardingChooser& choose_;
  Plan plan_;
  StagedStep staged_;
  Strategies strategies_;
};

}  // namespace

int64_t Plan::DevicesOf(const ir::Program& program) const {
  if (scope == PlanScope::kAllDevices) return 1;
  return layout.DegreesOf(program.stage.value()).device_count();
}

Result<Graph> MakeStepGraph(const ir::JobRequest& job) {
  MW_ASSIGN_OR_RETURN(const Graph loss, MakeLossGraph(job));
  MW_ASSIGN_OR_RETURN(Graph gradients, ir::Differentiate(loss));
  MW_ASSIGN_OR_RETURN(gradients, ir::FoldCasts(gradients));
  ir::OptimizerSpec optimizer = job.optimizer;
  if (optimizer.total_steps == 0) optimizer.total_steps = job.train.steps;
  return ir::AppendUpdate(gradients, optimizer);
}

Result<Plan> MakePlan(const ir::JobRequest& job, const mesh::Topology& topology) {
  MW_TRY(ir::ValidateJob(job));
  const int layers = LayerCount(job.loss);
  MW_ASSIGN_OR_RETURN(Layout layout,
                      ResolveLayout(job, static_cast<int64_t>(topology.devices.size()), layers));
  const auto plan_with = [&](Recompute mode) -> Result<Plan> {
    MW_ASSIGN_OR_RETURN(layout.recompute,
                        RecomputeOfLayers(mode, job.parallel.recompute_layers, layers));
    Result<Plan> plan = MakePlanOf(job, topology, layout);
    const std::string idle =
        IdleDevicesNote(job, layout, static_cast<int64_t>(topology.devices.size()));
    if (plan.has_value() && !idle.empty()) plan->notes.insert(plan->notes.begin(), idle);
    return plan;
  };
  const std::string& wanted = job.parallel.recompute;
  if (wanted == "selective") return plan_with(Recompute::kSelective);
  if (wanted == "full") return plan_with(Recompute::kFull);
  Result<Plan> plan = plan_with(Recompute::kNone);
  // Without the compiler, programs are the graph as it is written.
  if (wanted == "none" || !job.train.compile) return plan;
  for (const Recompute mode : {Recompute::kSelective, Recompute::kFull}) {
    if (plan.has_value() || plan.error().code() != StatusCode::kResourceExhausted) break;
    plan = plan_with(mode);
    if (!plan.has_value()) continue;
    plan->notes.push_back(
        fmt::format("the backward computes {} again: the job does not fit with what they make kept",
                    mode == Recompute::kFull ? "whole layers" : "norms and activation functions"));
  }
  return plan;
}

Result<Plan> MakePlanOf(const ir::JobRequest& job, const mesh::Topology& topology,
                        const Layout& layout, PlanScope scope, const ShardingChooser& choose) {
  MW_TRY(ir::ValidateJob(job));
  const std::optional<ir::JobRequest> sized = WithHeadBlocks(job, topology);
  return PlanMaker(sized ? *sized : job, topology, layout, scope, choose).Run();
}

}  // namespace meshwright::planner
