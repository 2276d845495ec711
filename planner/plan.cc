#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "base/text.h"
#include "ir/autodiff.h"
#include "ir/loss_scale.h"
#include "ir/mixed_precision.h"
#include "ir/schema.h"
#include "ir/verify.h"
#include "planner/cost_model.h"
#include "planner/decided.h"
#include "planner/describe_stages.h"
#include "planner/early_gathers.h"
#include "planner/early_scatters.h"
#include "planner/evaluation.h"
#include "planner/job_on_axes.h"
#include "planner/layout.h"
#include "planner/lower.h"
#include "planner/memory.h"
#include "planner/overlap.h"
#include "planner/padding.h"
#include "planner/partition.h"
#include "planner/plan_memory.h"
#include "planner/resolve_layout.h"
#include "planner/router_sweep.h"
#include "planner/stages.h"
#include "planner/step_pieces.h"
#include "planner/strategy.h"
#include "planner/streamed_products.h"
#include "planner/tiers.h"
#include "planner/vocabulary_blocks.h"
#include "planner/vocabulary_schedule.h"
#include "planner/zero.h"

namespace meshwright::planner {
namespace {

using ir::Graph;

// A program's graph in the types that it is computed in.
Result<Graph> InComputeTypes(const ir::JobRequest& job, const Graph& graph) {
  Graph filled = FillLayers(graph);
  if (job.train.compute_dtype == ir::DType::kF32) return filled;
  return ir::ToMixedPrecision(filled, job.train.compute_dtype);
}

// kFewPrograms is decided: a program is about as long as its stage has microbatches and layers.
PlanScope ResolveScope(PlanScope scope, const Layout& layout, int64_t layers) {
  if (scope != PlanScope::kFewPrograms) return scope;
  constexpr int64_t kSoonMade = 2048;
  const int64_t length = layout.microbatches * layout.chunks + layers / layout.pipeline;
  return layout.device_count() * length <= kSoonMade ? PlanScope::kAllDevices
                                                     : PlanScope::kOnePerStage;
}

// That a device holds of what is in a farther memory: one that is used, one that comes, one that
// goes.
constexpr int64_t kChunksOfCopies = 3;

// Whether something comes from a farther memory.
bool Fetches(const std::vector<ir::Program>& programs) {
  return std::any_of(programs.begin(), programs.end(), [](const ir::Program& program) {
    return std::any_of(program.instructions.begin(), program.instructions.end(),
                       [](const auto& each) { return each.op == ir::Opcode::kPrefetch; });
  });
}

class PlanMaker {
 public:
  PlanMaker(const ir::JobRequest& job, const mesh::Topology& topology, Layout layout,
            PlanScope scope, const ShardingChooser& choose)
      : job_(job),
        topology_(TopologyOf(layout, topology)),
        scope_(ResolveScope(scope, layout, LayerCount(job.main().graph))),
        choose_(choose),
        overlap_(ResolveOverlap(job.parallel.overlap, layout, topology_)),
        tensor_chunks_(job.parallel.tensor_chunks),
        gathers_ahead_(overlap_ == ir::OverlapMode::kOn && layout.zero == 3 &&
                       !CopiesTakeTurns(job.parallel, topology_)) {
    plan_.layout = std::move(layout);
    plan_.scope = scope_;
  }

  Result<Plan> Run() {
    MW_TRY(CheckVocabulary(job_, plan_.layout));
    MW_TRY(job_.trained() != nullptr ? PrepareStep() : PrepareForward());
    MW_TRY(PrepareOutputs());
    MW_TRY(FindHostWeights());
    MW_TRY(MakeProgramsThatFit());
    DescribeStages(staged_, strategies_, plan_);
    FetchAhead();
    MW_TRY(Verify());
    plan_.reporting_device = ReportingDevice(plan_.layout);
    MW_TRY(CheckMemory(plan_, topology_));
    return std::move(plan_);
  }

 private:
  using Programs = std::vector<ir::Program>;
  // A program that runs forward, staged and split.
  struct Forward {
    Graph graph;
    StageAssignment stages;
    Strategies strategies;
    Layout layout;
  };
  struct Maker {
    std::string name;
    std::function<Result<Programs>()> make;
  };

  // ---- the main program, which decides where the state is ----

