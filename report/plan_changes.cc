#include "report/plan_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/gpu_reserve.h"
#include "base/text.h"
#include "ir/parallel_pins.h"
#include "report/plan_job.h"

namespace meshwright::report {
namespace {

// The least memory is found so closely; more than so much of what is there is not looked at.
constexpr double kCloseEnough = 1.02;
constexpr double kMostMemory = 256;

class Changes {
 public:
  Changes(const config::JobConfig& config, const mesh::Topology& topology)
      : config_(config), topology_(topology) {}

  std::vector<Change> Run() {
    AddPins();
    AddMemories();
    for (const int64_t divisor : {2, 4, 8}) {
      AddBatch(divisor);
      AddSequence(divisor);
    }
    for (const int factor : {2, 4}) AddHosts(factor);
    std::stable_sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
      return std::tuple(a.kind, a.amount) < std::tuple(b.kind, b.amount);
    });
    return std::move(changes_);
  }

 private:
  Change& Add(std::string family, ChangeKind kind, double amount, std::string text) {
    return changes_.emplace_back(
        Change{std::move(family), std::move(text), kind, amount, config_, topology_});
  }

  static std::string TakenBack(const ir::Pin& pin) {
    if (pin.open[0] == '\0') return fmt::format("leave {} out", pin.key);
    return fmt::format("set {} = \"auto\"", pin.key);
  }

  void AddPins() {
    Change all;
    all.config = config_;
    int pins = 0;
    for (const ir::Pin& pin : ir::Pins()) {
      if (pin.open == nullptr || ir::PinText(pin, config_.parallel) == pin.open) continue;
      Change& change = Add(pin.key, ChangeKind::kPin, 0, TakenBack(pin));
      for (ir::ParallelSpec* parallel : {&change.config.parallel, &all.config.parallel}) {
        const Status set = ir::SetPin(pin, pin.open, *parallel);
        MW_CHECK(set.ok()) << set.message();
      }
      ++pins;
    }
    if (pins < 2) return;
    Change& change =
        Add("pins", ChangeKind::kPin, 0, "leave [parallelism] and [activation_checkpoint] out");
    change.config = std::move(all.config);
  }

  // Pins, and where to.
  using Moved = std::vector<std::pair<std::string_view, const char*>>;

  // What the job keeps in one of the memories `from`, of these pins.
  void AddMoved(const char* family, const std::vector<std::string_view>& from, const Moved& moved) {
    Change change{family, {}, ChangeKind::kTier, 0, config_, topology_};
    std::vector<std::string> keys;
    for (const auto& [key, memory] : moved) {
      const std::string_view name = key;
      const auto pin = std::find_if(ir::Pins().begin(), ir::Pins().end(),
                                    [&](const ir::Pin& each) { return each.name == name; });
      MW_CHECK(pin != ir::Pins().end()) << "no pin " << name;
      const std::string in = ir::PinText(*pin, config_.parallel);
      if (std::find(from.begin(), from.end(), in) == from.end()) continue;
      const Status set = ir::SetPin(*pin, memory, change.config.parallel);
      MW_CHECK(set.ok()) << set.message();
      keys.push_back(fmt::format("{} = \"{}\"", pin->key, memory));
      change.amount += 1;
    }
    if (keys.empty()) return;
    change.text = fmt::format("set {}", fmt::join(keys, ", "));
    // Of two that a change may move, the job may have one there.
    const bool known = std::any_of(changes_.begin(), changes_.end(), [&](const auto& other) {
      return other.family == change.family && other.text == change.text;
    });
    if (!known) changes_.push_back(std::move(change));
  }

