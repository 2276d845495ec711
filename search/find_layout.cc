#include "search/find_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "planner/forecast.h"
#include "planner/layout.h"
#include "planner/recompute.h"
#include "planner/stages.h"
#include "search/layer_probe.h"
#include "search/short_model.h"

namespace meshwright::search {
namespace {

using planner::Layout;
using planner::Recompute;

// Of a tensor degree and the rows of a microbatch: [class of devices][layer of the short model].
using ProbedLayers = std::vector<std::vector<LayerModes>>;

// Candidates that differ in schedule and ZeRO only.
struct Family {
  Layout layout;
  int64_t rows = 1;
  double least_s = 0;   // no member is faster
  double likely_s = 0;  // what is looked at first
};

std::vector<int64_t> Divisors(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors;
}

constexpr double kEqualRates = 0.95;

class Finder {
 public:
  Finder(const ir::JobRequest& job, const mesh::Topology& topology, const FindOptions& options,
         const Clock& clock)
      : job_(job),
        topology_(topology),
        options_(options),
        deadline_(Deadline::After(options.timeout_ms, clock)),
        costs_(topology),
        device_count_(static_cast<int64_t>(topology.devices.size())) {}

  Result<FoundLayout> Run() {
    MW_TRY(Prepare());
    MW_TRY(MakeFamilies());
    const std::vector<double> rest_s = LeastOfRest();
    for (size_t i = 0; i < families_.size(); ++i) {
      if (!found_.best.empty()) {
        const double best_s = found_.best.front().step_s;
        if (rest_s[i] >= best_s) break;
        if (deadline_.expired()) {
          found_.gap = GapTo(rest_s[i]);
          break;
        }
        if (families_[i].least_s >= best_s) continue;
      }
      MW_TRY(PriceFamily(families_[i]));
      if (!Report(rest_s[i])) {
        found_.gap = GapTo(rest_s[i]);
        break;
      }
    }
    if (found_.best.empty()) return Fail(NothingFits());
    return std::move(found_);
  }

 private:
  // ---- what is measured once ----

  Status Prepare() {
    ir::JobRequest filled = job_;
    filled.loss = planner::FillLayers(job_.loss);
    MW_ASSIGN_OR_RETURN(model_, ShortenModel(filled.loss));
    MW_ASSIGN_OR_RETURN(step_, MakeProbeStep(filled, model_));
    layer_count_ = std::max(1, planner::LayerCount(filled.loss));
    MW_TRY(ChooseModes());
    FindClasses();
    return OkStatus();
  }

  Status ChooseModes() {
    const std::string& wanted = job_.parallel.recompute;
    if (wanted == "auto") {
      modes_ = {Recompute::kNone};
      if (job_.train.compile) modes_ = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
      return OkStatus();
    }
    const Recompute mode = wanted == "full"        ? Recompute::kFull
                           : wanted == "selective" ? Recompute::kSelective
                                                   : Recompute::kNone;
    MW_ASSIGN_OR_RETURN(pinned_modes_, planner::RecomputeOfLayers(
                                           mode, job_.parallel.recompute_layers, layer_count_));
    modes_ = {mode};
    for (const Recompute own : pinned_modes_) {
      if (std::find(modes_.begin(), modes_.end(), own) == modes_.end()) modes_.push_back(own);
    }
    return OkStatus();
  }

  double RateOf(int device) const {
    return costs_.ProfileOf(device).RateOf(mesh::KernelClass::kProduct, ir::DType::kF32, 1e9);
  }