  Status PrepareStep() {
    MW_ASSIGN_OR_RETURN(Graph graph, MakeStepGraph(job_));
    MW_TRY(CheckOncePerStep(graph));
    plan_.tokens_per_step =
        static_cast<double>(job_.train.global_batch) * static_cast<double>(job_.train.sequence);
    plan_.model_flops = ModelFlops(graph);
    MW_ASSIGN_OR_RETURN(staged_, StageStep(job_, std::move(graph), plan_.layout));
    return ChooseMainShardings(plan_.layout);
  }

  // A tensor that a step gives out, and a whole batch, are there once, not once per microbatch.
  Status CheckOncePerStep(const Graph& step) const {
    if (plan_.layout.microbatches == 1) return OkStatus();
    for (const ir::NamedValue& output : job_.main().graph.outputs) {
      if (step.type(step.Output(output.name)).rank() == 0) continue;
      return InvalidArgument(fmt::format(
          "output \"{}\" of the trained program is a tensor, which {} microbatches do not have "
          "whole; use microbatches=1, or give it out by a program of its own",
          output.name, plan_.layout.microbatches));
    }
    return CheckWholeBatch(job_, plan_.layout);
  }

  Status PrepareForward() {
    const ir::JobProgram& main = job_.main();
    plan_.main = main.name;
    plan_.layout.zero = 0;
    plan_.layout.recompute.clear();
    MW_ASSIGN_OR_RETURN(Graph graph, ForwardGraph(main));
    const Layout layout = LayoutOf(graph);
    plan_.layout.microbatches = layout.microbatches;
    plan_.tokens_per_step = static_cast<double>(RowsOf(graph) * job_.train.sequence);
    plan_.model_flops = ModelFlops(graph);
    MW_ASSIGN_OR_RETURN(staged_, StageStep(job_, std::move(graph), layout));
    return ChooseMainShardings(layout);
  }

  Status ChooseMainShardings(const Layout& layout) {
    if (choose_) {
      MW_ASSIGN_OR_RETURN(strategies_, choose_(staged_.graph, staged_.stages, layout, {}));
    } else {
      MW_ASSIGN_OR_RETURN(strategies_,
                          ChooseStrategies(staged_.graph, staged_.stages, layout, {}, MaxTensor()));
      ApplyZero(staged_.graph, layout, strategies_, job_.parallel.zero_min_bytes);
    }
    plan_.notes.insert(plan_.notes.end(), strategies_.notes.begin(), strategies_.notes.end());
    return OkStatus();
  }

  // ---- what programs read of one another ----

  // Programs whose outputs others read come first: the others find them as they are made.
  Status PrepareOutputs() {
    if (!ir::ReadsOutputs(job_)) return OkStatus();
    MW_TRY(CheckOneStage(plan_.layout));
    for (const std::string& name : ir::ProgramsRead(job_)) {
      if (name == plan_.main) {
        MakeOutputStates(job_, name, staged_.graph, strategies_, outputs_);
        continue;
      }
      auto prepared = PrepareOther(*job_.FindProgram(name));
      if (!prepared.has_value()) return NamedIfOwn(prepared.error(), name);
      MakeOutputStates(job_, name, prepared->graph, prepared->strategies, outputs_);
      prepared_[name] = *std::move(prepared);
    }
    return OkStatus();
  }

  // ---- what the host renews: of the step, and all programs read it where it lies ----

  Status FindHostWeights() {
    if (job_.parallel.host_update <= 0 || job_.trained() == nullptr) return OkStatus();
    MW_ASSIGN_OR_RETURN(const Partition partition,
                        MakeStepPartition(job_, staged_, plan_.layout, strategies_));
    host_weights_ = HostWeightsOf(partition);
    return OkStatus();
  }

  // ---- all programs ----

  // What nobody asked for is left out where it has no room: chunks of products, then gathers of
  // weights a layer ahead.
  Status MakeProgramsThatFit() {
    const int64_t asked = job_.parallel.tensor_chunks;
    Status made = MakeAndMeasure();
    if (IsMisfit(made) && asked == 0 && streamed_.chunks > 1) {
      plan_.notes.push_back(
          fmt::format("products are not cut into {} chunks, which would be faster: they do not fit",
                      streamed_.chunks));
      tensor_chunks_ = 1;
      made = MakeAndMeasure();
    }
    if (IsMisfit(made) && gathers_ahead_) {
      plan_.notes.push_back("weights are not gathered a layer ahead of their readers: no room");
      gathers_ahead_ = false;
      made = MakeAndMeasure();
    }
    MW_TRY(made);
    plan_.layout.tensor_chunks = streamed_.chunks;
    const bool says = job_.trained() != nullptr && (streamed_.products > 0 || asked > 1);
    if (says) plan_.notes.push_back(NoteOf(streamed_, asked));
    return OkStatus();
  }