  // Of what the job keeps on a disk, some in the memory of the host; of what it leaves on the
  // device, some there, or state on a disk; all of it in the memory of the host.
  void AddMemories() {
    const Moved optimizer = {{"optimizer_memory", "host"}};
    const Moved weights = {{"weights_memory", "host"}};
    const Moved both = {{"optimizer_memory", "host"}, {"weights_memory", "host"}};
    for (const Moved& moved : {optimizer, weights, both}) AddMoved("nearer", {"disk"}, moved);
    AddMoved("host", {"device"}, optimizer);
    AddMoved("host", {"device"}, {{"activations_memory", "host"}});
    AddMoved("host", {"device"}, both);
    const Moved made = {{"gradients_memory", "host"}, {"activations_memory", "host"}};
    for (const char* const state : {"host", "disk"}) {
      Moved all = made;
      for (const char* const name : {"optimizer_memory", "weights_memory"}) {
        all.emplace_back(name, state);
      }
      AddMoved(state, {"device"}, all);
      const bool differs = state == std::string_view("host") && KeepsOnDisk();
      if (differs) AddMoved("all in the host", {"device", "disk"}, all);
    }
  }

  bool KeepsOnDisk() const {
    return config_.parallel.optimizer_memory == "disk" || config_.parallel.weights_memory == "disk";
  }

  void AddBatch(int64_t divisor) {
    const int64_t batch = config_.train.global_batch;
    if (batch % divisor != 0) return;
    // Replicas times rows of a replica say the same as the whole batch; the key that is set wins.
    const bool local = config_.local_batch_size > 0 && config_.parallel.data > 0;
    if (local && config_.local_batch_size % divisor != 0) return;
    const std::string key = local ? "local_batch_size" : "global_batch_size";
    const int64_t value = (local ? config_.local_batch_size : batch) / divisor;
    Change& change = Add("batch", ChangeKind::kTokens, GivenUp(divisor),
                         fmt::format("set training.{} = {}", key, value));
    change.config.train.global_batch = batch / divisor;
    change.config.global_batch_size = batch / divisor;
    if (local) change.config.local_batch_size = value;
  }

  void AddSequence(int64_t divisor) {
    if (config_.train.sequence % divisor != 0) return;
    const int64_t sequence = config_.train.sequence / divisor;
    Change& change = Add("sequence", ChangeKind::kTokens, GivenUp(divisor),
                         fmt::format("set training.seq_len = {}", sequence));
    change.config.train.sequence = sequence;
  }

  static double GivenUp(int64_t divisor) { return 1 - 1 / static_cast<double>(divisor); }

  // Copies of all hosts, behind those that are there.
  void AddHosts(int factor) {
    Change& change =
        Add("hosts", ChangeKind::kHosts, factor - 1,
            fmt::format("{} times the hosts ({} devices): count in [[hosts]] of the cluster file, "
                        "or --devices {}",
                        factor, topology_.devices.size() * static_cast<size_t>(factor),
                        topology_.devices.size() * static_cast<size_t>(factor)));
    for (int copy = 1; copy < factor; ++copy) {
      const std::string suffix = fmt::format("+{}", copy);
      for (const auto& [name, host] : topology_.hosts) change.topology.hosts[name + suffix] = host;
      for (mesh::Device device : topology_.devices) {
        device.worker += suffix;
        device.host += suffix;
        change.topology.devices.push_back(std::move(device));
      }
    }
  }

  const config::JobConfig& config_;
  const mesh::Topology& topology_;
  std::vector<Change> changes_;
};

// What a cluster file has to say of a GPU that is to have so much for plans.
int64_t WithReserve(int64_t bytes, const mesh::DeviceProfile& profile) {
  int64_t all = bytes;
  for (int i = 0; i < 16; ++i) {  // an eighth of it at most: the error shrinks eightfold
    all = bytes + std::max(profile.reserve_bytes, GpuReserveBytes(all));
  }
  return all;
}

// The changes of a kind, tried until one fits.
class Offers {
 public:
  Offers(const config::JobConfig& config, const mesh::Topology& topology,
         const search::SearchTime& time)
      : config_(config), topology_(topology), time_(time) {}

