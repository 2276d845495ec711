#include "search/open_choices.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "planner/padding.h"
#include "planner/router_sweep.h"
#include "planner/schedule.h"
#include "planner/stages.h"
#include "planner/zero_levels.h"

namespace meshwright::search {
using planner::Recompute;

std::vector<int64_t> Divisors(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors;
}

namespace {

// A device with fewer tokens of a row waits for the others more than it computes.
constexpr int64_t kLeastTokens = 4096;

}  // namespace

int64_t CommonExperts(const ir::JobRequest& job) {
  int64_t common = 0;
  for (const ir::JobProgram& program : job.programs) {
    for (const NodeId id : program.graph.NodesOf(ir::Op::kExpertSlots)) {
      common = std::gcd(common, program.graph.node(id).attrs.Int("experts"));
    }
  }
  return common;
}

bool HasOpenContext(const ir::JobRequest& job) {
  return job.parallel.context == 0 && job.train.sequence >= 2 * kLeastTokens;
}

bool IsForTightMemory(const std::string& schedule) {
  return schedule == "v-half" || schedule == "v-min";
}

std::vector<Recompute> RecomputeModes(const ir::JobRequest& job) {
  const std::string& wanted = job.parallel.recompute;
  if (wanted == "gathers") return {Recompute::kGathers};
  if (wanted == "selective") return {Recompute::kSelective};
  if (wanted == "full") return {Recompute::kFull};
  if (wanted == "none" || !job.train.compile) return {Recompute::kNone};
  const bool gathers = job.parallel.tensor != 1 && job.parallel.sequence_parallel.value_or(true);
  if (!gathers) return {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  return {Recompute::kNone, Recompute::kGathers, Recompute::kSelective, Recompute::kFull};
}

OpenChoices::OpenChoices(const ir::JobRequest& job)
    : job_(job),
      layer_count_(std::max(1, planner::LayerCount(planner::FillLayers(job.main().graph)))),
      experts_(CommonExperts(job)),
      reads_whole_batch_(!planner::WholeBatchOf(job).empty()) {}

std::vector<int64_t> OpenChoices::TensorDegrees(int64_t devices, const ir::Graph& model) const {
  constexpr double kMostGrowth = 1.125;
  std::vector<int64_t> degrees;
  if (job_.parallel.tensor > 0) {
    if (job_.parallel.tensor <= devices) degrees.push_back(job_.parallel.tensor);
    return degrees;
  }
  for (const int64_t degree : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32}) {
    if (degree > devices) break;
    if (planner::PaddingGrowth(model, degree) <= kMostGrowth) degrees.push_back(degree);
  }
  return degrees;
}

std::vector<int64_t> OpenChoices::ExpertDegrees(int64_t replicas) const {
  if (job_.parallel.expert > 0) {
    const bool divides = replicas % job_.parallel.expert == 0;
    return divides ? std::vector<int64_t>{job_.parallel.expert} : std::vector<int64_t>{};
  }
  std::vector<int64_t> degrees = {1};
  for (const int64_t degree : Divisors(std::gcd(experts_, replicas))) {
    const bool power = (degree & (degree - 1)) == 0;
    if (experts_ > 1 && degree > 1 && (power || degree == experts_)) degrees.push_back(degree);
  }
  return degrees;
}

std::vector<int64_t> OpenChoices::ContextDegrees(int64_t most) const {
  if (job_.parallel.context > 0) return {job_.parallel.context};
  std::vector<int64_t> degrees = {1};
  const int64_t top = HasOpenContext(job_) ? std::min(most, job_.train.sequence / kLeastTokens) : 1;
  for (int64_t degree = 2; degree <= top; degree *= 2) {
    if (job_.train.sequence % degree == 0) degrees.push_back(degree);
  }
  return degrees;
}

std::vector<int64_t> OpenChoices::PipelineDegrees(int64_t most) const {
  if (job_.parallel.pipeline > 0) return {job_.parallel.pipeline};
  std::set<int64_t> degrees = {1};
  const int64_t top = std::min(most, layer_count_);
  for (int64_t p = 2; p <= top; ++p) {
    const bool power = (p & (p - 1)) == 0;
    if (p <= 8 || power || p == top || layer_count_ % p == 0) degrees.insert(p);
  }
  return {degrees.begin(), degrees.end()};
}

std::vector<int64_t> OpenChoices::Microbatches(int64_t rows_per_replica) const {
  if (job_.parallel.microbatches > 0) return {job_.parallel.microbatches};
  if (reads_whole_batch_) return {1};
  std::vector<int64_t> counts;
  for (const int64_t d : Divisors(rows_per_replica)) {
    const int64_t rows = rows_per_replica / d;
    // Many rows: every count; few: each number of rows that is a power of two.
    if (d <= 4 || (rows & (rows - 1)) == 0 || (d & (d - 1)) == 0) counts.push_back(d);
  }
  return counts;
}

std::vector<bool> OpenChoices::SequenceModes(int64_t tensor) const {
  if (tensor == 1) return {false};
  const std::optional<bool>& pinned = job_.parallel.sequence_parallel;
  const bool divides = job_.train.sequence % tensor == 0;
  if (pinned == true) return divides ? std::vector<bool>{true} : std::vector<bool>{};
  if (pinned == false || !divides) return {false};
  return {false, true};
}

std::vector<std::string> OpenChoices::Schedules(int64_t pipeline) const {
  if (job_.parallel.schedule != "auto") return {job_.parallel.schedule};
  if (pipeline == 1) return {"1f1b"};
  return {"1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"};
}

std::vector<int> OpenChoices::Chunks(const std::string& schedule, int64_t pipeline) const {
  if (job_.parallel.chunks > 0) return {static_cast<int>(job_.parallel.chunks)};
  if (schedule != "interleaved" || pipeline == 1) return {0};
  std::vector<int> chunks;
  for (const int v : {2, 3, 4, 6, 8}) {
    if (v * pipeline <= layer_count_) chunks.push_back(v);
  }
  return chunks;
}

std::vector<int64_t> OpenChoices::ZeroStages(int64_t data) const {
  if (data == 1) return {0};
  if (job_.parallel.zero >= 0) return {job_.parallel.zero};
  return {0, 1, 2, 3};
}

std::vector<planner::Layout> OpenChoices::Members(
    const planner::Layout& degrees, const std::vector<planner::Recompute>& recompute) const {
  std::vector<planner::Layout> members;
  for (const std::string& schedule : Schedules(degrees.pipeline)) {
    for (const int chunks : Chunks(schedule, degrees.pipeline)) {
      const auto shape =
          planner::ShapeOfSchedule(schedule, static_cast<int>(degrees.pipeline), chunks);
      if (!shape || (degrees.pipeline > 1 && shape->parts() > layer_count_)) continue;
      for (const int64_t zero : ZeroStages(degrees.degrees[planner::Axis::kData])) {
        planner::Layout layout = degrees;
        layout.schedule = schedule;
        layout.chunks = shape->chunks;
        layout.zero = zero;
        layout.recompute = recompute;
        members.push_back(std::move(layout));
      }
    }
  }
  return members;
}

bool OpenChoices::MayHoldOnePart() const {
  const std::string& wanted = job_.parallel.schedule;
  const auto shape = planner::ShapeOfSchedule(wanted == "auto" ? "1f1b" : wanted, /*stages=*/2,
                                              static_cast<int>(job_.parallel.chunks));
  return shape.has_value() && shape->chunks == 1;
}

namespace {

using planner::Axis;
using planner::Layout;

// Of a schedule between the plain ones and those without a bubble.
double LikelyBubble(const Layout& layout) {
  return 0.5 * static_cast<double>(layout.pipeline - 1) / static_cast<double>(layout.microbatches);
}

// Whether a device can only hold its part of the model if weights are gathered for every
// microbatch: asked of mixtures, where ranks that share experts are the other way out.
bool IsCrowded(const LayoutInput& whole, int64_t experts, const Layout& layout) {
  const int64_t memory = *std::max_element(whole.memory_bytes.begin(), whole.memory_bytes.end());
  if (memory == 0 || experts == 0) return false;
  const auto data = static_cast<double>(layout.degrees[Axis::kData]);
  double held = 0;
  for (const LayerModes* const modes : whole.layers.front().front()) {
    for (const ProbedWeight& weight : modes->at(whole.modes.front()).weights) {
      if (weight.shared) continue;
      const bool of_experts = weight.dims.size() == 3 && weight.dims.front() == experts;
      held += (static_cast<double>(2 * weight.bytes + weight.copy_bytes) +
               static_cast<double>(weight.optimizer_bytes) / data) /
              (of_experts ? static_cast<double>(layout.expert()) : 1);
    }
  }
  return held / static_cast<double>(layout.pipeline) > static_cast<double>(memory);
}

// One per number of microbatches.
void AddOfDegrees(const OpenChoices& choices, int64_t rows, double crowded, Family family,
                  std::vector<Family>& families) {
  for (const int64_t microbatches : choices.Microbatches(rows)) {
    if (rows % microbatches != 0) continue;
    family.layout.microbatches = microbatches;
    family.likely_s = crowded * family.least_s * (1 + LikelyBubble(family.layout));
    families.push_back(family);
  }
}

}  // namespace

void AddFamilies(const ir::JobRequest& job, const OpenChoices& choices, const Family& of_group,
                 const LayoutInput& whole, std::vector<Family>& families) {
  constexpr double kSlowerWhenCrowded = 1.5;
  const auto devices = static_cast<int64_t>(whole.memory_bytes.size());
  const int64_t batch = job.train.global_batch;
  const int64_t experts = CommonExperts(job);
  Family family = of_group;
  Layout& layout = family.layout;
  const auto add = [&] {
    if (layout.device_count() > devices) return;
    Layout once = layout;
    once.microbatches = 1;
    once.chunks = 2;  // no single layer need be a stage's
    family.least_s =
        LeastSeconds(whole, once) / static_cast<double>(layout.data() * layout.context());
    const double crowded = IsCrowded(whole, experts, layout) ? kSlowerWhenCrowded : 1;
    AddOfDegrees(choices, batch / layout.data(), crowded, family, families);
  };
  for (const int64_t data : Divisors(batch)) {
    if (job.parallel.data > 0 && data != job.parallel.data) continue;
    const int64_t most = devices / (layout.tensor() * data);
    for (const int64_t expert : choices.ExpertDegrees(data)) {
      layout.degrees[Axis::kData] = data / expert;
      layout.degrees[Axis::kExpert] = expert;
      if (!planner::CheckZeroGroups(layout).ok()) continue;
      for (const int64_t context : choices.ContextDegrees(most)) {
        layout.degrees[Axis::kContext] = context;
        for (const int64_t pipeline : choices.PipelineDegrees(most / context)) {
          layout.pipeline = pipeline;
          add();
        }
      }
    }
  }
}

void SortFamilies(std::vector<Family>& families) {
  const auto order = [](const Family& family) {
    const Layout& layout = family.layout;
    return std::tuple(family.likely_s, layout.device_count(), layout.pipeline, layout.tensor(),
                      layout.context(), layout.expert());
  };
  std::stable_sort(families.begin(), families.end(),
                   [&](const Family& a, const Family& b) { return order(a) < order(b); });
}

std::vector<double> LeastOfRest(const std::vector<Family>& families) {
  std::vector<double> rest_s(families.size());
  double least_s = std::numeric_limits<double>::infinity();
  for (size_t i = families.size(); i-- > 0;) {
    least_s = std::min(least_s, families[i].least_s);
    rest_s[i] = least_s;
  }
  return rest_s;
}

}  // namespace meshwright::search