  static bool IsMisfit(const Status& status) {
    return status.code() == StatusCode::kResourceExhausted;
  }

  Status MakeAndMeasure() {
    MW_TRY(MakePrograms());
    MeasureMemory(plan_);
    return CheckMemory(plan_, topology_);
  }

  // At once: each is made from the staged main program and its shardings alone. The longest is
  // first, and what is wrong with it is said first.
  Status MakePrograms() {
    std::vector<Maker> makers = {
        {plan_.main, [this] { return job_.trained() != nullptr ? MakeStep() : MakeMain(); }}};
    for (const ir::JobProgram& program : job_.programs) {
      if (program.trained) {
        makers.push_back({ir::kEvalProgram, [&] { return MakeEvaluation(program); }});
      } else if (program.name != plan_.main) {
        makers.push_back({program.name, [&] { return MakeOther(program); }});
      }
    }
    makers.push_back({ir::kInitProgram, [this] { return MakeInit(); }});
    std::vector<Result<Programs>> made(makers.size());
    ParallelItems(static_cast<int64_t>(makers.size()), 1, [&](int64_t i) {
      made[static_cast<size_t>(i)] = makers[static_cast<size_t>(i)].make();
    });
    for (size_t i = 0; i < makers.size(); ++i) {
      if (!made[i].has_value()) return NamedIfOwn(made[i].error(), makers[i].name);
      plan_.programs[makers[i].name] = *std::move(made[i]);
    }
    return OkStatus();
  }

  // What is said of the trained program needs no name: it is the job's.
  Status NamedIfOwn(const Status& error, const std::string& name) const {
    return job_.FindProgram(name) == nullptr ? error
                                             : error.WithContext(fmt::format("program '{}'", name));
  }

  Result<Programs> MakeStep() {
    const auto stream = [this](Partition& made) { return StreamStep(made); };
    MW_ASSIGN_OR_RETURN(Partition partition,
                        MakeStepPartition(job_, staged_, plan_.layout, strategies_, stream));
    if (overlap_ == ir::OverlapMode::kOn) MW_TRY(ScatterEarly(partition));
    if (gathers_ahead_) MW_TRY(GatherEarly(partition));
    MW_ASSIGN_OR_RETURN(std::vector<StageSchedule> schedule,
                        MakeStepSchedule(plan_.layout, /*backward=*/true));
    return Lower(ir::kStepProgram, partition, plan_.layout, std::move(schedule));
  }

  // Decided once: what is made again has as many chunks.
  Status StreamStep(Partition& partition) {
    const CostModel costs(topology_);
    const double beside = ShareBeside(job_.parallel, plan_.layout, topology_);
    std::vector<NodePrices> prices;
    for (int stage = 0; stage < plan_.layout.pipeline; ++stage) {
      const mesh::Mesh mesh = StageMesh(plan_.layout, stage);
      prices.emplace_back(mesh, costs, mesh.devices.front().value());
    }
    MW_ASSIGN_OR_RETURN(streamed_,
                        StreamProducts({prices, plan_.layout, beside, tensor_chunks_}, partition));
    if (tensor_chunks_ == 0) tensor_chunks_ = streamed_.chunks;
    return OkStatus();
  }

  Result<Programs> MakeInit() const {
    Layout whole = plan_.layout;
    whole.microbatches = 1;
    MW_ASSIGN_OR_RETURN(
        Partition partition,
        MakeInitPartition(staged_.graph, staged_.stages, strategies_, plan_.layout, outputs_));
    MW_TRY(PlaceState(job_.parallel, partition, host_weights_));
    return Lower(ir::kInitProgram, partition, whole,
                 ForwardSchedule({static_cast<int>(whole.pipeline), 1, false}, 1));
  }

  Result<Programs> MakeMain() const {
    return LowerForward(plan_.main, {staged_.graph, staged_.stages, strategies_, plan_.layout});
  }

  Result<Programs> MakeEvaluation(const ir::JobProgram& trained) const {
    MW_ASSIGN_OR_RETURN(const Graph loss, InComputeTypes(job_, trained.graph));
    MW_ASSIGN_OR_RETURN(Graph graph, MakeEvaluationGraph(loss, trained));
    MW_ASSIGN_OR_RETURN(const Forward forward, StageForward(std::move(graph), plan_.layout));
    return LowerForward(ir::kEvalProgram, forward);
  }

