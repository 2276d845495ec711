#include "search/find_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "planner/forecast.h"
#include "planner/layout.h"
#include "planner/overlap.h"
#include "planner/recompute_modes.h"
#include "planner/resolve_layout.h"
#include "planner/stages.h"
#include "planner/step_pieces.h"
#include "planner/zero_levels.h"
#include "search/device_classes.h"
#include "search/layer_probe.h"
#include "search/open_choices.h"
#include "search/short_model.h"
#include "search/stage_layouts.h"

namespace meshwright::search {
namespace {

using planner::Degrees;
using planner::Layout;
using planner::Recompute;

// Of a tensor degree, the rows of a microbatch and a mode: [class of devices][layer of the short
// model].
using ProbedMode = std::vector<std::vector<LayerProbe>>;
using ProbedLayers = std::vector<std::vector<LayerModes>>;

// As programs of the layout will run. Copies of CPU devices have the threads for that.
double ShareBeside(const ir::ParallelSpec& parallel, const mesh::Topology& topology,
                   const Layout& layout) {
  if (layout.devices.empty()) return planner::ShareBeside(parallel, layout, topology);
  return planner::ShareBeside(parallel, layout, planner::TopologyOf(layout, topology));
}

// Degrees of experts and context that are worth a search for stages: the least ones, and those of
// the best equal stages; all, where none of these fits.
std::set<std::pair<int64_t, int64_t>> SharesOfStages(const OpenChoices& choices, int64_t devices,
                                                     const std::vector<LayoutCost>& best) {
  std::set<std::pair<int64_t, int64_t>> shares;
  for (const int64_t expert : choices.ExpertDegrees(OpenChoices::kAnyReplicas)) {
    for (const int64_t context : choices.ContextDegrees(devices)) {
      if (shares.empty() || best.empty()) shares.emplace(expert, context);
    }
  }
  for (const LayoutCost& cost : best) shares.emplace(cost.layout.expert(), cost.layout.context());
  return shares;
}

double Mib(int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

// Less is told in bytes.
constexpr int64_t kShownMissing = 1 << 20;

// Of a layout that does not fit.
std::string NearestText(const LayoutCost& nearest, const ir::ParallelSpec& asked) {
  const StageCost& stage = nearest.stages[static_cast<size_t>(nearest.tightest_stage)];
  std::string farther;
  for (const planner::MemoryPin& pin : planner::kMemoryPins) {
    if (asked.*pin.memory == "device")
      farther += fmt::format("{}{}_memory", farther.empty() ? "" : ", ", pin.kind);
  }
  if (!farther.empty()) {
    farther =
        fmt::format("; a farther memory may take some of it: parallelism.{} = \"auto\"", farther);
  }
  return fmt::format(
      "no layout fits: the nearest is {}, whose stage {} needs {:.1f} MiB per device, {} "
      "too many ({:.1f} weights, gradients and optimizer, {:.1f} {}, {:.1f} transient){}",
      nearest.layout.ToString(), nearest.tightest_stage, Mib(stage.memory_bytes()),
      nearest.missing_bytes < kShownMissing ? FormatBytes(nearest.missing_bytes)
                                            : fmt::format("{:.1f} MiB", Mib(nearest.missing_bytes)),
      Mib(stage.state_bytes), Mib(std::max(stage.kept_bytes, stage.update_bytes)),
      stage.kept_bytes >= stage.update_bytes ? "activations" : "gradients on their way",
      Mib(stage.transient_bytes), farther);
}

std::tuple<Degrees, int64_t, std::string> DegreesOf(const Layout& layout) {
  return {layout.degrees, layout.pipeline, planner::FormatStageDegrees(layout.stage_degrees)};
}

// What takes longer would not be kept, or is too slow to be worth it as an alternative.
double GiveUpAmong(const std::vector<LayoutCost>& best, const Layout& layout, int alternatives) {
  constexpr double kWorstAlternative = 1.5;
  if (best.empty()) return std::numeric_limits<double>::infinity();
  double give_up_s = kWorstAlternative * best.front().step_s;
  if (best.size() >= static_cast<size_t>(std::max(1, alternatives))) {
    give_up_s = std::min(give_up_s, best.back().step_s);
  }
  for (const LayoutCost& other : best) {
    if (DegreesOf(other.layout) == DegreesOf(layout)) give_up_s = std::min(give_up_s, other.step_s);
  }
  return give_up_s;
}

// One per degrees, schedule's variants among them only the best.
void KeepAmong(std::vector<LayoutCost>& best, LayoutCost cost, int alternatives) {
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
  if (best.size() > static_cast<size_t>(std::max(1, alternatives))) best.pop_back();
}

class Finder {
 public:
  Finder(const ir::JobRequest& job, const mesh::Topology& topology, const FindOptions& options,
         const SearchTime& time, const LeftOut& left_out)
      : job_(job),
        topology_(topology),
        options_(options),
        time_(time),
        left_out_(left_out),
        costs_(topology),
        device_count_(static_cast<int64_t>(topology.devices.size())),
        choices_(job) {}

  Result<FoundLayout> Run() {
    MW_TRY(Prepare());
    if (job_.parallel.stage_meshes.empty()) MW_TRY(PriceFamilies());
    const double equal_s =
        found_.best.empty() ? std::numeric_limits<double>::infinity() : found_.best.front().step_s;
    MW_TRY(PriceUnequalStages());
    if (found_.best.empty()) return Fail(NothingFits());
    const bool differ = found_.best.front().step_s < equal_s;
    found_.deciders.Add(differ ? Decider::kStageSearch : Decider::kEqualStages);
    found_.microbatches = microbatches_.Take();
    return std::move(found_);
  }

 private:
  Status PriceFamilies() {
    MW_TRY(MakeFamilies());
    const std::vector<double> rest_s = LeastOfRest(families_);
    std::vector<bool> priced(families_.size());
    for (size_t i = 0; i < families_.size(); ++i) {
      if (!found_.best.empty()) {
        const double best_s = found_.best.front().step_s;
        if (rest_s[i] >= best_s) break;
        if (!IsOver() && families_[i].least_s >= best_s) continue;
      }
      priced[i] = i == 0 || !IsOver();
      if (priced[i]) PriceFamily(families_[i].layout);
      if (timed_out_ || !Report(rest_s[i])) {
        if (!found_.best.empty()) found_.gap = GapTo(rest_s[i]);
        break;
      }
    }
    for (size_t i = 0; i < families_.size(); ++i) {
      if (!priced[i]) microbatches_.AddBound(families_[i].layout, families_[i].least_s);
    }
    return OkStatus();
  }

  // ---- what is measured once ----

  Status Prepare() {
    ir::JobRequest filled = job_;
    filled.SetLoss(planner::FillLayers(job_.main().graph));
    MW_ASSIGN_OR_RETURN(model_, ShortenModel(filled.main().graph));
    MW_ASSIGN_OR_RETURN(step_, MakeProbeStep(filled, model_));
    layer_count_ = std::max(1, planner::LayerCount(filled.main().graph));
    MW_ASSIGN_OR_RETURN(context_attention_,
                        planner::ParseContextAttention(job_.parallel.context_attention));
    MW_TRY(ChooseModes());
    SetDevices();
    return OkStatus();
  }

  Status ChooseModes() {
    modes_ = RecomputeModes(job_);
    if (job_.parallel.recompute == "auto") return OkStatus();
    MW_ASSIGN_OR_RETURN(
        pinned_modes_,
        planner::RecomputeOfLayers(modes_.front(), job_.parallel.recompute_layers, layer_count_));
    for (const Recompute own : pinned_modes_) {
      if (std::find(modes_.begin(), modes_.end(), own) == modes_.end()) modes_.push_back(own);
    }
    return OkStatus();
  }

  void SetDevices() {
    cores_ = planner::CoreUses(topology_);
    const std::vector<double> rates = RatesOfDevices(costs_, cores_);
    classes_ = ClassesOfDevices(rates);
    groups_.emplace(classes_, rates, costs_);
    class_of_device_.resize(static_cast<size_t>(device_count_));
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (const int device : classes_[c]) {
        class_of_device_[static_cast<size_t>(device)] = static_cast<int>(c);
      }
    }
    for (const mesh::Device& device : topology_.devices) memory_.push_back(device.memory_bytes);
  }

  // Nothing: the job cannot be split so.
  const ProbedMode* Probe(Degrees degrees, int64_t rows, bool sequence_parallel, Recompute mode) {
    degrees[planner::Axis::kData] = 1;
    const auto [it, fresh] = probes_.try_emplace({degrees, rows, sequence_parallel, mode});
    if (!fresh) return it->second ? &*it->second : nullptr;
    const ProbeOptions options = {degrees, context_attention_, rows, sequence_parallel, mode};
    ProbedMode probed;
    for (size_t c = 0; c < classes_.size(); ++c) {
      const ProbeDevices& devices = groups_->Of(c, static_cast<size_t>(degrees.device_count()));
      auto layers = ProbeLayers(step_, options, costs_, devices);
      if (!layers.has_value()) {
        const ir::ParallelSpec& pins = job_.parallel;
        if (pins.tensor > 0 || pins.expert > 1 || pins.context > 1) refused_ = layers.error();
        return nullptr;
      }
      probed.push_back(*std::move(layers));
    }
    it->second = std::move(probed);
    return &*it->second;
  }

  // The layers of a stage with these degrees, with what ZeRO splits over its replicas; short layers
  // as those of the whole model. Null: the job cannot be split so.
  const LayerTable* Table(const Degrees& degrees, int64_t microbatches, bool sequence_parallel,
                          const std::vector<Recompute>& modes) {
    const int64_t rows = job_.train.global_batch / microbatches / degrees.data();
    const auto [at, fresh] =
        tables_.try_emplace({degrees, rows, sequence_parallel, modes.size() > 1});
    auto& [layers, table] = at->second;
    if (!fresh) return table.empty() ? nullptr : &table;
    layers.resize(classes_.size());
    for (const Recompute mode : modes) {
      const ProbedMode* const probed = Probe(degrees, rows, sequence_parallel, mode);
      if (probed == nullptr) return nullptr;
      const int64_t split = planner::GroupSize(degrees[planner::Axis::kData], zero_groups_,
                                               planner::ZeroKind::kOptimizer);
      for (size_t c = 0; c < classes_.size(); ++c) {
        layers[c].resize((*probed)[c].size());
        for (size_t layer = 0; layer < layers[c].size(); ++layer) {
          const LayerProbe& probe = layers[c][layer].probes[mode] = (*probed)[c][layer];
          layers[c][layer].zero = SplitOver(probe, split, job_.parallel.zero_min_bytes);
        }
      }
    }
    for (const auto& of_class : layers) {
      std::vector<const LayerModes*>& all = table.emplace_back();
      if (model_.short_layer.empty()) all.push_back(&of_class[0]);
      for (const int layer : model_.short_layer) {
        all.push_back(&of_class[static_cast<size_t>(layer)]);
      }
    }
    return &table;
  }

  // Nothing: the job cannot be split so.
  std::optional<LayoutInput> InputOf(const Layout& layout, const std::vector<Recompute>& modes) {
    LayoutInput input;
    const int tables = layout.stage_degrees.empty() ? 1 : static_cast<int>(layout.pipeline);
    for (int stage = 0; stage < tables; ++stage) {
      const Degrees& degrees = layout.DegreesOf(stage);
      const LayerTable* const table = Table(
          degrees, layout.microbatches, layout.sequence_parallel && degrees.tensor() > 1, modes);
      if (table == nullptr) return std::nullopt;
      input.layers.push_back(*table);
    }
    input.costs = &costs_;
    input.modes = modes;
    input.class_of_device = class_of_device_;
    input.cores = cores_;
    input.memory_bytes = memory_;
    input.bucket_bytes = job_.parallel.bucket_bytes;
    input.beside = [this](const Layout& of) { return ShareBeside(job_.parallel, topology_, of); };
    return input;
  }

  // ---- candidates ----

  Status MakeFamilies() {
    MW_ASSIGN_OR_RETURN(zero_groups_, planner::ZeroGroupsOf(job_.parallel));
    for (const int64_t tensor : choices_.TensorDegrees(device_count_, model_.loss)) {
      for (const bool sequence_parallel : choices_.SequenceModes(tensor)) {
        if (!families_.empty() && IsOver()) break;
        Family family;
        family.layout.degrees[planner::Axis::kTensor] = tensor;
        family.layout.sequence_parallel = sequence_parallel;
        family.layout.context_attention = context_attention_;
        family.layout.zero_groups = zero_groups_;
        // Of the rows of a whole batch.
        const auto whole = InputOf(family.layout, CheapestMode());
        if (whole) AddFamilies(job_, choices_, family, *whole, families_);
      }
    }
    if (families_.empty()) return NoLegalLayout();
    SortFamilies(families_);
    found_.candidates = static_cast<int64_t>(families_.size());
    return OkStatus();
  }

  // ---- pricing ----

  std::vector<Recompute> CheapestMode() const { return {modes_.front()}; }

  // Layouts with the degrees of `family`, of every stage or of each. Most are too slow or fit
  // without recomputation: other modes are probed where a member needs them.
  void PriceFamily(const Layout& family) {
    std::optional<LayoutInput> input = InputOf(family, CheapestMode());
    if (!input) return;
    LayoutMemo memo;
    input->memo = &memo;
    Layout halved = family;
    halved.chunks = 2;
    const double least_s = LeastSeconds(*input, halved);
    if (least_s >= GiveUpSeconds(family)) return microbatches_.AddBound(family, least_s);
    std::optional<LayoutInput> input_of_all;
    std::set<int64_t> tight;  // ZeRO stages with which zb-v does not fit as it is
    bool any = false;
    for (const Layout& layout : MembersByBound(family, *input)) {
      if (any && IsOver()) return microbatches_.Forget(family);
      if (LeavesMemory(layout, tight)) continue;
      any = true;
      LayoutCost cost;
      cost.missing_bytes = 1;
      const double give_up_s = GiveUpSeconds(layout);
      if (pinned_modes_.empty()) cost = CostOfLayout(*input, layout, give_up_s);
      if (cost.missing_bytes > 0 && layout.schedule == "zb-v") tight.insert(layout.zero);
      if (cost.missing_bytes > 0 && (modes_.size() > 1 || !pinned_modes_.empty())) {
        if (!input_of_all) {
          input_of_all = InputOf(family, modes_);
          if (!input_of_all) return;
          input_of_all->memo = &memo;
        }
        cost = CostOfLayout(*input_of_all, layout, give_up_s);
      }
      Take(layout, std::move(cost), give_up_s);
    }
  }

  // A schedule that would hold less, and wait for it, where there is room. Members of one bound
  // stay in the order of OpenChoices, so that zb-v came before.
  bool LeavesMemory(const Layout& layout, const std::set<int64_t>& tight) const {
    return job_.parallel.schedule == "auto" && IsForTightMemory(layout.schedule) &&
           !tight.contains(layout.zero);
  }

  // The likely best first, so that few of the others need the table of their schedule.
  std::vector<Layout> MembersByBound(const Layout& family, const LayoutInput& input) {
    std::vector<std::pair<double, Layout>> bounded;
    for (Layout& member : OnFastDevicesToo(choices_.Members(family, pinned_modes_), classes_)) {
      // Those of the stage search are of stages that hold one part each.
      if (member.chunks > 1) member.part_layers.clear();
      std::optional<Layout> layout = WithPinnedParts(std::move(member));
      if (!layout) continue;
      ++found_.priced;
      const double bound_s = pinned_modes_.empty() ? BoundOfLayout(input, *layout) : 0;
      if (bound_s >= GiveUpSeconds(*layout)) {
        microbatches_.AddBound(*layout, bound_s);
        continue;
      }
      bounded.emplace_back(bound_s, *std::move(layout));
    }
    std::stable_sort(bounded.begin(), bounded.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Layout> layouts;
    for (auto& [bound_s, layout] : bounded) layouts.push_back(std::move(layout));
    return layouts;
  }

  // `give_up_s`: what it takes at least, where it was given up.
  void Take(const Layout& layout, LayoutCost cost, double give_up_s) {
    if (std::isinf(cost.step_s)) return microbatches_.AddBound(layout, give_up_s);
    if (left_out_ && left_out_(cost.layout)) return;
    microbatches_.Add(cost);
    if (cost.missing_bytes == 0) return Keep(std::move(cost));
    if (!nearest_ || cost.missing_bytes < nearest_->missing_bytes) nearest_ = std::move(cost);
  }

  // Nothing: the job's parts contradict the layout.
  std::optional<Layout> WithPinnedParts(Layout layout) {
    if (job_.parallel.part_layers.empty()) return layout;
    ir::JobRequest pinned = job_;
    planner::PinDegrees(layout, pinned.parallel);
    const auto resolved = planner::ResolveLayout(pinned, device_count_, layer_count_);
    if (!resolved) {
      refused_ = resolved.error();
      return std::nullopt;
    }
    layout.part_layers = resolved->part_layers;
    return layout;
  }

  double GiveUpSeconds(const Layout& layout) const {
    return GiveUpAmong(found_.best, layout, options_.alternatives);
  }
  void Keep(LayoutCost cost) { KeepAmong(found_.best, std::move(cost), options_.alternatives); }

  bool IsOver() {
    timed_out_ = timed_out_ || time_.IsOver(!found_.best.empty());
    return timed_out_;
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

  // ---- stages on meshes of different sizes ----

  // Large clusters of equal hosts have an equal layout about as good as any.
  static constexpr int64_t kManyDevices = 64;

  Status PriceUnequalStages() {
    const ir::ParallelSpec& pinned = job_.parallel;
    if (!pinned.stage_meshes.empty()) return PricePinnedMeshes();
    const bool open = pinned.data == 0 && pinned.tensor == 0 && pinned.pipeline != 1 &&
                      pinned.part_layers.empty() && choices_.MayHoldOnePart() &&
                      zero_groups_ == planner::ZeroGroups{};
    const bool worth = classes_.size() > 1 || device_count_ <= kManyDevices;
    if (!open || !worth || device_count_ == 1) return OkStatus();
    for (const auto& [expert, context] : SharesOfStages(choices_, device_count_, found_.best)) {
      for (const bool sequence_parallel : choices_.SequenceModes(2)) {
        PriceStages(expert, context, sequence_parallel);
      }
    }
    return OkStatus();
  }

  // The best stages of each number of microbatches.
  void PriceStages(int64_t expert, int64_t context, bool sequence_parallel) {
    for (const int64_t microbatches : choices_.Microbatches(job_.train.global_batch)) {
      if (time_.IsOver(true) || expert * context > device_count_) return;
      if (job_.train.global_batch % microbatches != 0) continue;
      std::optional<Layout> layout = FindStages(microbatches, expert, context, sequence_parallel);
      // Stages that share experts among fewer are those of a smaller degree.
      if (!layout || layout->expert() != expert) continue;
      layout->sequence_parallel = sequence_parallel && layout->tensor() > 1;
      layout->context_attention = context_attention_;
      PriceFamily(*layout);
    }
  }

  std::optional<Layout> FindStages(int64_t microbatches, int64_t expert, int64_t context,
                                   bool sequence_parallel) {
    constexpr int64_t kMostMs = 2'000;
    StageLayoutProblem problem;
    problem.job = &job_;
    problem.topology = &topology_;
    problem.costs = &costs_;
    problem.classes = classes_;
    problem.modes = modes_;
    if (!pinned_modes_.empty()) problem.modes.resize(1);
    problem.tensor_degrees = choices_.TensorDegrees(device_count_, model_.loss);
    problem.layers_of = [&](const Degrees& degrees) {
      return Table(degrees, microbatches, sequence_parallel && degrees.tensor() > 1, modes_);
    };
    problem.expert = expert;
    problem.context = context;
    problem.microbatches = microbatches;
    problem.zero = std::max<int64_t>(job_.parallel.zero, 0);
    problem.timeout_ms = std::min(kMostMs, time_.left_ms(true));
    return FindStageLayout(problem, time_.clock());
  }

  Status PricePinnedMeshes() {
    ir::JobRequest meshes = job_;
    meshes.parallel.part_layers.clear();  // of each schedule's parts
    meshes.parallel.chunks = 0;
    meshes.parallel.schedule = "auto";
    for (const int64_t expert : choices_.ExpertDegrees(OpenChoices::kAnyReplicas)) {
      meshes.parallel.expert = expert;
      Result<Layout> layout = planner::ResolveLayout(meshes, device_count_, layer_count_);
      if (!layout.has_value() && expert > 1 && job_.parallel.expert == 0) continue;
      MW_TRY(layout);
      for (const int64_t microbatches :
           choices_.Microbatches(job_.train.global_batch / layout->data())) {
        if (found_.priced > 0 && IsOver()) return OkStatus();
        layout->microbatches = microbatches;
        PriceFamily(*layout);
      }
    }
    return OkStatus();
  }

  // ---- what to say when there is no answer ----

  Status NoLegalLayout() const {
    // The planner says what is wrong with the pins.
    const auto resolved = planner::ResolveLayout(job_, device_count_, layer_count_);
    if (!resolved) return resolved.error();
    if (refused_) return *refused_;
    return InvalidArgument(fmt::format(
        "no layout of {} devices does what the job asks with a global batch of {} rows and {} "
        "layers; leave degrees, schedule and microbatches open or change the batch",
        device_count_, job_.train.global_batch, layer_count_));
  }

  Status NothingFits() const {
    if (!nearest_) return NoLegalLayout();
    return ResourceExhausted(
        NearestText(*nearest_, job_.parallel) +
        (timed_out_ ? "; the time of the search was over before all were tried" : ""));
  }

  const ir::JobRequest& job_;
  const mesh::Topology& topology_;
  const FindOptions& options_;
  const SearchTime& time_;
  const LeftOut& left_out_;
  bool timed_out_ = false;  // something was left out
  const planner::CostModel costs_;
  const int64_t device_count_;
  const OpenChoices choices_;
  ShortModel model_;
  ProbeStep step_;
  int layer_count_ = 1;
  planner::ContextAttention context_attention_ = planner::ContextAttention::kAuto;
  planner::ZeroGroups zero_groups_;  // that the pins ask for
  std::vector<Recompute> modes_;
  std::vector<Recompute> pinned_modes_;  // per layer; empty: open
  std::vector<std::vector<int>> classes_;
  std::optional<SlowestGroups> groups_;
  std::vector<int> class_of_device_;
  std::vector<planner::CoreUse> cores_;
  std::vector<int64_t> memory_;
  // By degrees without the data axis, rows of a microbatch, sequence parallelism, mode.
  std::map<std::tuple<Degrees, int64_t, bool, Recompute>, std::optional<ProbedMode>> probes_;
  // By degrees, rows, sequence parallelism, and whether all modes are there. Tables refer to what
  // stands before them.
  std::map<std::tuple<Degrees, int64_t, bool, bool>, std::pair<ProbedLayers, LayerTable>> tables_;
  std::vector<Family> families_;
  std::optional<Status> refused_;
  std::optional<LayoutCost> nearest_;
  MicrobatchPrices microbatches_;
  FoundLayout found_;
};

}  // namespace

bool LeavesOpen(const ir::JobRequest& job) {
  const ir::ParallelSpec& parallel = job.parallel;
  return parallel.tensor == 0 || parallel.pipeline == 0 || parallel.schedule == "auto" ||
         parallel.zero < 0 || (parallel.tensor != 1 && !parallel.sequence_parallel) ||
         (parallel.expert == 0 && CommonExperts(job) > 1) || HasOpenContext(job);
}

Result<FoundLayout> FindLayout(const ir::JobRequest& job, const mesh::Topology& topology,
                               const FindOptions& options, const SearchTime& time,
                               const LeftOut& left_out) {
  MW_TRY(ir::ValidateJob(job));
  const std::optional<ir::JobRequest> sized = planner::WithHeadBlocks(job, topology);
  return Finder(sized ? *sized : job, topology, options, time, left_out).Run();
}

Result<FoundLayout> FindLayout(const ir::JobRequest& job, const mesh::Topology& topology,
                               const FindOptions& options, const Clock& clock) {
  return FindLayout(job, topology, options,
                    SearchTime(options.timeout_ms, options.patience_ms, clock));
}

}  // namespace meshwright::search
