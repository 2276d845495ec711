#include "rehearsal/rehearse.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "ir/verify.h"
#include "search/find_shardings.h"
#include "search/sharding_pins.h"

namespace meshwright::rehearsal {
namespace {

constexpr int kSteps = 2;
constexpr int64_t kValidationBatches = 2;
// Of all ranks together.
constexpr int64_t kMostBytes = int64_t{4} << 30;
constexpr const char* kComparedElsewhere[] = {"loss", "grad_norm"};

// What a run came to after each step.
struct Outcome {
  std::vector<worker::StepReport> reports;
  std::vector<std::vector<StateBlock>> state;
  double validation = 0;
};

Result<Outcome> RunSmall(planner::Plan plan, const SmallJob& small, uint64_t seed,
                         ops::Backend backend) {
  SyntheticTokens tokens(static_cast<int>(small.vocabulary), seed);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<VirtualCluster> cluster,
                      VirtualCluster::StartPlan(std::move(plan), seed, &tokens, backend));
  Outcome outcome;
  for (int64_t step = 0; step < kSteps; ++step) {
    MW_ASSIGN_OR_RETURN(std::vector<worker::StepReport> reports, cluster->Train(step, 1));
    MW_ASSIGN_OR_RETURN(std::vector<StateBlock> state, cluster->ReadState());
    MW_CHECK(reports.size() == 1) << reports.size() << " reports of one step";
    outcome.reports.push_back(std::move(reports.front()));
    outcome.state.push_back(std::move(state));
  }
  MW_ASSIGN_OR_RETURN(outcome.validation, cluster->Validate(kValidationBatches));
  return outcome;
}

// As many hosts as the layout's experts lie on.
mesh::Topology HostsFor(const planner::Layout& layout) {
  mesh::Topology topology = mesh::Topology::Local(static_cast<int>(layout.device_count()));
  if (layout.expert_hosts == 1) return topology;
  MW_CHECK(layout.expert() % layout.expert_hosts == 0) << layout.ToString();
  const int64_t of_host =
      layout.expert() / layout.expert_hosts * layout.context() * layout.tensor();
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    topology.devices[i].host = fmt::format("host{}", static_cast<int64_t>(i) / of_host);
    topology.devices[i].worker = topology.devices[i].host;
  }
  return topology;
}

Result<planner::Plan> PlanSmall(const SmallJob& small, bool by_search, const Clock& clock) {
  const mesh::Topology topology = HostsFor(small.layout);
  const planner::ShardingChooser chooser =
      by_search ? search::MakeShardingChooser(small.job, topology, {}, clock)
                : search::MakePinnedRules(small.job);
  return planner::MakePlanOf(small.job, topology, small.layout, planner::PlanScope::kAllDevices,
                             chooser);
}

Status CheckRanks(const planner::Layout& layout, int max_ranks) {
  const int64_t ranks = layout.device_count();
  if (ranks <= max_ranks) return OkStatus();
  const int64_t per_replica = ranks / std::max<int64_t>(layout.data(), 1);
  std::string fix = fmt::format("raise --max-ranks (at most {})", kMostRanks);
  if (layout.stage_degrees.empty() && per_replica <= max_ranks) {
    fix += fmt::format(
        ", or plan for {} devices with --set parallelism.data_parallel_replicate_degree={}: what "
        "replicas do does not depend on how many there are",
        per_replica * std::min<int64_t>(2, max_ranks / per_replica),
        std::min<int64_t>(2, max_ranks / per_replica));
  } else if (ranks > kMostRanks) {
    fix = fmt::format(
        "one replica has {} ranks; pin smaller degrees of [parallelism] (--set "
        "parallelism.pipeline_parallel_degree=..) for a rehearsal of fewer",
        per_replica);
  }
  return InvalidArgument(
      fmt::format("the layout ({}) has {} ranks, each of which would be a thread of this process; "
                  "at most {} are emulated: {}",
                  layout.ToString(), ranks, max_ranks, fix));
}

