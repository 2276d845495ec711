#include "search/layout_cost.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace meshwright::search {
namespace {

using mesh::CollectiveKind;
using planner::Layout;
using planner::PipelineShape;
using planner::Recompute;

size_t At(int index) { return static_cast<size_t>(index); }

// Seconds and bytes of one part, per microbatch.
struct PartCost {
  double forward_s = 0;
  double backward_s = 0;  // without the weights' part where the schedule splits it
  double weight_s = 0;
  int64_t kept_bytes = 0;
  int64_t boundary_bytes = 0;
};

// The table of a schedule on a virtual clock.
class Clocked {
 public:
  Clocked(const PipelineShape& shape, const std::vector<planner::StageSchedule>& schedule,
          const std::vector<PartCost>& parts, const std::vector<double>& transfer_s)
      : shape_(shape),
        schedule_(schedule),
        parts_(parts),
        transfer_s_(transfer_s),
        now_s_(At(shape.stages), 0),
        kept_(At(shape.stages), 0),
        most_(At(shape.stages), 0) {}

  void Run(int microbatches) {
    const size_t instances = At(shape_.parts() * microbatches);
    forward_end_s_.assign(instances, -1);
    backward_end_s_.assign(instances, -1);
    microbatches_ = microbatches;
    std::vector<size_t> next(At(shape_.stages), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (int stage = 0; stage < shape_.stages; ++stage) {
        const planner::StageSchedule& steps = schedule_[At(stage)];
        while (next[At(stage)] < steps.size() && Step(stage, steps[next[At(stage)]])) {
          ++next[At(stage)];
          progress = true;
        }
      }
    }
  }

  const std::vector<double>& end_s() const { return now_s_; }      // per stage
  const std::vector<int64_t>& most_kept() const { return most_; }  // bytes per stage

 private:
  size_t Instance(int part, int microbatch) const { return At(part * microbatches_ + microbatch); }

  // False when what it needs is not there yet.
  bool Step(int stage, const planner::ScheduleStep& step) {
    const int part = shape_.PartOf(stage, step.chunk);
    const PartCost& cost = parts_[At(part)];
    double& now_s = now_s_[At(stage)];
    if (step.weights) {
      now_s += cost.weight_s;
      Release(stage, cost);
      return true;
    }
    const bool forward = step.phase == ir::Phase::kForward;
    const int from = forward ? part - 1 : part + 1;
    if (from >= 0 && from < shape_.parts()) {
      const double ready_s =
          (forward ? forward_end_s_ : backward_end_s_)[Instance(from, step.microbatch)];
      if (ready_s < 0) return false;
      now_s = std::max(now_s, ready_s + transfer_s_[At(std::min(from, part))]);
    }
    now_s += forward ? cost.forward_s : cost.backward_s;
    (forward ? forward_end_s_ : backward_end_s_)[Instance(part, step.microbatch)] = now_s;
    if (forward) {
      kept_[At(stage)] += cost.kept_bytes;
      most_[At(stage)] = std::max(most_[At(stage)], kept_[At(stage)]);
    } else if (cost.weight_s == 0) {
      Release(stage, cost);
    }
    return true;
  }

  void Release(int stage, const PartCost& cost) { kept_[At(stage)] -= cost.kept_bytes; }

  const PipelineShape& shape_;
  const std::vector<planner::StageSchedule>& schedule_;
  const std::vector<PartCost>& parts_;
  const std::vector<double>& transfer_s_;  // from each part to the next
  int microbatches_ = 0;
  std::vector<double> now_s_;
  std::vector<int64_t> kept_;
  std::vector<int64_t> most_;
  std::vector<double> forward_end_s_;  // [part][microbatch]; -1: not yet
  std::vector<double> backward_end_s_;
};

class Coster {
 public:
  Coster(const LayoutInput& input, const Layout& layout, double give_up_s)
      : input_(input), shape_(layout.shape()), give_up_s_(give_up_s) {
    result_.layout = layout;
    pinned_ = !layout.recompute.empty();
    if (!pinned_) result_.layout.recompute.assign(input.layers[0].size(), input.modes.front());
    for (int stage = 0; stage < shape_.stages; ++stage) {
      devices_.push_back(FindDevices(stage));
      classes_.push_back(SlowestClass(stage));
      groups_.push_back(input.costs->ShapeOf(Replicas(stage)));
    }
  }