  // Devices of about the same rate are one class, as slow as its slowest: what workers measure
  // differs a little from one to the next. Classes go from fast to slow.
  void FindClasses() {
    all_devices_ = AllDevices();
    std::vector<int> devices = all_devices_;
    std::stable_sort(devices.begin(), devices.end(),
                     [&](int a, int b) { return RateOf(a) > RateOf(b); });
    for (const int device : devices) {
      const bool joins =
          !classes_.empty() && RateOf(device) >= kEqualRates * RateOf(classes_.back()[0]);
      if (!joins) classes_.emplace_back();
      classes_.back().push_back(device);
    }
    for (std::vector<int>& members : classes_) std::sort(members.begin(), members.end());
    class_of_device_.resize(static_cast<size_t>(device_count_));
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (const int device : classes_[c]) {
        class_of_device_[static_cast<size_t>(device)] = static_cast<int>(c);
      }
    }
    for (const mesh::Device& device : topology_.devices) memory_.push_back(device.memory_bytes);
    cores_ = planner::CoreUses(topology_);
  }

  // Nothing: the job cannot be split so.
  const ProbedLayers* Probe(int64_t tensor, int64_t rows, bool sequence_parallel) {
    const auto [it, fresh] = probes_.try_emplace({tensor, rows, sequence_parallel});
    if (!fresh) return it->second ? &*it->second : nullptr;
    ProbedLayers layers(classes_.size());
    for (size_t c = 0; c < classes_.size(); ++c) {
      layers[c].resize(static_cast<size_t>(std::max(1, model_.layers())));
      const std::vector<int> devices = TensorGroup(c, tensor);
      for (const Recompute mode : modes_) {
        const auto probed =
            ProbeLayers(step_, {tensor, rows, sequence_parallel, mode}, costs_, devices);
        if (!probed.has_value()) {
          refused_ = probed.error();
          return nullptr;
        }
        for (size_t layer = 0; layer < probed->size(); ++layer) {
          layers[c][layer][mode] = (*probed)[layer];
        }
      }
    }
    it->second = std::move(layers);
    return &*it->second;
  }

  // Neighbours of the class, the slowest first.
  std::vector<int> TensorGroup(size_t device_class, int64_t tensor) const {
    const auto size = static_cast<size_t>(tensor);
    const std::vector<int>& members =
        classes_[device_class].size() < size ? all_devices_ : classes_[device_class];
    const auto slower = [&](int a, int b) { return RateOf(a) < RateOf(b); };
    const auto at = static_cast<size_t>(std::min_element(members.begin(), members.end(), slower) -
                                        members.begin());
    const size_t begin = std::min(at / size * size, members.size() - size);
    const auto first = members.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<int> group(first, first + static_cast<std::ptrdiff_t>(size));
    std::iter_swap(group.begin(), std::min_element(group.begin(), group.end(), slower));
    return group;
  }

  std::vector<int> AllDevices() const {
    std::vector<int> devices(static_cast<size_t>(device_count_));
    std::iota(devices.begin(), devices.end(), 0);
    return devices;
  }

  LayoutInput InputOf(const ProbedLayers& layers) const {
    LayoutInput input;
    input.costs = &costs_;
    for (const auto& of_class : layers) {
      std::vector<const LayerModes*>& all = input.layers.emplace_back();
      if (model_.short_layer.empty()) all.push_back(&of_class[0]);
      for (const int layer : model_.short_layer) {
        all.push_back(&of_class[static_cast<size_t>(layer)]);
      }
    }
    input.modes = modes_;
    input.class_of_device = class_of_device_;
    input.cores = cores_;
    input.memory_bytes = memory_;
    input.bucket_bytes = job_.parallel.bucket_bytes;
    return input;
  }

  // ---- candidates ----

  std::vector<int64_t> TensorDegrees() const {
    if (job_.parallel.tensor > 0) return {job_.parallel.tensor};
    std::vector<int64_t> degrees;
    for (const int64_t degree : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32}) {
      if (degree <= device_count_) degrees.push_back(degree);
    }
    return degrees;
  }

  std::vector<int64_t> PipelineDegrees(int64_t most) const {
    if (job_.parallel.pipeline > 0) return {job_.parallel.pipeline};
    std::set<int64_t> degrees = {1};
    const int64_t top = std::min<int64_t>(most, planner::LayerCount(job_.loss));
    for (int64_t p = 2; p <= top; ++p) {
      const bool power = (p & (p - 1)) == 0;
      if (p <= 8 || power || p == top || layer_count_ % p == 0) degrees.insert(p);
    }
    return {degrees.begin(), degrees.end()};
  }