Status CheckMemory(const planner::Plan& plan) {
  int64_t bytes = 0;
  for (const planner::DeviceMemory& memory : plan.memory) bytes += memory.total_bytes;
  if (bytes <= kMostBytes) return OkStatus();
  return ResourceExhausted(fmt::format(
      "the small job takes {:.1f} GiB on {} emulated devices, and may take {:.1f}: degrees with "
      "large common divisors keep its sizes large; pin smaller ones with --set "
      "parallelism.tensor_parallel_degree=.. for the rehearsal",
      static_cast<double>(bytes) / (1 << 30), plan.memory.size(),
      static_cast<double>(kMostBytes) / (1 << 30)));
}

// Scalars that a job's loss gives out besides.
void CompareReports(int step, const worker::StepReport& expected, const worker::StepReport& actual,
                    double tolerance, std::vector<Check>& checks) {
  const auto compare = [&](const std::string& key, const std::string& name) {
    const auto wanted = expected.values.find(key);
    const auto found = actual.values.find(key);
    if (wanted == expected.values.end() || found == actual.values.end()) return;
    checks.push_back(CompareNumbers(fmt::format("{} of step {}", name, step), wanted->second,
                                    found->second, tolerance));
  };
  compare("loss", "loss");
  compare("grad_norm", "gradient norm");
  for (const auto& [key, value] : expected.values) {
    if (std::count(std::begin(kComparedElsewhere), std::end(kComparedElsewhere), key) == 0) {
      compare(key, key);
    }
  }
}

// What one device has, against what the ranks have.
Result<std::vector<Check>> CompareOutcomes(const std::vector<std::string>& params,
                                           const Outcome& one, const Outcome& many,
                                           double tolerance) {
  MW_CHECK(one.state.size() == kSteps && many.state.size() == kSteps) << "runs of other lengths";
  std::vector<Check> checks;
  for (int step = 0; step < kSteps; ++step) {
    const auto at = static_cast<size_t>(step);
    MW_ASSIGN_OR_RETURN(const auto expected, Assemble(one.state[at]));
    CompareReports(step + 1, one.reports[at], many.reports[at], tolerance, checks);
    if (step == 0) {
      checks.push_back(
          CompareTensors("gradients", params, "opt.m/", expected, many.state[at], tolerance));
    }
    checks.push_back(CompareTensors(fmt::format("weights after step {}", step + 1), params, "",
                                    expected, many.state[at], tolerance));
  }
  checks.push_back(CompareNumbers("validation loss", one.validation, many.validation, tolerance));
  return checks;
}

Status RunBoth(const SmallJob& small, const planner::Plan& plan, const RehearsalOptions& options,
               Rehearsal& rehearsal) {
  MW_ASSIGN_OR_RETURN(planner::Plan one,
                      planner::MakePlan(OnOneDevice(small.job), mesh::Topology::Local(1)));
  std::vector<std::string> params;
  for (const planner::ParamInfo& param : plan.params) params.push_back(param.name);
  MW_ASSIGN_OR_RETURN(const Outcome expected,
                      RunSmall(std::move(one), small, options.seed, ops::Backend::kReference));
  planner::Plan own = plan;
  if (options.tamper) options.tamper(own);
  const Result<Outcome> actual = RunSmall(std::move(own), small, options.seed, ops::Backend::kCpu);
  if (!actual.has_value()) {
    rehearsal.broken = fmt::format("the small job ends with: {}", actual.error().message());
    return OkStatus();
  }
  MW_ASSIGN_OR_RETURN(rehearsal.checks,
                      CompareOutcomes(params, expected, *actual, options.tolerance));
  const auto whole = Assemble(actual->state.back());
  if (!whole.has_value()) rehearsal.broken = whole.error().message();
  return OkStatus();
}

}  // namespace

bool Rehearsal::equal() const {
  return broken.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.equal; });
}

Result<ProgramsCheck> CheckPrograms(const planner::Plan& plan) {
  ProgramsCheck check;
  check.one_per_stage = plan.scope == planner::PlanScope::kOnePerStage;
  std::vector<const ir::Program*> all;
  for (const auto& [name, programs] : plan.programs) {
    for (const ir::Program& program : programs) all.push_back(&program);
  }
  MW_TRY(ir::VerifyPrograms(all, {.one_per_mesh = check.one_per_stage}));
  for (const ir::Program* program : all) {
    ++check.programs;
    check.instructions += static_cast<int64_t>(program->instructions.size());
    check.messages +=
        std::count_if(program->instructions.begin(), program->instructions.end(),
                      [](const ir::Instruction& each) { return each.op == ir::Opcode::kSend; });
  }
  return check;
}