  LayoutCost Run() {
    SplitLayers();
    result_.stages.resize(At(shape_.stages));
    PriceParts();
    if (CannotFit()) return std::move(result_);
    if (BoundSeconds() >= give_up_s_) {
      result_.step_s = std::numeric_limits<double>::infinity();
      return std::move(result_);
    }
    const auto schedule =
        planner::MakeSchedule(layout().schedule, shape_, static_cast<int>(layout().microbatches));
    if (!schedule.has_value()) {
      result_.missing_bytes = std::numeric_limits<int64_t>::max();
      return std::move(result_);
    }
    Simulate(*schedule);
    for (int stage = 0; stage < shape_.stages; ++stage) FitMemory(stage);
    if (recomputed_) {
      PriceParts();
      Simulate(*schedule);
    }
    Check();
    return std::move(result_);
  }

 private:
  const Layout& layout() const { return result_.layout; }

  // A stage waits for the slowest of its devices.
  int SlowestClass(int stage) const {
    int slowest = 0;
    for (const int device : DevicesOf(stage)) {
      slowest = std::max(slowest, input_.class_of_device[At(device)]);
    }
    return slowest;
  }

  // Of the cluster.
  const std::vector<int>& DevicesOf(int stage) const { return devices_[At(stage)]; }

  std::vector<int> FindDevices(int stage) const {
    std::vector<int> devices;
    const auto first = static_cast<int>(layout().FirstDevice(stage));
    const auto count = static_cast<int>(layout().DegreesOf(stage).device_count());
    for (int i = first; i < first + count; ++i) {
      devices.push_back(layout().devices.empty() ? i : layout().devices[At(i)]);
    }
    return devices;
  }

  int64_t DataOf(int stage) const { return layout().DegreesOf(stage).data; }

  const LayerModes& ModesOf(int stage, int layer) const {
    const auto& layers =
        input_.stage_layers.empty() ? input_.layers : input_.stage_layers[At(stage)];
    return *layers[At(classes_[At(stage)])][At(layer)];
  }

  const LayerProbe& Probe(int stage, int layer) const {
    return ModesOf(stage, layer).at(result_.layout.recompute[At(layer)]);
  }

  // With the same costs of layers.
  int FirstEqualStage(int stage) const {
    int other = 0;
    while (layout().DegreesOf(other) != layout().DegreesOf(stage) ||
           classes_[At(other)] != classes_[At(stage)]) {
      ++other;
    }
    return other;
  }

  // Contiguous, not empty, with the least maximum over parts; parts may differ in speed.
  std::vector<int> Balance() const {
    const int layers = static_cast<int>(input_.layers[0].size());
    const int parts = shape_.parts();
    std::vector<std::vector<double>> sums(At(shape_.stages));  // [stage][layers before]
    std::vector<int> sums_of(At(shape_.stages));               // where a stage's are
    for (int stage = 0; stage < shape_.stages; ++stage) {
      sums_of[At(stage)] = FirstEqualStage(stage);
      if (sums_of[At(stage)] < stage) continue;
      std::vector<double>& sum = sums[At(stage)];
      sum.push_back(0);
      for (int layer = 0; layer < layers; ++layer) {
        const LayerProbe& probe = Probe(stage, layer);
        sum.push_back(sum.back() + probe.forward_s + probe.backward_s);
      }
    }
    const double inf = std::numeric_limits<double>::infinity();
    std::vector<double> best(At(layers + 1), inf);
    best[0] = 0;
    std::vector<std::vector<int>> cuts(At(parts + 1), std::vector<int>(At(layers + 1), 0));
    for (int part = 0; part < parts; ++part) {
      const std::vector<double>& sum = sums[At(sums_of[At(shape_.StageOf(part))])];
      std::vector<double> next(At(layers + 1), inf);
      for (int end = part + 1; end <= layers - (parts - 1 - part); ++end) {
        // Longer parts only get dearer.
        for (int begin = end - 1; begin >= part; --begin) {
          const double own = sum[At(end)] - sum[At(begin)];
          if (own >= next[At(end)]) break;
          const double value = std::max(best[At(begin)], own);
          if (value >= next[At(end)]) continue;
          next[At(end)] = value;
          cuts[At(part + 1)][At(end)] = begin;
        }
      }
      best = std::move(next);
    }
    std::vector<int> part_of_layer(At(layers), 0);
    int end = layers;
    for (int part = parts; part >= 1; --part) {
      const int begin = cuts[At(part)][At(end)];
      for (int layer = begin; layer < end; ++layer) part_of_layer[At(layer)] = part - 1;
      end = begin;
    }
    return part_of_layer;
  }