  Result<Programs> MakeOther(const ir::JobProgram& program) const {
    const auto known = prepared_.find(program.name);
    if (known != prepared_.end()) return LowerForward(program.name, known->second);
    MW_ASSIGN_OR_RETURN(const Forward forward, PrepareOther(program));
    return LowerForward(program.name, forward);
  }

  Result<Forward> PrepareOther(const ir::JobProgram& program) const {
    MW_ASSIGN_OR_RETURN(Graph graph, ForwardGraph(program));
    MW_ASSIGN_OR_RETURN(graph, ReadOutputStates(std::move(graph), program, outputs_));
    const Layout layout = LayoutOf(graph);
    return StageForward(std::move(graph), layout);
  }

  Result<Forward> StageForward(Graph graph, const Layout& layout) const {
    MW_ASSIGN_OR_RETURN(graph, SplitVocabularyLike(staged_.graph, std::move(graph), layout,
                                                   ModelLayers(staged_.stages, plan_.layout)));
    MW_ASSIGN_OR_RETURN(graph, FuseWholeHead(job_, layout, std::move(graph)));
    MW_ASSIGN_OR_RETURN(graph, WithRouterSweep(std::move(graph), layout));
    MW_ASSIGN_OR_RETURN(StageAssignment stages,
                        AssignStages(graph, staged_.stages.part_of_layer, StepShape(layout)));
    MW_ASSIGN_OR_RETURN(Strategies strategies, ChooseShardings(graph, stages, layout));
    return Forward{std::move(graph), std::move(stages), std::move(strategies), layout};
  }

  Result<Programs> LowerForward(const std::string& name, const Forward& forward) const {
    const Layout& layout = forward.layout;
    MW_ASSIGN_OR_RETURN(Partition partition,
                        MakePartition(forward.graph, forward.stages, forward.strategies, layout,
                                      job_.parallel.bucket_bytes));
    MW_TRY(CompilePieces(job_, partition));
    MW_TRY(WriteOutputStates(name, outputs_, partition));
    MW_TRY(PlaceState(job_.parallel, partition, host_weights_));
    if (gathers_ahead_) MW_TRY(GatherEarly(partition));
    MW_ASSIGN_OR_RETURN(std::vector<StageSchedule> schedule,
                        MakeStepSchedule(layout, /*backward=*/false));
    return Lower(name, partition, layout, std::move(schedule));
  }

  // ---- other programs than the main one ----

  Result<Graph> ForwardGraph(const ir::JobProgram& program) const {
    MW_ASSIGN_OR_RETURN(const Graph graph, InComputeTypes(job_, program.graph));
    const ir::DriverSpec& driver = job_.driver;
    const bool evaluated =
        driver.kind == ir::DriverKind::kEvaluate && driver.program == program.name;
    return MakeForwardGraph(graph, evaluated ? &program : nullptr);
  }

  // In microbatches where only sums come out of it, and where they divide its rows.
  Layout LayoutOf(const Graph& graph) const {
    Layout layout = plan_.layout;
    const bool fits = RowsOf(graph) % (layout.data() * layout.microbatches) == 0;
    if (GivesTensors(graph) || ReadsOutputStates(graph) || !fits) layout.microbatches = 1;
    return layout;
  }

  // Weights are where the main program has them.
  Result<Strategies> ChooseShardings(const Graph& graph, const StageAssignment& stages,
                                     const Layout& layout) const {
    if (choose_) {
      std::map<std::string, mesh::Sharding> known;
      for (NodeId id : graph.NodesOf(ir::Op::kParam)) {
        const std::string name = graph.node(id).attrs.Str("name");
        if (!ir::IsOutputState(name)) known[name] = strategies_.params.at(name);
      }
      AddOutputStates(graph, outputs_, known);
      return choose_(graph, stages, layout, known);
    }
    std::map<std::string, mesh::Sharding> known = WholeOverData(plan_.layout, strategies_.params);
    AddOutputStates(graph, outputs_, known);
    MW_ASSIGN_OR_RETURN(Strategies strategies,
                        ChooseStrategies(graph, stages, layout, known, MaxTensor()));
    ReadShardedParams(graph, plan_.layout, strategies_.params, strategies);
    return strategies;
  }

