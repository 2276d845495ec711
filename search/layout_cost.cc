#include "search/layout_cost.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "planner/device_time.h"
#include "planner/stages.h"
#include "search/pipeline_clock.h"

namespace meshwright::search {
namespace {

using mesh::CollectiveKind;
using planner::Layout;
using planner::PipelineShape;
using planner::Recompute;

// After so many the rest is refused: four modes settle in one round each.
constexpr int kFittingRounds = 5;

size_t At(int index) { return static_cast<size_t>(index); }

class Coster {
 public:
  Coster(const LayoutInput& input, const Layout& layout, double give_up_s)
      : input_(input), shape_(layout.shape()), give_up_s_(give_up_s) {
    result_.layout = layout;
    pinned_ = !layout.recompute.empty();
    if (!pinned_) result_.layout.recompute.assign(input.layers[0][0].size(), input.modes.front());
    const bool shares =
        input.memo != nullptr && layout.devices.empty() && layout.stage_degrees.empty();
    memo_ = shares ? input.memo : &own_memo_;
    if (!memo_->devices.empty()) return;
    if (input.beside) memo_->beside = input.beside(layout);
    for (int stage = 0; stage < shape_.stages; ++stage) {
      memo_->devices.push_back(FindDevices(stage));
      memo_->classes.push_back(SlowestClass(stage));
      memo_->replicas.push_back(ReplicasOf(*input.costs, layout.DegreesOf(stage),
                                           layout.zero_groups, memo_->devices.back()));
    }
  }

  double Bound() {
    SplitLayers();
    result_.stages.resize(At(shape_.stages));
    PriceParts();
    return BoundSeconds();
  }