  std::vector<int64_t> Microbatches(int64_t rows_per_replica) const {
    if (job_.parallel.microbatches > 0) return {job_.parallel.microbatches};
    std::vector<int64_t> counts;
    for (const int64_t d : Divisors(rows_per_replica)) {
      const int64_t rows = rows_per_replica / d;
      // Many rows: every count; few: each number of rows that is a power of two.
      if (d <= 4 || (rows & (rows - 1)) == 0 || (d & (d - 1)) == 0) counts.push_back(d);
    }
    return counts;
  }

  Status MakeFamilies() {
    const int64_t batch = job_.train.global_batch;
    for (const int64_t tensor : TensorDegrees()) {
      for (const bool sequence_parallel : SequenceModes(tensor)) {
        const ProbedLayers* const whole = Probe(tensor, batch, sequence_parallel);
        if (!whole) continue;
        Family family;
        family.layout.tensor = tensor;
        family.layout.sequence_parallel = sequence_parallel;
        AddFamilies(family, InputOf(*whole));
      }
    }
    if (families_.empty()) return NoLegalLayout();
    std::stable_sort(families_.begin(), families_.end(), [](const Family& a, const Family& b) {
      return std::tuple(a.likely_s, a.layout.device_count(), a.layout.pipeline, a.layout.tensor) <
             std::tuple(b.likely_s, b.layout.device_count(), b.layout.pipeline, b.layout.tensor);
    });
    found_.candidates = static_cast<int64_t>(families_.size());
    return OkStatus();
  }

  // `whole`: layers on the rows of a whole batch, which no smaller number of rows beats per row.
  void AddFamilies(Family family, const LayoutInput& whole) {
    const int64_t batch = job_.train.global_batch;
    Layout& layout = family.layout;
    for (const int64_t data : Divisors(batch)) {
      if (job_.parallel.data > 0 && data != job_.parallel.data) continue;
      layout.data = data;
      for (const int64_t pipeline : PipelineDegrees(device_count_ / (layout.tensor * data))) {
        layout.pipeline = pipeline;
        if (layout.device_count() > device_count_) continue;
        Layout once = layout;
        once.microbatches = 1;
        once.chunks = 2;  // no single layer need be a stage's
        family.least_s = LeastSeconds(whole, once) / static_cast<double>(data);
        for (const int64_t microbatches : Microbatches(batch / data)) {
          if ((batch / data) % microbatches != 0) continue;
          layout.microbatches = microbatches;
          family.rows = batch / data / microbatches;
          family.likely_s = family.least_s * (1 + LikelyBubble(layout));
          families_.push_back(family);
        }
      }
    }
  }

  // Of a schedule between the plain ones and those without a bubble.
  static double LikelyBubble(const Layout& layout) {
    return 0.5 * static_cast<double>(layout.pipeline - 1) /
           static_cast<double>(layout.microbatches);
  }

  // Per family: the least bound of it and of all that come after it.
  std::vector<double> LeastOfRest() const {
    std::vector<double> rest_s(families_.size());
    double least_s = std::numeric_limits<double>::infinity();
    for (size_t i = families_.size(); i-- > 0;) {
      least_s = std::min(least_s, families_[i].least_s);
      rest_s[i] = least_s;
    }
    return rest_s;
  }

  // Open where the tensor degree is.
  std::vector<bool> SequenceModes(int64_t tensor) const {
    if (tensor == 1) return {false};
    if (job_.parallel.sequence_parallel) return {true};
    if (job_.parallel.tensor > 0 || job_.train.sequence % tensor != 0) return {false};
    return {false, true};
  }