  Result<Programs> Lower(const std::string& name, const Partition& partition, const Layout& layout,
                         std::vector<StageSchedule> schedule) const {
    LowerInput input;
    input.name = name;
    input.partition = &partition;
    input.layout = &layout;
    input.microbatches = static_cast<int>(layout.microbatches);
    input.schedule = std::move(schedule);
    input.scope = scope_;
    input.overlap = overlap_;
    input.copies_bytes = kChunksOfCopies * job_.parallel.offload_chunk_bytes;
    input.ahead_bytes = ahead_bytes_;
    input.keeps_weights = job_.parallel.weights_memory == "device";
    input.topology = &topology_;
    return LowerToPrograms(input);
  }

  // All programs together: they share the persistent slots.
  Status Verify() const {
    std::vector<const ir::Program*> all;
    for (const auto& [name, programs] : plan_.programs) {
      for (const ir::Program& program : programs) all.push_back(&program);
    }
    Status verified = ir::VerifyPrograms(all, {.one_per_mesh = scope_ == PlanScope::kOnePerStage});
    const Programs& init = plan_.Of(ir::kInitProgram);
    for (const auto& [name, programs] : plan_.programs) {
      MW_CHECK(programs.size() == init.size())
          << "'" << name << "' is on " << programs.size() << " devices";
      for (size_t i = 0; verified.ok() && name != ir::kInitProgram && i < init.size(); ++i) {
        verified = CheckInitialized(init[i], programs[i]);
      }
    }
    if (verified.ok()) return OkStatus();
    return Internal(fmt::format(
        "the planner made programs that the verifier rejects ({}): please report this job",
        verified.message()));
  }

  // A step whose state comes from farther memories has it come as early as there is room for.
  void FetchAhead() {
    if (job_.trained() == nullptr || !Fetches(plan_.Main())) return;
    const int64_t spare_bytes = SpareBytes(topology_, MemoryOfDevices(plan_));
    // Those of a chunk at a time may then be there at the fullest moment, too.
    ahead_bytes_ =
        std::max<int64_t>(spare_bytes - kChunksOfCopies * job_.parallel.offload_chunk_bytes, 0);
    Result<Programs> ahead = ahead_bytes_ > 0 ? MakeStep() : Programs();
    if (!ahead.has_value() || ahead->empty()) return;
    std::swap(plan_.programs[plan_.main], *ahead);
    std::vector<DeviceMemory> memory = plan_.memory;
    MeasureMemory(plan_);
    const int64_t more_bytes = FullestBytes(plan_.memory) - FullestBytes(memory);
    if (!CheckMemory(plan_, topology_).ok()) {  // holes between them: as it was
      std::swap(plan_.programs[plan_.main], *ahead);
      std::swap(plan_.memory, memory);
    } else if (more_bytes > 0) {
      plan_.notes.push_back(fmt::format(
          "what is in farther memories is fetched ahead as far as there is room, {} of a "
          "device's memory",
          FormatBytes(more_bytes)));
    }
  }

  // The largest tensor degree for which there are devices, with the asked pipeline and data.
  int64_t MaxTensor() const {
    return device_count() / (plan_.layout.pipeline * std::max<int64_t>(1, job_.parallel.data));
  }

  int64_t device_count() const { return static_cast<int64_t>(topology_.devices.size()); }