  LayoutCost Run() {
    if (Bound() >= give_up_s_) {
      result_.step_s = std::numeric_limits<double>::infinity();
      return std::move(result_);
    }
    if (CannotFit()) return std::move(result_);
    const auto& schedule = Schedule();
    if (!schedule.has_value()) {
      result_.missing_bytes = std::numeric_limits<int64_t>::max();
      return std::move(result_);
    }
    Hold(*schedule);
    // Other sizes may move the fullest moment: once more where that is so.
    for (int round = 0; round < kFittingRounds && FitMemory(); ++round) {
      PriceParts();
      Hold(*schedule);
    }
    for (int stage = 0; stage < shape_.stages; ++stage) {
      MissesMost(stage, result_.stages[At(stage)]);
    }
    if (result_.missing_bytes == 0) Simulate(*schedule);
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
  const std::vector<int>& DevicesOf(int stage) const { return memo_->devices[At(stage)]; }

  std::vector<int> FindDevices(int stage) const {
    std::vector<int> devices;
    const auto first = static_cast<int>(layout().FirstDevice(stage));
    const auto count = static_cast<int>(layout().DegreesOf(stage).device_count());
    for (int i = first; i < first + count; ++i) {
      devices.push_back(layout().devices.empty() ? i : layout().devices[At(i)]);
    }
    return devices;
  }

  int64_t DataOf(int stage) const { return layout().DegreesOf(stage)[planner::Axis::kData]; }

  const LayerModes& ModesOf(int stage, int layer) const {
    const LayerTable& layers =
        input_.layers.size() == 1 ? input_.layers[0] : input_.layers[At(stage)];
    return *layers[At(memo_->classes[At(stage)])][At(layer)];
  }

  const LayerProbe& Probe(int stage, int layer) const {
    return ModesOf(stage, layer).at(result_.layout.recompute[At(layer)]);
  }

  // With the same costs of layers.
  int FirstEqualStage(int stage) const {
    int other = 0;
    while (layout().DegreesOf(other) != layout().DegreesOf(stage) ||
           memo_->classes[At(other)] != memo_->classes[At(stage)]) {
      ++other;
    }
    return other;
  }

  const ZeroSplit& ZeroOf(int stage, int layer) const { return ModesOf(stage, layer).zero; }

  const Result<std::vector<planner::StageSchedule>>& Schedule() {
    const auto microbatches = static_cast<int>(layout().microbatches);
    const auto [it, fresh] = memo_->schedules.try_emplace({layout().schedule, shape_.chunks});
    if (fresh) it->second = planner::MakeSchedule(layout().schedule, shape_, microbatches);
    return it->second;
  }

  const std::vector<int>& Balanced() {
    const auto [it, fresh] = memo_->balanced.try_emplace({shape_.parts(), shape_.folded});
    if (fresh) it->second = Balance();
    return it->second;
  }

  // Parts may differ in speed.
  std::vector<int> Balance() const {
    const int layers = static_cast<int>(input_.layers[0][0].size());
    std::vector<std::vector<double>> sums(At(shape_.stages));  // [stage][layers before]
    std::vector<std::span<const double>> sum_of_part;
    for (int part = 0; part < shape_.parts(); ++part) {
      const int stage = FirstEqualStage(shape_.StageOf(part));
      std::vector<double>& sum = sums[At(stage)];
      if (sum.empty()) sum.push_back(0);
      for (int layer = static_cast<int>(sum.size()) - 1; layer < layers; ++layer) {
        const LayerProbe& probe = Probe(stage, layer);
        sum.push_back(sum.back() + probe.forward_s + probe.backward_s);
      }
      sum_of_part.emplace_back(sum);
    }
    return planner::BalanceParts(sum_of_part);
  }

  void SplitLayers() {
    const int layers = static_cast<int>(input_.layers[0][0].size());
    if (layout().part_layers.empty()) {
      part_of_layer_ = Balanced();
    } else {
      for (size_t part = 0; part < layout().part_layers.size(); ++part) {
        part_of_layer_.insert(part_of_layer_.end(), At(layout().part_layers[part]),
                              static_cast<int>(part));
      }
    }
    layers_of_part_.resize(At(shape_.parts()));
    for (int layer = 0; layer < layers; ++layer) {
      layers_of_part_[At(PartOfLayer(layer))].push_back(layer);
      const LayerProbe& probe = input_.layers[0][0][At(layer)]->at(input_.modes.front());
      if (probe.shared_layer >= 0) tied_layers_.push_back(layer);
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

  // Blocks of gradients over what holds the same weights beside the data axis.
  double SumOfBlocks(int stage, const ZeroSplit& zero, double bytes, double weights) const {
    const Replicas& replicas = memo_->replicas[At(stage)];
    const double of_experts =
        static_cast<double>(zero.of_experts.gradient_bytes) /
        static_cast<double>(SettingOf(stage).Degree(planner::ZeroKind::kGradients));
    return CallsSeconds(CollectiveKind::kAllReduce, bytes - of_experts,
                        weights - zero.of_experts.weights, replicas.others) +
           CallsSeconds(CollectiveKind::kAllReduce, of_experts, zero.of_experts.weights,
                        replicas.others_of_experts);
  }

  static int64_t WaitingBytes(const LayerProbe& probe) {
    return probe.kept_for_weights_bytes + probe.made_for_weights_bytes;
  }

  PartCost CostOfPart(int part) const {
    PartCost cost;
    PartCost moved;
    const int stage = shape_.StageOf(part);
    ForEqualLayers(part, [&](int layer, int count) {
      const LayerProbe& probe = Probe(stage, layer);
      cost.forward_s += count * probe.forward_s;
      cost.backward_s += count * probe.backward_s;
      if (layout().SplitsBackward()) cost.weight_s += count * probe.weight_s;
      cost.kept_bytes += count * probe.kept_bytes;
      if (layout().SplitsBackward()) cost.waiting_bytes += count * WaitingBytes(probe);
      AddZero(part, probe, ZeroOf(stage, layer), count, moved);
      cost.boundary_bytes = probe.boundary_bytes;
    });
    const size_t layers = layers_of_part_[At(part)].size();
    cost.forward_s += ExposedSeconds(cost.forward_s, moved.forward_s, layers, memo_->beside);
    cost.backward_s += ExposedSeconds(cost.backward_s, moved.backward_s, layers, memo_->beside);
    cost.backward_s -= cost.weight_s;
    return cost;
  }

  // Neighbours in a part with the same costs are added up at once: what a layout costs to price
  // does not grow with the layers of the model. fn(layer, how many).
  template <typename Fn>
  void ForEqualLayers(int part, const Fn& fn) const {
    const std::vector<int>& layers = layers_of_part_[At(part)];
    const int stage = shape_.StageOf(part);
    for (size_t i = 0; i < layers.size();) {
      const LayerProbe& probe = Probe(stage, layers[i]);
      size_t end = i + 1;
      while (end < layers.size() && &Probe(stage, layers[end]) == &probe &&
             probe.shared_layer < 0) {
        ++end;
      }
      fn(layers[i], static_cast<int>(end - i));
      i = end;
    }
  }

  // Gradients are scattered per microbatch, weights gathered twice.
  void AddZero(int part, const LayerProbe& probe, const ZeroSplit& zero, int count,
               PartCost& cost) const {
    if (layout().zero < 2) return;
    const int stage = shape_.StageOf(part);
    const Replicas& replicas = memo_->replicas[At(stage)];
    const StateSetting setting = SettingOf(stage);
    const auto gradients = static_cast<double>(setting.Degree(planner::ZeroKind::kGradients));
    const bool copies = OwnerOfShared(part, probe) != SharedOwner::kSamePart;
    const StateBytes shared = copies ? zero.shared : StateBytes();
    const auto split = static_cast<double>(zero.own.gradient_bytes + shared.bytes);
    const double weights = zero.own.weights + shared.weights;
    cost.backward_s +=
        count * (CallsSeconds(CollectiveKind::kReduceScatter, split, weights, replicas.gradients) +
                 SumOfBlocks(stage, zero, split / gradients, weights));
    if (layout().zero == 2) return;
    const auto blocks = static_cast<double>(setting.Degree(planner::ZeroKind::kWeights));
    const auto whole = static_cast<double>(zero.own.bytes + shared.bytes);
    const auto narrow = static_cast<double>(zero.own.copy_bytes + shared.copy_bytes);
    const double seconds =
        CallsSeconds(CollectiveKind::kAllGather, (narrow > 0 ? narrow : whole) / blocks, weights,
                     replicas.weights);
    cost.forward_s += count * seconds;
    cost.backward_s += count * seconds;
  }

  // Everything of a stage but what its schedule decides.
  void PriceParts() {
    parts_.clear();
    links_.clear();
    for (int part = 0; part < shape_.parts(); ++part) parts_.push_back(CostOfPart(part));
    for (int part = 0; part + 1 < shape_.parts(); ++part) {
      links_.push_back(input_.costs->LinkOf(DevicesOf(shape_.StageOf(part))[0],
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
      cost.sync_s -= memo_->beside * std::min(cost.early_s, cost.backward_s);
    }
  }

  // True where one microbatch in flight is too much, whatever is recomputed.
  bool CannotFit() {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      if (MemoryOf(stage) == 0) continue;
      StageCost least = result_.stages[At(stage)];
      if (!pinned_) least.transient_bytes = 0;
      for (const int layer : LayersOf(stage)) AddLeast(stage, layer, least);
      if (MissesMost(stage, least)) result_.stages[At(stage)] = least;
    }
    return result_.missing_bytes > 0;
  }

  // Of the stages so far, which is then remembered.
  bool MissesMost(int stage, const StageCost& cost) {
    const int64_t budget = MemoryOf(stage);
    const int64_t missing = budget == 0 ? 0 : cost.memory_bytes() - budget;
    if (missing <= result_.missing_bytes) return false;
    result_.missing_bytes = missing;
    result_.tightest_stage = stage;
    return true;
  }

  void AddLeast(int stage, int layer, StageCost& cost) const {
    int64_t kept = std::numeric_limits<int64_t>::max();
    int64_t transient = std::numeric_limits<int64_t>::max();
    for (const auto& [mode, probe] : ModesOf(stage, layer).probes) {
      if (pinned_ && mode != result_.layout.recompute[At(layer)]) continue;
      kept = std::min(kept, probe.kept_bytes);
      transient = std::min(transient, probe.transient_bytes);
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
      const PartCost& part = parts_[At(stage)];
      const double transfer_s = planner::DeviceTime().Send(links_[At(stage)], part.boundary_bytes);
      there_s += part.forward_s + transfer_s;
      back_s += part.backward_s + transfer_s;
    }
    return bound_s;
  }

  PipelineCost CostOfPipeline() const { return {parts_, links_, layout().SplitsBackward()}; }

  // REQUIRES: PriceParts.
  void Hold(const std::vector<planner::StageSchedule>& schedule) {
    FullestMoments moments = FindFullestMoments(shape_, schedule, CostOfPipeline());
    in_flight_ = std::move(moments.in_flight);
    for (int stage = 0; stage < shape_.stages; ++stage) {
      result_.stages[At(stage)].kept_bytes =
          Accumulates() ? moments.most_held_bytes[At(stage)] : KeptWithGradients(stage);
    }
  }

  // Of a single microbatch: gradients take the place of what is kept, layer by layer, or wait in a
  // farther memory.
  int64_t KeptWithGradients(int stage) const {
    const StateSetting setting = SettingOf(stage);
    int64_t live = 0;
    for (const int layer : LayersOf(stage)) live += Probe(stage, layer).kept_bytes;
    int64_t most = live;
    for (int chunk = shape_.chunks - 1; chunk >= 0; --chunk) {
      const auto& layers = layers_of_part_[At(shape_.PartOf(stage, chunk))];
      for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
        const LayerProbe& probe = Probe(stage, *layer);
        const ZeroSplit& zero = ZeroOf(stage, *layer);
        const int64_t gradients =
            OwnGradientBytes(probe, zero, setting) + SharedGradientBytes(probe, zero, setting);
        most = std::max(most, live + gradients);
        live += (probe.gradients_stay ? gradients : 0) - probe.kept_bytes;
      }
    }
    return most;
  }

  // REQUIRES: PriceParts.
  void Simulate(const std::vector<planner::StageSchedule>& schedule) {
    const std::vector<double> end_s = EndSeconds(shape_, schedule, CostOfPipeline());
    result_.step_s = 0;
    const std::vector<double> summed_s = SummedSeconds(end_s);
    std::vector<double> stage_busy_s;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const StageCost& cost = result_.stages[At(stage)];
      result_.step_s = std::max(result_.step_s, summed_s[At(stage)] + cost.update_s);
      stage_busy_s.push_back(static_cast<double>(layout().microbatches) *
                                 (cost.forward_s + cost.backward_s) +
                             cost.update_s);
    }
    result_.step_s = std::max(result_.step_s, SharedSeconds(stage_busy_s));
  }

  // When each stage has its gradients: reduced over its replicas, and those of weights that two
  // stages hold exchanged.
  std::vector<double> SummedSeconds(const std::vector<double>& end_s) const {
    std::vector<double> reduced_s;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      reduced_s.push_back(end_s[At(stage)] + result_.stages[At(stage)].sync_s);
    }
    std::vector<double> summed_s = reduced_s;
    if (shape_.stages == 1) return summed_s;
    for (const int layer : tied_layers_) {
      const int reader = StageOfLayer(layer);
      const LayerProbe& probe = Probe(reader, layer);
      const int owner = StageOfLayer(probe.shared_layer);
      if (reader == owner) continue;
      const int64_t bytes = ExchangedBytes(probe, ZeroOf(reader, layer), SettingOf(reader));
      const auto take = [&](int to, int from) {
        summed_s[At(to)] =
            std::max(summed_s[At(to)], reduced_s[At(from)] + CopySeconds(from, to, bytes));
      };
      take(reader, owner);
      take(owner, reader);
    }
    return summed_s;
  }

  int StageOfLayer(int layer) const { return shape_.StageOf(PartOfLayer(layer)); }

  int PartOfLayer(int layer) const { return part_of_layer_[At(layer)]; }

  // Of the same bytes to each device of a stage, the senders sharing the work.
  double CopySeconds(int from, int to, int64_t bytes) const {
    const std::vector<int>& senders = DevicesOf(from);
    const std::vector<int>& receivers = DevicesOf(to);
    const auto copies =
        static_cast<int64_t>((receivers.size() + senders.size() - 1) / senders.size());
    return input_.costs->MessageSeconds(copies * bytes, senders[0], receivers[0]);
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

  bool Accumulates() const { return layout().microbatches > 1 || layout().SplitsBackward(); }

  StateSetting SettingOf(int stage) const {
    return {DataOf(stage),       layout().DegreesOf(stage).tensor(),
            layout().zero,       layout().zero_groups,
            shape_.stages,       Accumulates(),
            input_.bucket_bytes, memo_->replicas[At(stage)]};
  }

  // What a stage holds all the time and does once per step.
  StageCost StateOf(int stage) const {
    StageState state(SettingOf(stage));
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      const int part = shape_.PartOf(stage, chunk);
      ForEqualLayers(part, [&](int layer, int count) {
        const LayerProbe& probe = Probe(stage, layer);
        state.Add(probe, ZeroOf(stage, layer), OwnerOfShared(part, probe), count);
      });
    }
    for (const int layer : tied_layers_) {
      const int reader = StageOfLayer(layer);
      const LayerProbe& probe = Probe(reader, layer);
      if (reader == stage || StageOfLayer(probe.shared_layer) != stage) continue;
      state.AddReader(probe, ZeroOf(reader, layer));
    }
    return state.Finish();
  }

  SharedOwner OwnerOfShared(int part, const LayerProbe& probe) const {
    if (probe.shared_layer < 0) return SharedOwner::kSamePart;
    const int owner = PartOfLayer(probe.shared_layer);
    if (owner == part) return SharedOwner::kSamePart;
    return shape_.StageOf(owner) == shape_.StageOf(part) ? SharedOwner::kOtherPart
                                                         : SharedOwner::kOtherStage;
  }

  int64_t MemoryOf(int stage) const {
    int64_t least = 0;
    for (const int device : DevicesOf(stage)) {
      const int64_t bytes = input_.memory_bytes[At(device)];
      if (bytes > 0) least = least == 0 ? bytes : std::min(least, bytes);
    }
    return least;
  }

  // True where something changed.
  bool FitMemory() {
    bool changed = false;
    for (int stage = 0; stage < shape_.stages; ++stage) changed = FitStage(stage) || changed;
    return changed;
  }

  // Moves layers of a stage to dearer modes until its fullest moment fits.
  bool FitStage(int stage) {
    const int64_t budget = MemoryOf(stage);
    StageCost& cost = result_.stages[At(stage)];
    if (budget == 0 || pinned_ || cost.memory_bytes() <= budget) return false;
    bool changed = false;
    for (const Recompute mode : input_.modes) {
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
        const int part = shape_.PartOf(stage, chunk);
        for (const int layer : layers_of_part_[At(part)]) {
          const bool fits = cost.memory_bytes() <= budget;
          if (fits || cost.kept_bytes <= cost.update_bytes) return changed;
          Recompute& current = result_.layout.recompute[At(layer)];
          if (current >= mode) continue;
          const Recompute before = current;
          const int64_t held = HeldBytes(part, Probe(stage, layer));
          current = mode;
          const int64_t saved = held - HeldBytes(part, Probe(stage, layer));
          if (saved <= 0) {  // W reads what B makes again: it may wait for longer than it saves
            current = before;
            continue;
          }
          cost.kept_bytes -= saved;
          changed = true;
        }
      }
    }
    return changed;
  }

