#include "report/plan_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/parallel_pins.h"
#include "report/plan_job.h"

namespace meshwright::report {
namespace {

// What would fit is a help, not the answer: it may not take longer than that.
constexpr int64_t kAllTriesMs = 30'000;
constexpr int64_t kOneTryMs = 3'000;

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
    for (const double factor : {1.25, 1.5, 2.0, 4.0, 8.0}) AddMemory(factor);
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

  // Of what the job leaves on the device, some in the memory of the host, or state on a disk.
  void AddMemories() {
    using Moved = std::vector<std::pair<std::string_view, const char*>>;  // pins, and where to
    const auto add = [&](const char* family, const Moved& moved) {
      Change change{family, {}, ChangeKind::kTier, 0, config_, topology_};
      std::vector<std::string> keys;
      for (const auto& [key, memory] : moved) {
        const std::string_view name = key;
        const auto pin = std::find_if(ir::Pins().begin(), ir::Pins().end(),
                                      [&](const ir::Pin& each) { return each.name == name; });
        MW_CHECK(pin != ir::Pins().end()) << "no pin " << name;
        if (ir::PinText(*pin, config_.parallel) != "device") continue;
        const Status set = ir::SetPin(*pin, memory, change.config.parallel);
        MW_CHECK(set.ok()) << set.message();
        keys.push_back(fmt::format("{} = \"{}\"", pin->key, memory));
        change.amount += 1;
      }
      if (keys.empty()) return;
      change.text = fmt::format("set {}", fmt::join(keys, ", "));
      changes_.push_back(std::move(change));
    };
    add("host", {{"optimizer_memory", "host"}});
    add("host", {{"activations_memory", "host"}});
    add("host", {{"optimizer_memory", "host"}, {"weights_memory", "host"}});
    const Moved made = {{"gradients_memory", "host"}, {"activations_memory", "host"}};
    for (const char* const state : {"host", "disk"}) {
      Moved all = made;
      for (const char* const name : {"optimizer_memory", "weights_memory"}) {
        all.emplace_back(name, state);
      }
      add(state, all);
    }
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

  void AddMemory(double factor) {
    std::set<int64_t> sizes;
    for (const mesh::Device& device : topology_.devices) sizes.insert(device.memory_bytes);
    sizes.erase(0);  // unknown, not checked: more of it changes nothing
    if (sizes.empty()) return;
    std::vector<std::string> gib, mib;
    for (const int64_t bytes : sizes) {
      const double more = factor * static_cast<double>(bytes);
      gib.push_back(fmt::format("{:.4g}", more / (1 << 30)));
      mib.push_back(fmt::format("{:.0f}", more / (1 << 20)));
    }
    Change& change =
        Add("memory", ChangeKind::kMemory, factor - 1,
            fmt::format("devices with {:.4g} times the memory: memory_gib = {} in [[profiles]] "
                        "of the cluster file, or meshwright worker --memory-mib {}",
                        factor, fmt::join(gib, " and "), fmt::join(mib, " and ")));
    for (mesh::Device& device : change.topology.devices) {
      device.memory_bytes = static_cast<int64_t>(factor * static_cast<double>(device.memory_bytes));
    }
  }

  // Copies of all hosts, behind those that are there.
  void AddHosts(int factor) {
    Change& change =
        Add("hosts", ChangeKind::kMemory, factor - 1,
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

using Attempt = std::function<std::optional<FittingChange>(const Change&)>;

// What no pin at all does not make fit, no single one does.
bool AnyPinHelps(const std::vector<Change>& changes, const Attempt& attempt) {
  const auto all = std::find_if(changes.begin(), changes.end(),
                                [](const Change& change) { return change.family == "pins"; });
  return all == changes.end() || attempt(*all).has_value();
}

// The least change of the family of changes[first], its least one. The greatest is tried first: a
// family that this does not help is done with, and where the time ends there is an answer.
std::optional<FittingChange> LeastThatFits(const std::vector<Change>& changes, size_t first,
                                           const Attempt& attempt) {
  std::vector<const Change*> family;
  for (size_t i = first; i < changes.size(); ++i) {
    if (changes[i].family == changes[first].family) family.push_back(&changes[i]);
  }
  std::optional<FittingChange> greatest = attempt(*family.back());
  if (!greatest) return std::nullopt;
  family.pop_back();
  for (const Change* change : family) {
    if (auto less = attempt(*change)) return less;
  }
  return greatest;
}

}  // namespace

std::vector<Change> PossibleChanges(const config::JobConfig& config,
                                    const mesh::Topology& topology) {
  return Changes(config, topology).Run();
}

std::vector<FittingChange> FindFittingChanges(const config::JobConfig& config,
                                              const mesh::Topology& topology,
                                              const search::FindOptions& options,
                                              const Clock& clock, size_t most) {
  std::vector<FittingChange> fitting;
  std::set<std::string> families;
  const Deadline deadline = Deadline::After(kAllTriesMs, clock);
  const std::vector<Change> changes = PossibleChanges(config, topology);
  const auto attempt = [&](const Change& change) -> std::optional<FittingChange> {
    auto prepared = config::PrepareJob(change.config);
    if (!prepared || deadline.expired()) return std::nullopt;
    search::FindOptions one_try = options;
    one_try.patience_ms = std::min(kOneTryMs, deadline.remaining_ms());
    one_try.timeout_ms = std::min(one_try.timeout_ms, deadline.remaining_ms());
    const auto planned = PlanJob(*std::move(prepared), change.topology, one_try, clock,
                                 planner::PlanScope::kOnePerStage);
    if (!planned) return std::nullopt;
    return FittingChange{change.text, planned->forecast.step_s, planned->plan().layout.ToString()};
  };
  const bool pins_help = AnyPinHelps(changes, attempt);
  for (size_t i = 0; i < changes.size() && fitting.size() < most; ++i) {
    const Change& change = changes[i];
    if (change.kind == ChangeKind::kPin && !pins_help) continue;
    // All pins taken back say nothing that one of them does not.
    if (change.family == "pins" && !fitting.empty()) continue;
    if (!families.insert(change.family).second) continue;
    if (auto least = LeastThatFits(changes, i, attempt)) fitting.push_back(*std::move(least));
  }
  return fitting;
}

std::string FormatChanges(const std::vector<FittingChange>& changes) {
  if (changes.empty()) {
    return "no single change of pins, memories, batch, sequence or hosts that was tried makes it "
           "fit\n";
  }
  std::string text =
      "it would fit with any of these, the cheapest first (pins cost nothing, then what is moved "
      "to "
      "farther memories, then tokens per step given up, then memory added):\n";
  for (const FittingChange& change : changes) {
    text += fmt::format("  {}\n    step {}, {}\n", change.text, FormatDuration(change.step_s),
                        change.layout);
  }
  return text;
}

}  // namespace meshwright::report