  void SplitLayers() {
    const int layers = static_cast<int>(input_.layers[0].size());
    std::vector<int> part_of_layer;
    if (layout().part_layers.empty()) {
      part_of_layer = Balance();
    } else {
      for (size_t part = 0; part < layout().part_layers.size(); ++part) {
        part_of_layer.insert(part_of_layer.end(), At(layout().part_layers[part]),
                             static_cast<int>(part));
      }
    }
    layers_of_part_.resize(At(shape_.parts()));
    for (int layer = 0; layer < layers; ++layer) {
      layers_of_part_[At(part_of_layer[At(layer)])].push_back(layer);
    }
    if (shape_.stages == 1) return;
    result_.layout.part_layers.clear();
    for (const auto& part : layers_of_part_) {
      result_.layout.part_layers.push_back(static_cast<int>(part.size()));
    }
  }

  std::vector<int> LayersOf(int stage) const {
    std::vector<int> layers;
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      const auto& part = layers_of_part_[At(shape_.PartOf(stage, chunk))];
      layers.insert(layers.end(), part.begin(), part.end());
    }
    return layers;
  }

  // The replicas of one tensor position of a stage.
  std::vector<int> Replicas(int stage) const {
    const std::vector<int>& all = DevicesOf(stage);
    std::vector<int> devices;
    for (size_t i = 0; i < all.size(); i += static_cast<size_t>(layout().DegreesOf(stage).tensor)) {
      devices.push_back(all[i]);
    }
    return devices;
  }

  double Collective(int stage, CollectiveKind kind, double bytes, double calls) const {
    if (DataOf(stage) == 1 || bytes <= 0 || calls <= 0) return 0;
    return calls * mesh::CostOfCollective(kind, bytes / calls, groups_[At(stage)]).seconds;
  }

  PartCost CostOfPart(int part) const {
    PartCost cost;
    const int stage = shape_.StageOf(part);
    const auto data = static_cast<double>(DataOf(stage));
    for (const int layer : layers_of_part_[At(part)]) {
      const LayerProbe& probe = Probe(stage, layer);
      cost.forward_s += probe.forward_s;
      cost.backward_s += probe.backward_s;
      if (layout().SplitsBackward()) cost.weight_s += probe.weight_s;
      cost.kept_bytes += probe.kept_bytes;
      const auto split = static_cast<double>(probe.zero_bytes);
      const double weights = probe.weights;
      if (layout().zero >= 2) {
        cost.backward_s += Collective(stage, CollectiveKind::kReduceScatter, split, weights);
      }
      if (layout().zero == 3) {
        const bool narrow = probe.copy_bytes > 0;
        const double gathered = narrow ? static_cast<double>(probe.copy_bytes) : split;
        const double seconds =
            Collective(stage, CollectiveKind::kAllGather, gathered / data, weights);
        cost.forward_s += seconds;
        cost.backward_s += seconds;
      }
      cost.boundary_bytes = probe.boundary_bytes;
    }
    cost.backward_s -= cost.weight_s;
    return cost;
  }