  // Of a layer, at the fullest moment.
  int64_t HeldBytes(int part, const LayerProbe& probe) const {
    const InFlight& in_flight = in_flight_[At(part)];
    return in_flight.forward_done * probe.kept_bytes +
           in_flight.backward_done * WaitingBytes(probe);
  }

  const LayoutInput& input_;
  const PipelineShape shape_;
  const double give_up_s_;
  LayoutMemo own_memo_;
  LayoutMemo* memo_ = nullptr;  // of the input, or own
  std::vector<PartCost> parts_;
  std::vector<mesh::LinkCost> links_;  // from each part to the next
  std::vector<std::vector<int>> layers_of_part_;
  std::vector<int> part_of_layer_;
  std::vector<int> tied_layers_;     // read weights of earlier layers
  std::vector<InFlight> in_flight_;  // per part, at the fullest moment of its stage
  bool pinned_ = false;              // what is recomputed
  LayoutCost result_;
};

}  // namespace

LayoutCost CostOfLayout(const LayoutInput& input, const Layout& layout, double give_up_s) {
  return Coster(input, layout, give_up_s).Run();
}

double BoundOfLayout(const LayoutInput& input, const Layout& layout) {
  return Coster(input, layout, 0).Bound();
}

double LeastSeconds(const LayoutInput& input, const Layout& layout) {
  if (input.layers.size() > 1) return 0;
  // A class that is smaller than a tensor group was measured together with slower devices.
  double least_s = std::numeric_limits<double>::infinity();
  for (const auto& layers : input.layers[0]) {
    double sum = 0;
    double largest = 0;
    for (const LayerModes* modes : layers) {
      const LayerProbe& probe = modes->at(input.modes.front());
      sum += probe.forward_s + probe.backward_s;
      largest = std::max(largest, probe.forward_s + probe.backward_s);
    }
    const double per_stage =
        std::max(sum / static_cast<double>(layout.pipeline), layout.chunks == 1 ? largest : 0);
    least_s = std::min(least_s, static_cast<double>(layout.microbatches) * per_stage);
  }
  return least_s;
}

}  // namespace meshwright::search