  const ir::JobRequest& job_;
  const mesh::Topology topology_;  // as the programs see it
  const PlanScope scope_;
  const ShardingChooser& choose_;
  const ir::OverlapMode overlap_;
  Plan plan_;
  StagedStep staged_;
  Strategies strategies_;
  HostWeights host_weights_;
  int64_t tensor_chunks_;                    // 0: by cost
  bool gathers_ahead_;                       // a layer (planner/early_gathers.h)
  StreamedProducts streamed_;                // of the step
  int64_t ahead_bytes_ = 0;                  // of each device, for copies that come early
  OutputStates outputs_;                     // that programs read of one another
  std::map<std::string, Forward> prepared_;  // programs that others read
};

Result<Plan> RunPadded(const ir::JobRequest& job, const mesh::Topology& topology,
                       const Layout& layout, PlanScope scope, const ShardingChooser& choose) {
  MW_ASSIGN_OR_RETURN(const std::optional<PaddedJob> padded, PadJob(job, layout));
  if (!padded) return PlanMaker(job, topology, layout, scope, choose).Run();
  MW_ASSIGN_OR_RETURN(Plan plan, PlanMaker(padded->job, topology, layout, scope, choose).Run());
  MW_ASSIGN_OR_RETURN(const Graph model, job.trained() != nullptr
                                             ? MakeStepGraph(job)
                                             : Result<Graph>(job.main().graph));
  plan.model_flops = ModelFlops(model);  // padding is work, but none of the model's
  plan.notes.insert(plan.notes.end(), padded->notes.begin(), padded->notes.end());
  return plan;
}

}  // namespace

const std::vector<ir::Program>& Plan::Of(std::string_view name) const {
  const auto it = programs.find(name);
  MW_CHECK(it != programs.end()) << "the plan has no program '" << name << "'";
  return it->second;
}

int64_t Plan::DevicesOf(const ir::Program& program) const {
  if (scope == PlanScope::kAllDevices) return 1;
  return layout.DegreesOf(program.stage.value()).device_count();
}

Result<Graph> MakeStepGraph(const ir::JobRequest& job) {
  const ir::JobProgram* const trained = job.trained();
  MW_CHECK(trained != nullptr);
  MW_ASSIGN_OR_RETURN(Graph loss, InComputeTypes(job, trained->graph));
  if (job.train.compute_dtype == ir::DType::kF16) {
    const double tokens =
        static_cast<double>(job.train.global_batch) * static_cast<double>(job.train.sequence);
    MW_ASSIGN_OR_RETURN(
        loss, ir::ScaleLoss(loss, {job.train.loss_scale, tokens, job.train.loss_scale_window}));
  }
  MW_ASSIGN_OR_RETURN(Graph gradients, ir::Differentiate(loss));
  if (job.train.gradient_dtype != ir::DType::kF32) {
    MW_ASSIGN_OR_RETURN(gradients, ir::NarrowGradients(gradients));
  }
  MW_ASSIGN_OR_RETURN(gradients, ir::FoldCasts(gradients));
  ir::OptimizerSpec optimizer = job.optimizer;
  if (optimizer.total_steps == 0) optimizer.total_steps = job.train.steps;
  MW_ASSIGN_OR_RETURN(Graph step, ir::AppendUpdate(gradients, optimizer));
  return ReportInUpdate(std::move(step), OwnOutputs(trained->graph));
}

namespace {

Result<Plan> MakeAsked(const ir::JobRequest& job, const mesh::Topology& topology,
                       const Layout& layout, PlanScope scope, const ShardingChooser& choose) {
  MW_TRY(ir::ValidateJob(job));
  MW_ASSIGN_OR_RETURN(const int64_t host_update, ResolveHostUpdate(job, topology));
  std::optional<ir::JobRequest> sized = WithHeadBlocks(job, topology);
  if (!sized && host_update != job.parallel.host_update) sized = job;
  if (sized) sized->parallel.host_update = host_update;
  const ir::JobRequest& asked = sized ? *sized : job;
  if (layout.context() == 1 && layout.expert() == 1) {
    MW_ASSIGN_OR_RETURN(Plan plan, RunPadded(asked, topology, layout, scope, choose));
    WriteDecided(job, asked, topology, plan);
    return plan;
  }
  const mesh::Topology seen = TopologyOf(layout, topology);
  const CostModel costs(seen);
  std::vector<int> devices(static_cast<size_t>(layout.device_count()));
  std::iota(devices.begin(), devices.end(), 0);
  const double beside = ShareBeside(asked.parallel, layout, seen);
  MW_ASSIGN_OR_RETURN(const JobOnAxes placed,
                      PlaceOnAxes(asked, layout, {costs, devices, choose != nullptr, beside}));
  Result<Plan> plan = RunPadded(placed.job, topology, placed.layout, scope, choose);
  if (plan.has_value()) {
    plan->notes.insert(plan->notes.end(), placed.notes.begin(), placed.notes.end());
    WriteDecided(job, asked, topology, *plan);
    return plan;
  }
  const std::optional<ir::JobRequest> plain = PlainWays(asked, placed.layout);
  if (!plain || plan.error().code() != StatusCode::kResourceExhausted) return plan;
  Result<Plan> fits = MakeAsked(*plain, topology, layout, scope, choose);
  if (!fits.has_value()) return plan;
  fits->notes.push_back(fmt::format(
      "{}tokens go in one step, at once, which costs more: the job does not fit otherwise",
      kExpertNote));
  return fits;
}

}  // namespace

Result<Plan> MakePlanOf(const ir::JobRequest& job, const mesh::Topology& topology,
                        const Layout& layout, PlanScope scope, const ShardingChooser& choose) {
  Result<Plan> plan = MakeAsked(job, topology, layout, scope, choose);
  if (plan.has_value()) plan->made_notes = plan->notes;
  return plan;
}

}  // namespace meshwright::planner