  std::vector<Layout> MembersOf(const Family& family) const {
    std::vector<Layout> members;
    for (const std::string& schedule : Schedules(family.layout.pipeline)) {
      for (const int chunks : Chunks(schedule, family.layout.pipeline)) {
        const auto shape =
            planner::ShapeOfSchedule(schedule, static_cast<int>(family.layout.pipeline), chunks);
        if (!shape || (family.layout.pipeline > 1 && shape->parts() > layer_count_)) continue;
        if (shape->folded && family.layout.microbatches < 2 * family.layout.pipeline) continue;
        for (const int64_t zero : ZeroStages(family.layout.data)) {
          Layout layout = family.layout;
          layout.schedule = schedule;
          layout.chunks = shape->chunks;
          layout.zero = zero;
          layout.recompute = pinned_modes_;
          members.push_back(std::move(layout));
        }
      }
    }
    return members;
  }

  std::vector<std::string> Schedules(int64_t pipeline) const {
    if (job_.parallel.schedule != "auto") return {job_.parallel.schedule};
    if (pipeline == 1) return {"1f1b"};
    return {"1f1b", "interleaved", "zb-h1", "zb-v"};
  }

  std::vector<int> Chunks(const std::string& schedule, int64_t pipeline) const {
    if (job_.parallel.chunks > 0) return {static_cast<int>(job_.parallel.chunks)};
    if (schedule != "interleaved" || pipeline == 1) return {0};
    std::vector<int> chunks;
    for (const int v : {2, 3, 4, 6, 8}) {
      if (v * pipeline <= layer_count_) chunks.push_back(v);
    }
    return chunks;
  }

  std::vector<int64_t> ZeroStages(int64_t data) const {
    if (job_.parallel.zero >= 0) return {job_.parallel.zero};
    if (data == 1) return {0};
    return {0, 1, 2, 3};
  }

  // ---- pricing ----

  Status PriceFamily(const Family& family) {
    const ProbedLayers* const layers =
        Probe(family.layout.tensor, family.rows, family.layout.sequence_parallel);
    if (!layers) return OkStatus();
    const LayoutInput input = InputOf(*layers);
    const double give_up_s = GiveUpSeconds(family.layout);
    Layout split = family.layout;
    split.chunks = 2;
    if (LeastSeconds(input, split) >= give_up_s) return OkStatus();
    for (const Layout& layout : MembersOf(family)) {
      Layout wanted = layout;
      if (!job_.parallel.part_layers.empty()) {
        ir::JobRequest pinned = job_;
        pinned.parallel.pipeline = layout.pipeline;
        pinned.parallel.data = layout.data;
        pinned.parallel.tensor = layout.tensor;
        pinned.parallel.microbatches = layout.microbatches;
        pinned.parallel.schedule = layout.schedule;
        pinned.parallel.chunks = layout.chunks;
        const auto resolved = planner::ResolveLayout(pinned, device_count_, layer_count_);
        if (!resolved) {
          refused_ = resolved.error();
          continue;
        }
        wanted.part_layers = resolved->part_layers;
      }
      LayoutCost cost = CostOfLayout(input, wanted, GiveUpSeconds(wanted));
      ++found_.priced;
      if (std::isinf(cost.step_s)) continue;
      if (cost.missing_bytes > 0) {
        if (!nearest_ || cost.missing_bytes < nearest_->missing_bytes) nearest_ = std::move(cost);
      } else {
        Keep(std::move(cost));
      }
    }
    return OkStatus();
  }

  // What takes longer would not be kept, or is too slow to be worth it as an alternative.
  double GiveUpSeconds(const Layout& layout) const {
    constexpr double kWorstAlternative = 1.5;
    const std::vector<LayoutCost>& best = found_.best;
    if (best.empty()) return std::numeric_limits<double>::infinity();
    double give_up_s = kWorstAlternative * best.front().step_s;
    if (best.size() >= static_cast<size_t>(std::max(1, options_.alternatives))) {
      give_up_s = std::min(give_up_s, best.back().step_s);
    }
    for (const LayoutCost& other : best) {
      if (DegreesOf(other.layout) == DegreesOf(layout))
        give_up_s = std::min(give_up_s, other.step_s);
    }
    return give_up_s;
  }