  // Everything of a stage but what its schedule decides.
  void PriceParts() {
    parts_.clear();
    transfer_s_.clear();
    for (int part = 0; part < shape_.parts(); ++part) parts_.push_back(CostOfPart(part));
    for (int part = 0; part + 1 < shape_.parts(); ++part) {
      transfer_s_.push_back(input_.costs->MessageSeconds(parts_[At(part)].boundary_bytes,
                                                         DevicesOf(shape_.StageOf(part))[0],
                                                         DevicesOf(shape_.StageOf(part + 1))[0]));
    }
    for (int stage = 0; stage < shape_.stages; ++stage) {
      StageCost& cost = result_.stages[At(stage)];
      cost = StateOf(stage);
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
        const PartCost& part = parts_[At(shape_.PartOf(stage, chunk))];
        cost.forward_s += part.forward_s;
        cost.backward_s += part.backward_s + part.weight_s;
      }
    }
  }

  // True where one microbatch in flight is too much, whatever is recomputed.
  bool CannotFit() {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const int64_t budget = MemoryOf(stage);
      if (budget == 0) continue;
      StageCost least = result_.stages[At(stage)];
      if (!pinned_) least.transient_bytes = 0;
      for (const int layer : LayersOf(stage)) AddLeast(stage, layer, least);
      const int64_t missing = least.memory_bytes() - budget;
      if (missing <= result_.missing_bytes) continue;
      result_.missing_bytes = missing;
      result_.tightest_stage = stage;
      result_.stages[At(stage)] = least;
    }
    return result_.missing_bytes > 0;
  }

  void AddLeast(int stage, int layer, StageCost& cost) const {
    int64_t kept = std::numeric_limits<int64_t>::max();
    int64_t transient = std::numeric_limits<int64_t>::max();
    for (const auto& [mode, probe] : ModesOf(stage, layer)) {
      if (pinned_ && mode != result_.layout.recompute[At(layer)]) continue;
      kept = std::min(kept, probe.kept_bytes);
      transient = std::min(transient,
                           probe.transient_bytes + (layout().zero == 3 ? probe.weight_bytes : 0));
    }
    cost.kept_bytes += kept;
    cost.transient_bytes = std::max(cost.transient_bytes, transient);
  }

  // No order of a schedule is faster: a stage begins after a forward has come to it, does its work,
  // and after its last backward one has to go back to the first stage, unless gradients of weights
  // can fill that time.
  double BoundSeconds() const {
    const auto microbatches = static_cast<double>(layout().microbatches);
    double bound_s = 0;
    double there_s = 0;
    double back_s = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const StageCost& cost = result_.stages[At(stage)];
      const double work_s = microbatches * (cost.forward_s + cost.backward_s);
      bound_s = std::max(bound_s, there_s + work_s + cost.sync_s + cost.update_s);
      if (!layout().SplitsBackward()) {
        const StageCost& first = result_.stages.front();
        bound_s = std::max(bound_s, there_s + work_s + back_s + first.sync_s + first.update_s);
      }
      if (stage + 1 == shape_.stages) break;
      there_s += parts_[At(stage)].forward_s + transfer_s_[At(stage)];
      back_s += parts_[At(stage)].backward_s + transfer_s_[At(stage)];
    }
    return bound_s;
  }

  // REQUIRES: PriceParts.
  void Simulate(const std::vector<planner::StageSchedule>& schedule) {
    Clocked clock(shape_, schedule, parts_, transfer_s_);
    clock.Run(static_cast<int>(layout().microbatches));
    result_.step_s = 0;
    result_.busy_s = 0;
    std::vector<double> stage_busy_s;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      StageCost& cost = result_.stages[At(stage)];
      cost.kept_bytes = clock.most_kept()[At(stage)];
      result_.step_s =
          std::max(result_.step_s, clock.end_s()[At(stage)] + cost.sync_s + cost.update_s);
      stage_busy_s.push_back(static_cast<double>(layout().microbatches) *
                                 (cost.forward_s + cost.backward_s) +
                             cost.update_s);
      result_.busy_s = std::max(result_.busy_s, static_cast<double>(layout().microbatches) *
                                                    (cost.forward_s + cost.backward_s));
    }
    result_.step_s = std::max(result_.step_s, SharedSeconds(stage_busy_s));
  }

  // Of the host whose devices have most work for its cores.
  double SharedSeconds(const std::vector<double>& stage_busy_s) const {
    std::map<int, double> core_s;  // by host: work over cores
    double most_s = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      for (const int device : DevicesOf(stage)) {
        const planner::CoreUse& use = input_.cores[At(device)];
        if (use.host < 0) continue;
        double& sum = core_s[use.host];
        sum += stage_busy_s[At(stage)] * use.threads / use.cores;
        most_s = std::max(most_s, sum);
      }
    }
    return most_s;
  }

  // What a stage holds all the time and does once per step.
  StageCost StateOf(int stage) const {
    StageCost cost;
    int64_t gradient_bytes = 0;
    int64_t split_bytes = 0;
    int weights = 0;
    const int64_t data = DataOf(stage);
    const auto share = [&](int64_t bytes, bool split) { return split ? bytes / data : bytes; };
    for (const int layer : LayersOf(stage)) {
      const LayerProbe& probe = Probe(stage, layer);
      const bool shared = shape_.stages > 1;
      const int64_t extra = shared ? probe.shared_weight_bytes : 0;
      const int64_t extra_state = shared ? probe.shared_optimizer_bytes : 0;
      cost.state_bytes += share(probe.weight_bytes + extra, layout().zero == 3) +
                          share(probe.copy_bytes, layout().zero == 3) +
                          share(probe.gradient_bytes + extra, layout().zero >= 2) +
                          share(probe.optimizer_bytes + extra_state, layout().zero >= 1);
      cost.update_s +=
          layout().zero >= 1 ? probe.update_s / static_cast<double>(data) : probe.update_s;
      cost.transient_bytes =
          std::max(cost.transient_bytes,
                   probe.transient_bytes + (layout().zero == 3 ? probe.weight_bytes : 0));
      gradient_bytes += probe.gradient_bytes + extra;
      split_bytes += probe.zero_bytes;
      weights += probe.weights;
    }
    cost.sync_s = SyncSeconds(stage, gradient_bytes, split_bytes, weights);
    return cost;
  }

  double SyncSeconds(int stage, int64_t gradient_bytes, int64_t split_bytes, int weights) const {
    const auto buckets = [&](int64_t bytes) {
      return static_cast<double>((bytes + input_.bucket_bytes - 1) / input_.bucket_bytes);
    };
    if (layout().zero == 0) {
      return Collective(stage, CollectiveKind::kAllReduce, static_cast<double>(gradient_bytes),
                        buckets(gradient_bytes));
    }
    const int64_t rest = gradient_bytes - split_bytes;
    const auto split = static_cast<double>(split_bytes);
    double seconds =
        Collective(stage, CollectiveKind::kAllReduce, static_cast<double>(rest), buckets(rest));
    if (layout().zero == 1) {
      seconds += Collective(stage, CollectiveKind::kReduceScatter, split, weights);
    }
    if (layout().zero <= 2) {
      seconds += Collective(stage, CollectiveKind::kAllGather,
                            split / static_cast<double>(DataOf(stage)), weights);
    }
    return seconds;
  }

  int64_t MemoryOf(int stage) const {
    int64_t least = 0;
    for (const int device : DevicesOf(stage)) {
      const int64_t bytes = input_.memory_bytes[At(device)];
      if (bytes > 0) least = least == 0 ? bytes : std::min(least, bytes);
    }
    return least;
  }

  // Moves layers of a stage to dearer modes until its microbatches fit. What a layer keeps counts
  // as often as the stage keeps microbatches.
  void FitMemory(int stage) {
    const int64_t budget = MemoryOf(stage);
    StageCost& cost = result_.stages[At(stage)];
    if (budget == 0 || pinned_ || cost.memory_bytes() <= budget) return;
    const std::vector<int> layers = LayersOf(stage);
    int64_t kept = 0;
    for (const int layer : layers) kept += Probe(stage, layer).kept_bytes;
    const double in_flight =
        kept > 0 ? static_cast<double>(cost.kept_bytes) / static_cast<double>(kept) : 0;
    for (size_t mode = 1; mode < input_.modes.size(); ++mode) {
      for (const int layer : layers) {
        if (cost.memory_bytes() <= budget) return;
        const int64_t before = Probe(stage, layer).kept_bytes;
        result_.layout.recompute[At(layer)] = input_.modes[mode];
        const int64_t saved = before - Probe(stage, layer).kept_bytes;
        cost.kept_bytes -= static_cast<int64_t>(in_flight * static_cast<double>(saved));
        recomputed_ = true;
      }
    }
  }

  void Check() {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const int64_t budget = MemoryOf(stage);
      const int64_t missing = budget == 0 ? 0 : result_.stages[At(stage)].memory_bytes() - budget;
      if (missing <= result_.missing_bytes) continue;
      result_.missing_bytes = missing;
      result_.tightest_stage = stage;
    }
  }

  const LayoutInput& input_;
  const PipelineShape shape_;
  const double give_up_s_;
  std::vector<std::vector<int>> devices_;  // per stage
  std::vector<int> classes_;               // per stage
  std::vector<mesh::GroupShape> groups_;   // per stage: its replicas
  std::vector<PartCost> parts_;
  std::vector<double> transfer_s_;  // from each part to the next
  std::vector<std::vector<int>> layers_of_part_;
  bool pinned_ = false;  // what is recomputed
  bool recomputed_ = false;
  LayoutCost result_;
};

}  // namespace

LayoutCost CostOfLayout(const LayoutInput& input, const Layout& layout, double give_up_s) {
  return Coster(input, layout, give_up_s).Run();
}

double LeastSeconds(const LayoutInput& input, const Layout& layout) {
  double sum = 0;
  double largest = 0;
  for (const LayerModes* modes : input.layers[0]) {
    const LayerProbe& probe = modes->at(input.modes.front());
    sum += probe.forward_s + probe.backward_s;
    largest = std::max(largest, probe.forward_s + probe.backward_s);
  }
  const double per_stage =
      std::max(sum / static_cast<double>(layout.pipeline), layout.chunks == 1 ? largest : 0);
  return static_cast<double>(layout.microbatches) * per_stage;
}

}  // namespace meshwright::search