namespace {

RehearsedWay ChunksWay(const char* key, int64_t of_job, int64_t small, const char* none) {
  RehearsedWay way{key, of_job > 1 ? fmt::format("{} chunks", of_job) : "no chunks", false, {}};
  way.rehearsed = of_job > 1 && small == of_job;
  if (of_job <= 1) {
    way.why_not = none;
  } else if (!way.rehearsed) {
    way.why_not = small > 1 ? fmt::format("the small job has {}", small)
                            : "the small job has nothing that divides into as many";
  }
  return way;
}

RehearsedWay OverlapWay(const planner::Plan& of_job, const planner::Plan& small) {
  const auto mode = [](const planner::Plan& plan) { return plan.Main().front().overlap; };
  if (mode(of_job) == ir::OverlapMode::kOff) {
    return {"overlap", "off", false, "collectives of the job run in their turn"};
  }
  if (mode(of_job) == ir::OverlapMode::kByDevice) {
    return {"overlap", "by device", false,
            "they run beside what computes on GPUs alone, and emulated devices are CPUs"};
  }
  if (mode(small) != ir::OverlapMode::kOn) {
    return {"overlap", "on", false, "collectives of the small job run in their turn"};
  }
  for (const ir::Program& program : small.Main()) {
    const auto& list = program.instructions;
    if (std::any_of(list.begin(), list.end(),
                    [](const auto& each) { return ir::IsTierCopy(each.op); })) {
      return {"overlap", "on", false, "copies between memories have the threads for that"};
    }
  }
  return {"overlap", "on", true, {}};
}

}  // namespace

std::vector<RehearsedWay> RehearsedWays(const planner::Plan& of_job, const planner::Plan& small) {
  return {
      ChunksWay("expert_parallel_chunks", of_job.layout.expert_chunks, small.layout.expert_chunks,
                of_job.layout.expert() > 1 ? "rows go to experts at once"
                                           : "no rows go to experts of other devices"),
      ChunksWay(
          "tensor_parallel_chunks", of_job.layout.tensor_chunks, small.layout.tensor_chunks,
          of_job.layout.tensor() > 1 ? "products are computed whole" : "there is no tensor group"),
      OverlapWay(of_job, small)};
}

Result<Rehearsal> Rehearse(const config::JobConfig& config, const config::PreparedJob& prepared,
                           const search::FoundPlan& found, const RehearsalOptions& options,
                           const Clock& clock) {
  const int64_t begin_ns = clock.NowNs();
  const planner::Plan& plan = found.plan;
  if (prepared.request.trained() == nullptr) {
    return Fail(Unimplemented("nothing is trained here, and only training steps are rehearsed"));
  }
  Rehearsal rehearsal;
  rehearsal.layout = plan.layout.ToString();
  rehearsal.ranks = plan.layout.device_count();
  rehearsal.tolerance = options.tolerance;
  MW_ASSIGN_OR_RETURN(rehearsal.programs, CheckPrograms(plan));
  MW_TRY(CheckRanks(plan.layout, options.max_ranks));
  MW_ASSIGN_OR_RETURN(const SmallJob small,
                      MakeSmallJob(config, prepared.model, plan, found.by_search));
  rehearsal.sizes = small.sizes;
  rehearsal.small_model = small.model_summary;
  rehearsal.rows = small.job.train.global_batch;
  rehearsal.tokens = small.job.train.sequence;
  auto planned = PlanSmall(small, found.by_search, clock);
  if (!planned) return Fail(planned.error().WithContext("the small job of the rehearsal"));
  rehearsal.ways = RehearsedWays(plan, *planned);
  MW_TRY(CheckMemory(*planned));
  MW_TRY(RunBoth(small, *planned, options, rehearsal));
  rehearsal.seconds = static_cast<double>(clock.NowNs() - begin_ns) / 1e9;
  return rehearsal;
}

}  // namespace meshwright::rehearsal