  static std::tuple<int64_t, int64_t, int64_t> DegreesOf(const Layout& layout) {
    return {layout.data, layout.tensor, layout.pipeline};
  }

  // One per degrees, schedule's variants among them only the best.
  void Keep(LayoutCost cost) {
    std::vector<LayoutCost>& best = found_.best;
    const auto same = std::find_if(best.begin(), best.end(), [&](const LayoutCost& other) {
      return DegreesOf(other.layout) == DegreesOf(cost.layout);
    });
    const auto faster = [](const LayoutCost& a, const LayoutCost& b) {
      return a.step_s < b.step_s * (1 - 1e-9);
    };
    if (same != best.end()) {
      if (!faster(cost, *same)) return;
      *same = std::move(cost);
    } else {
      best.push_back(std::move(cost));
    }
    std::stable_sort(best.begin(), best.end(), faster);
    if (best.size() > static_cast<size_t>(std::max(1, options_.alternatives))) best.pop_back();
  }

  bool Report(double least_s) const {
    if (!options_.progress || found_.best.empty()) return true;
    return options_.progress(
        {found_.best.front().step_s, GapTo(least_s), found_.priced, found_.candidates});
  }

  double GapTo(double least_s) const {
    const double best_s = found_.best.front().step_s;
    return std::max(0.0, (best_s - least_s) / best_s);
  }

  // ---- what to say when there is no answer ----

  Status NoLegalLayout() const {
    // The planner says what is wrong with the pins.
    const auto resolved = planner::ResolveLayout(job_, device_count_, layer_count_);
    if (!resolved) return resolved.error();
    if (refused_) return *refused_;
    return InvalidArgument(fmt::format(
        "no layout of {} devices divides a global batch of {} rows as the job asks; leave degrees "
        "open or change the batch",
        device_count_, job_.train.global_batch));
  }

  Status NothingFits() const {
    if (!nearest_) return NoLegalLayout();
    const StageCost& stage = nearest_->stages[static_cast<size_t>(nearest_->tightest_stage)];
    return ResourceExhausted(fmt::format(
        "no layout fits: the nearest is {}, whose stage {} needs {:.1f} MiB per device, {:.1f} MiB "
        "too many ({:.1f} weights, gradients and optimizer, {:.1f} activations, {:.1f} transient)",
        nearest_->layout.ToString(), nearest_->tightest_stage, Mib(stage.memory_bytes()),
        Mib(nearest_->missing_bytes), Mib(stage.state_bytes), Mib(stage.kept_bytes),
        Mib(stage.transient_bytes)));
  }

  static double Mib(int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

  const ir::JobRequest& job_;
  const mesh::Topology& topology_;
  const FindOptions& options_;
  const Deadline deadline_;
  const planner::CostModel costs_;
  const int64_t device_count_;
  ShortModel model_;
  ProbeStep step_;
  int layer_count_ = 1;
  std::vector<Recompute> modes_;
  std::vector<Recompute> pinned_modes_;  // per layer; empty: open
  std::vector<int> all_devices_;
  std::vector<std::vector<int>> classes_;
  std::vector<int> class_of_device_;
  std::vector<planner::CoreUse> cores_;
  std::vector<int64_t> memory_;
  // By tensor degree, rows of a microbatch, sequence parallelism.
  std::map<std::tuple<int64_t, int64_t, bool>, std::optional<ProbedLayers>> probes_;
  std::vector<Family> families_;
  std::optional<Status> refused_;
  std::optional<LayoutCost> nearest_;
  FoundLayout found_;
};

}  // namespace

bool LeavesOpen(const ir::ParallelSpec& parallel) {
  return parallel.tensor == 0 || parallel.pipeline == 0 || parallel.schedule == "auto" ||
         parallel.zero < 0;
}

Result<FoundLayout> FindLayout(const ir::JobRequest& job, const mesh::Topology& topology,
                               const FindOptions& options, const Clock& clock) {
  MW_TRY(ir::ValidateJob(job));
  return Finder(job, topology, options, clock).Run();
}

}  // namespace meshwright::search