  FittingChanges Run() {
    changes_ = PossibleChanges(config_, topology_);
    constexpr std::array kKinds = {ChangeKind::kTier, ChangeKind::kMemory, ChangeKind::kPin,
                                   ChangeKind::kTokens, ChangeKind::kHosts};
    for (size_t k = 0; k < kKinds.size(); ++k) {
      const search::SearchTime own = time_.OneOf(k + 1 < kKinds.size() ? 2 : 1);
      const Fitting fitting =
          kKinds[k] == ChangeKind::kMemory ? LeastMemory(own) : LeastOf(kKinds[k], own);
      found_.fitting.insert(found_.fitting.end(), fitting.begin(), fitting.end());
    }
    return std::move(found_);
  }

 private:
  using Fitting = std::vector<FittingChange>;

  Result<PlannedJob> Plan(const Change& change, const search::SearchTime& time) {
    MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(change.config));
    if (time.IsOver(false)) return Fail(DeadlineExceeded("there was no time to try"));
    const search::SearchTime own = time.OneOf(2);  // one plan may not take all of it
    search::FindOptions options;
    options.timeout_ms = own.left_ms(true) / 2;
    options.patience_ms = own.left_ms(false);
    options.any_that_fits = true;
    return PlanJob(std::move(prepared), change.topology, options, time.clock(),
                   planner::PlanScope::kOnePerStage);
  }

  std::optional<FittingChange> Attempt(const Change& change, const search::SearchTime& time) {
    const auto planned = Plan(change, time);
    if (planned) {
      return FittingChange{change.text, planned->forecast.step_s,
                           planned->plan().layout.ToString()};
    }
    const bool misfit = planned.error().code() == StatusCode::kResourceExhausted;
    if (change.kind == ChangeKind::kTier && misfit) {
      found_.why_no_tier = planned.error().message();
    }
    return std::nullopt;
  }

  // The first family of the kind that helps has the answer.
  Fitting LeastOf(ChangeKind kind, const search::SearchTime& time) {
    std::vector<std::vector<const Change*>> families;
    for (const Change& change : changes_) {
      if (change.kind != kind) continue;
      const auto same = std::find_if(families.begin(), families.end(), [&](const auto& family) {
        return family.front()->family == change.family;
      });
      if (same == families.end()) {
        families.push_back({&change});
      } else {
        same->push_back(&change);
      }
    }
    // All pins taken back: what they do not make fit no single one does.
    if (kind == ChangeKind::kPin && families.size() > 1) {
      std::optional<FittingChange> all = Attempt(*families.back().front(), time);
      if (!all) return {};
      families.pop_back();
      for (const auto& family : families) {
        if (auto one = Attempt(*family.front(), time)) return {*std::move(one)};
      }
      return {*std::move(all)};
    }
    for (const auto& family : families) {
      Fitting least = LeastThatFit(family, time);
      if (least.empty()) continue;
      if (kind == ChangeKind::kTier) found_.why_no_tier.clear();
      return least;
    }
    return {};
  }

  // Those that are as small. The greatest is tried first: a family that this does not help is done
  // with, and where the time ends there is an answer.
  Fitting LeastThatFit(std::vector<const Change*> family, const search::SearchTime& time) {
    const std::optional<FittingChange> greatest = Attempt(*family.back(), time);
    if (!greatest) return {};
    family.pop_back();
    Fitting least;
    double amount = 0;
    for (const Change* change : family) {
      if (!least.empty() && change->amount > amount) break;
      if (auto less = Attempt(*change, time)) least.push_back(*std::move(less));
      amount = change->amount;
    }
    return least.empty() ? Fitting{*greatest} : least;
  }

  // Doubled until it fits, then bisected below what the plan that fits says that it needs. What is
  // offered was planned with.
  Fitting LeastMemory(const search::SearchTime& time) {
    double low = 1;   // too little
    double high = 0;  // enough for the last plan that fits; 0: none does
    Fitting least;
    const auto fits = [&](double factor) {
      const auto change = WithMemory(config_, topology_, factor);
      if (!change) return false;
      const auto planned = Plan(*change, time);
      if (!planned) return false;
      high = std::clamp(Needed(planned->plan(), change->topology) * factor, low, factor);
      least = {
          FittingChange{change->text, planned->forecast.step_s, planned->plan().layout.ToString()}};
      return true;
    };
    while (!fits(2 * low)) {
      low *= 2;
      if (low >= kMostMemory || time.IsOver(false)) return {};
    }
    double tried = 2 * low;
    while (high > low * kCloseEnough && !time.IsOver(true)) {
      const double middle = std::sqrt(low * high);
      if (fits(middle)) {
        tried = middle;
      } else {
        low = middle;
      }
    }
    if (high > low && high < tried) fits(high);
    return least;
  }

  // The greatest share of its memory that a device needs.
  static double Needed(const planner::Plan& plan, const mesh::Topology& topology) {
    const mesh::Topology seen = planner::TopologyOf(plan.layout, topology);
    double most = 0;
    for (size_t i = 0; i < plan.memory.size(); ++i) {
      const int64_t has = seen.devices[plan.Main()[i].device.index()].memory_bytes;
      if (has == 0) continue;
      most = std::max(most,
                      static_cast<double>(plan.memory[i].total_bytes) / static_cast<double>(has));
    }
    return most;
  }

  const config::JobConfig& config_;
  const mesh::Topology& topology_;
  const search::SearchTime& time_;
  std::vector<Change> changes_;
  FittingChanges found_;
};

}  // namespace

