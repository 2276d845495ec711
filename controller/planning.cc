#include "controller/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "checkpoint/assign.h"
#include "controller/input_rows.h"
#include "ir/text.h"
#include "mesh/measured_factors.h"
#include "planner/forecast.h"
#include "planner/layout.h"
#include "planner/resolve_layout.h"
#include "proto/job_codec.h"

namespace meshwright::controller {
namespace {

Status StorePrograms(const planner::Plan& plan, BlobStore& blobs, PlannedJob& planned) {
  planned.devices.resize(plan.Main().size());
  for (const auto& [name, programs] : plan.programs) {
    if (programs.size() != planned.devices.size()) {
      return Internal(fmt::format("the plan has {} programs '{}' for {} devices", programs.size(),
                                  name, planned.devices.size()));
    }
    planned.programs.push_back(name);
    for (size_t i = 0; i < programs.size(); ++i) {
      MW_ASSIGN_OR_RETURN(ir::BlobRef ref, blobs.PutBytes(ir::FormatProgram(programs[i]),
                                                          fmt::format("{}/{}", name, i)));
      planned.devices[i].programs.push_back(std::move(ref));
    }
  }
  return OkStatus();
}

// Budgets are those of the device at the same rank; without one the largest need is shown alone.
void SetMemory(const planner::Plan& plan, const mesh::Topology& topology, PlannedJob& planned) {
  const mesh::Topology seen = planner::TopologyOf(plan.layout, topology);
  double fullest = -1;
  for (size_t i = 0; i < plan.memory.size(); ++i) {
    const int64_t need = plan.memory[i].total_bytes;
    const int64_t budget = i < seen.devices.size() ? seen.devices[i].memory_bytes : 0;
    const double share =
        static_cast<double>(need) / static_cast<double>(std::max<int64_t>(budget, 1));
    if (share <= fullest) continue;
    fullest = share;
    planned.device_memory_bytes = need;
    planned.device_budget_bytes = budget;
  }
}

// What each device gives out of the state, and of that the weights.
void SetTiles(const std::vector<ir::Program>& programs, PlannedJob& planned) {
  std::vector<std::vector<std::string>> state = checkpoint::AssignBoxes(programs);
  MW_CHECK(state.size() == planned.devices.size()) << "tiles of " << state.size() << " devices";
  for (size_t i = 0; i < state.size(); ++i) {
    std::set<std::string> weights;
    for (const ir::Slot& slot : programs[i].slots) {
      if (slot.persistent && slot.kind == ir::MemoryKind::kWeights) weights.insert(slot.name);
    }
    for (const std::string& name : state[i]) {
      if (weights.contains(name)) planned.devices[i].saved_slots.push_back(name);
    }
    planned.devices[i].state_slots = std::move(state[i]);
  }
  planned.boxes = checkpoint::StateBoxes(programs);
}

// In the type that products compute in. A device without a profile could do anything.
double PeakOf(const planner::Plan& plan, const mesh::Topology& topology,
              const ir::JobRequest& job) {
  for (const mesh::Device& device : topology.devices) {
    if (device.profile == nullptr) return 0;
  }
  ir::DType dtype = job.train.compute_dtype;
  const ValueId loss = job.main().graph.Output("loss_sum");
  if (dtype == ir::DType::kF32 && loss.valid()) dtype = job.main().graph.type(loss).dtype;
  return planner::PeakFlopsPerS(plan, topology, dtype);
}

Status WriteFiles(const planner::Plan& plan, const ir::JobRequest& job, const PlanFiles& files) {
  MW_TRY(MakeDirs(files.job_dir));
  const std::string text = planner::FormatPlan(plan, false);
  if (files.ahead) {
    return WriteFileAtomic(
        fmt::format("{}/plan-ahead-{}.txt", files.job_dir, plan.layout.device_count()), text);
  }
  MW_TRY(WriteFileAtomic(files.job_dir + "/plan.txt", text));
  MW_TRY(WriteFileAtomic(files.job_dir + "/config.resolved.toml", job.config_text));
  return WriteFileAtomic(files.job_dir + "/request", proto::EncodeJob(job));
}

}  // namespace

int64_t VocabularyOf(const ir::Graph& loss) {
  int64_t rows = 0;
  for (NodeId id : loss.NodesOf(ir::Op::kEmbedding)) {
    const ir::TensorType& table = loss.type(loss.node(id).inputs[0]);
    if (!table.dims.empty()) rows = std::max(rows, table.dims[0]);
  }
  return rows;
}

Result<PlannedJob> PlanJob(const PlanFunction& make_plan, const ir::JobRequest& job,
                           const mesh::Topology& topology, BlobStore& blobs, const PlanFiles& files,
                           bool& misfit) {
  const auto begin = std::chrono::steady_clock::now();
  auto made = make_plan(job, topology);
  misfit = !made.has_value() && (made.error().code() == StatusCode::kInvalidArgument ||
                                 made.error().code() == StatusCode::kResourceExhausted);
  MW_TRY(made);
  for (std::string& note : mesh::MeasuredNotes(topology)) made->notes.push_back(std::move(note));
  const auto kept = std::make_shared<const planner::Plan>(*std::move(made));
  const planner::Plan& plan = *kept;
  if (!plan.programs.contains(plan.main)) {
    return Fail(Internal(fmt::format("the plan has no program '{}'", plan.main)));
  }
  PlannedJob planned;
  planned.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  planned.layout = plan.layout.ToString();
  planned.degrees = job.parallel;
  planner::PinDegrees(plan.layout, planned.degrees);
  planned.placement = plan.layout.devices;
  planned.notes = plan.notes;
  planned.vocabulary = VocabularyOf(job.main().graph);
  SetMemory(plan, topology, planned);
  planned.peak_flops_per_s = PeakOf(plan, topology, job);
  MW_TRY(WriteFiles(plan, job, files));
  if (files.listener) {
    files.listener(MadePlan{files.job, files.ahead, files.job_dir,
                            std::make_shared<const ir::JobRequest>(job), kept, topology});
  }
  MW_TRY(StorePrograms(plan, blobs, planned));
  planned.lists = std::make_shared<const StepLists>(plan.programs);
  MW_ASSIGN_OR_RETURN(planned.graph,
                      blobs.PutBytes(ir::FormatGraph(job.main().graph), "graph of the state"));
  const std::vector<std::string> inputs = ir::ClientInputsOf(job);
  for (uint32_t p = 0; p < planned.programs.size(); ++p) {
    const std::vector<ir::Program>& programs = plan.Of(planned.programs[p]);
    for (size_t i = 0; i < programs.size(); ++i) {
      for (const auto& [input, rows] : InputRowsOf(programs[i], inputs)) {
        planned.devices[i].input_rows[{p, input}] = rows;
      }
    }
  }
  SetTiles(plan.Main(), planned);
  return planned;
}

}  // namespace meshwright::controller