std::vector<Change> PossibleChanges(const config::JobConfig& config,
                                    const mesh::Topology& topology) {
  return Changes(config, topology).Run();
}

std::optional<Change> WithMemory(const config::JobConfig& config, const mesh::Topology& topology,
                                 double factor) {
  constexpr int64_t kMib = 1 << 20;
  Change change{"memory", {}, ChangeKind::kMemory, factor - 1, config, topology};
  std::set<int64_t> sizes, named;
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    int64_t& bytes = change.topology.devices[i].memory_bytes;
    if (bytes == 0) continue;  // unknown, not checked: more of it changes nothing
    const mesh::DeviceProfile& profile = topology.ProfileOf(i);
    const bool reserves = profile.reserve_bytes > 0 && bytes == profile.usable_bytes();
    bytes = static_cast<int64_t>(std::ceil(factor * static_cast<double>(bytes) / kMib)) * kMib;
    sizes.insert(bytes / kMib);
    named.insert(reserves ? WithReserve(bytes, profile) : bytes);
  }
  if (sizes.empty()) return std::nullopt;
  std::vector<std::string> gib;
  for (const int64_t bytes : named) {
    gib.push_back(
        fmt::format("{:.2f}", std::ceil(1e2 * static_cast<double>(bytes) / (1 << 30)) / 1e2));
  }
  change.text = fmt::format(
      "devices with {} GiB: memory_gib of [[profiles]] in the cluster file, or meshwright worker "
      "--memory-mib {}",
      fmt::join(gib, " and "), fmt::join(sizes, " and "));
  return change;
}

FittingChanges FindFittingChanges(const config::JobConfig& config, const mesh::Topology& topology,
                                  const search::SearchTime& time) {
  return Offers(config, topology, time).Run();
}

std::string FormatChanges(const FittingChanges& changes) {
  std::string text;
  if (changes.fitting.empty()) {
    text =
        "no single change of pins, memories, batch, sequence or devices that was tried makes it "
        "fit\n";
  } else {
    text = "any one of these makes it fit:\n";
  }
  for (const FittingChange& change : changes.fitting) {
    text += fmt::format("  {}\n    step {}, {}\n", change.text, FormatDuration(change.step_s),
                        change.layout);
  }
  if (!changes.why_no_tier.empty()) {
    text += fmt::format("farther memories do not: {}\n", changes.why_no_tier);
  }
  return text;
}

}  // namespace meshwright::report
