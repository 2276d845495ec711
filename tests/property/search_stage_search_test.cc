// The search for stages against all stages.
#include "search/stage_search.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

// The whole range from the first case on.
int Below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

// Small whole numbers, so that ties are frequent and sums exact.
LayerCost ArbitraryCost() {
  LayerCost cost;
  cost.weight_s = Below(3);
  cost.forward_s = cost.weight_s + Below(6);  // a schedule may delay twice the weight gradients
  cost.backward_s = cost.weight_s + Below(6);
  cost.update_s = Below(3);
  cost.gradient_sync_s = Below(5);
  cost.state_bytes = Below(10);
  cost.activation_bytes = Below(6);
  cost.transient_bytes = Below(6);
  return cost;
}

// At most `devices` of them.
StageDeviceClass ArbitraryClass(int devices) {
  StageDeviceClass result{"c", {}, Below(4) == 0 ? 0 : 5 + Below(60)};
  while (devices > 0 && (result.host_devices.empty() || Below(3) > 0)) {
    const int host = result.host_devices.empty() || Below(2) == 0
                         ? 1 + Below(std::min(devices, 6))
                         : std::min(devices, result.host_devices.back());
    result.host_devices.push_back(host);
    devices -= host;
  }
  return result;
}

StageOption ArbitraryOption(const StageProblem& problem, int ports) {
  StageOption option;
  option.device_class = Below(static_cast<int>(problem.classes.size()));
  const auto& hosts = problem.classes[static_cast<size_t>(option.device_class)].host_devices;
  const int host = hosts[static_cast<size_t>(Below(static_cast<int>(hosts.size())))];
  option.shape =
      Below(3) == 0 ? SubmeshShape{1 + Below(3), host} : SubmeshShape{1, 1 + Below(host)};
  option.port = Below(ports);
  for (int layer = 0; layer < problem.layers; ++layer) option.layers.push_back(ArbitraryCost());
  return option;
}

PipelineModel ArbitrarySchedule() {
  std::vector<PipelineModel> models = {
      GpipeModel(),
      OneForwardOneBackwardModel(),
      {"lazy", [](int to_end, int m) { return to_end % 2 == 0 ? 1 : std::min(m, 3); }, 1},
      {"delayed", [](int, int) { return 2; }, 2}};
  return models[static_cast<size_t>(Below(static_cast<int>(models.size())))];
}

StageProblem Arbitrary(int layers, int options, int devices) {
  StageProblem problem;
  problem.layers = 1 + Below(layers);
  problem.microbatches = 1 + Below(6);
  problem.schedule = ArbitrarySchedule();
  problem.classes.push_back(ArbitraryClass(devices));
  if (Below(2) == 0) problem.classes.push_back(ArbitraryClass(3));
  const int ports = 1 + Below(2);
  for (int i = 1 + Below(options); i > 0; --i) {
    problem.options.push_back(ArbitraryOption(problem, ports));
  }
  for (int i = 1; i < problem.layers; ++i) problem.boundary_bytes.push_back(Below(4));
  if (Below(3) > 0) {
    problem.transfer_s = [](int from, int to, int64_t bytes) {
      return static_cast<double>(bytes * (1 + 2 * from + to));
    };
  }
  // Together, layers 1 and 2 are cheaper under option 0 than they are one by one.
  if (Below(3) == 0) {
    problem.range_cost = [](int option, int first, int end) -> std::optional<LayerCost> {
      if (option != 0 || first != 1 || end != 3) return std::nullopt;
      return LayerCost{1, 1, 0, 1, 1, 1, 1, 1};
    };
  }
  return problem;
}

void AddPins(StageProblem& problem) {
  StagePins& pins = problem.pins;
  if (Below(2) == 0) {
    pins.stages = 1 + Below(problem.layers);
  } else {
    pins.begins = {0};
    for (int layer = 1; layer < problem.layers; ++layer) {
      if (Below(2) == 0) pins.begins->push_back(layer);
    }
  }
  if (Below(2) == 0) {
    pins.options.push_back(
        {Below(*pins.stage_count()), Below(static_cast<int>(problem.options.size()))});
  }
}

using Key = std::tuple<double, size_t, int>;  // step, stages, devices

Key KeyOf(const StageProblem& problem, std::span<const StageChoice> stages) {
  int devices = 0;
  for (const StageChoice& stage : stages) {
    devices += problem.options[static_cast<size_t>(stage.option)].shape.devices();
  }
  return {EvaluateStages(problem, stages).step_s, stages.size(), devices};
}

void ForAllStages(const StageProblem& problem, std::vector<StageChoice>& stages,
                  const std::function<void()>& visit) {
  const int first = stages.empty() ? 0 : stages.back().end_layer;
  if (first == problem.layers) return visit();
  for (int end = first + 1; end <= problem.layers; ++end) {
    for (int option = 0; option < static_cast<int>(problem.options.size()); ++option) {
      stages.push_back({first, end, option});
      ForAllStages(problem, stages, visit);
      stages.pop_back();
    }
  }
}

struct BruteForce {
  std::optional<Key> best;
  // The least bytes by which the worst stage of stages that are right but for memory is over it.
  std::optional<int64_t> lacking_bytes;

  explicit BruteForce(const StageProblem& problem) {
    std::vector<StageChoice> stages;
    ForAllStages(problem, stages, [&] {
      const StageEvaluation evaluation = EvaluateStages(problem, stages);
      if (evaluation.feasible()) {
        const Key key = KeyOf(problem, stages);
        best = best ? std::min(*best, key) : key;
        return;
      }
      size_t over = 0;
      int64_t most_bytes = 0;
      for (const StageNumbers& numbers : evaluation.stages) {
        over += numbers.over_bytes > 0 ? 1 : 0;
        most_bytes = std::max(most_bytes, numbers.over_bytes);
      }
      if (over < evaluation.violations.size()) return;
      lacking_bytes = lacking_bytes ? std::min(*lacking_bytes, most_bytes) : most_bytes;
    });
  }
};

const StageSearchOptions kExact{.timeout_ms = 60'000, .gap = 0, .bucket_ratio = 0};

void ExpectWhatBruteForceFinds(const StageProblem& problem) {
  RC_ASSERT(CheckStageProblem(problem).ok());
  const BruteForce wanted(problem);
  const auto answer = SearchStages(problem, kExact, kStill);
  RC_CLASSIFY(!wanted.best && wanted.lacking_bytes, "lacks memory");
  RC_CLASSIFY(!wanted.best && !wanted.lacking_bytes, "does not cover");
  RC_CLASSIFY(wanted.best && std::get<1>(*wanted.best) > 1, "several stages");
  if (!wanted.best) {
    RC_ASSERT(!answer.has_value());
    RC_ASSERT(answer.error().code() == StatusCode::kResourceExhausted);
    const std::string lacking = wanted.lacking_bytes
                                    ? "lack " + std::to_string(*wanted.lacking_bytes) + " bytes"
                                    : "whatever memory";
    RC_LOG() << answer.error().ToString() << " instead of " << lacking << '\n';
    RC_ASSERT(answer.error().message().find(lacking) != std::string::npos);
    return;
  }
  if (!answer.has_value()) RC_LOG() << answer.error().ToString();
  RC_ASSERT(answer.has_value());
  RC_ASSERT(EvaluateStages(problem, answer->stages).feasible());
  RC_ASSERT(KeyOf(problem, answer->stages) == *wanted.best);
  RC_ASSERT(answer->gap() == 0);
}

RC_GTEST_PROP(StageSearchProperty, FindsWhatBruteForceFinds, ()) {
  ExpectWhatBruteForceFinds(Arbitrary(5, 5, 8));
}

RC_GTEST_PROP(StageSearchProperty, FindsWhatBruteForceFindsInMoreLayers, ()) {
  ExpectWhatBruteForceFinds(Arbitrary(6, 3, 5));
}

RC_GTEST_PROP(StageSearchProperty, KeepsPins, ()) {
  StageProblem problem = Arbitrary(5, 4, 8);
  AddPins(problem);
  RC_PRE(CheckStageProblem(problem).ok());
  ExpectWhatBruteForceFinds(problem);
}

// Buckets, units of several devices and counts that do not decide placement: whatever is given up,
// the answer is real, and nothing is below its bound when devices are the units.
RC_GTEST_PROP(StageSearchProperty, ApproximationsKeepTheirBounds, ()) {
  const StageProblem problem = Arbitrary(5, 4, 8);
  const BruteForce wanted(problem);
  StageSearchOptions options{.timeout_ms = 60'000, .gap = 0, .bucket_ratio = 0.3};
  options.limits.arrangements = Below(3) * 10;
  const bool coarse = Below(2) == 0;
  if (coarse) options.limits.entries = 1 + Below(60);
  const auto answer = SearchStages(problem, options, kStill);
  if (!answer.has_value()) {
    if (answer.error().code() != StatusCode::kResourceExhausted) {
      RC_LOG() << answer.error().ToString();
    }
    RC_ASSERT(answer.error().code() == StatusCode::kResourceExhausted);
    return;
  }
  RC_ASSERT(wanted.best.has_value());
  const double least_s = std::get<0>(*wanted.best);
  RC_ASSERT(EvaluateStages(problem, answer->stages).feasible());
  RC_ASSERT(answer->evaluation.step_s >= least_s);
  if (!coarse) RC_ASSERT(answer->bound_s <= least_s * (1 + 1e-9));
}

// All ways to give each submesh a host, or several whole ones.
bool Packs(std::vector<int> free, std::span<const int> hosts,
           std::span<const SubmeshShape> shapes) {
  if (shapes.empty()) return true;
  const SubmeshShape& shape = shapes.front();
  const auto rest = shapes.subspan(1);
  for (unsigned chosen = 0; chosen < 1U << hosts.size(); ++chosen) {
    std::vector<int> left = free;
    int count = 0;
    bool fits = true;
    for (size_t host = 0; host < hosts.size(); ++host) {
      if ((chosen >> host & 1U) == 0) continue;
      ++count;
      left[host] -= shape.devices_per_host;
      fits &= left[host] >= 0 && (shape.hosts == 1 || hosts[host] == shape.devices_per_host);
    }
    if (fits && count == shape.hosts && Packs(left, hosts, rest)) return true;
  }
  return false;
}

RC_GTEST_PROP(PackSubmeshesProperty, FindsPlacesWhenThereAreSome, ()) {
  std::vector<int> hosts;
  for (int i = 1 + Below(4); i > 0; --i) hosts.push_back(1 + Below(9));
  std::vector<SubmeshShape> shapes;
  for (int i = Below(7); i > 0; --i) {
    const int host = hosts[static_cast<size_t>(Below(static_cast<int>(hosts.size())))];
    shapes.push_back(Below(4) == 0 ? SubmeshShape{1 + Below(2), host}
                                   : SubmeshShape{1, 1 + Below(host)});
  }
  const auto places = PackSubmeshes(hosts, shapes);
  RC_ASSERT(places.has_value() == Packs(hosts, hosts, shapes));
  if (!places) return;
  std::vector<std::vector<int>> taken;
  for (int host : hosts) taken.emplace_back(static_cast<size_t>(host));
  for (size_t i = 0; i < shapes.size(); ++i) {
    const SubmeshPlace& place = (*places)[i];
    RC_ASSERT(static_cast<int>(place.hosts.size()) == shapes[i].hosts);
    for (int host : place.hosts) {
      for (int d = 0; d < shapes[i].devices_per_host; ++d) {
        const int device = place.first_device + d;
        RC_ASSERT(++taken[static_cast<size_t>(host)].at(static_cast<size_t>(device)) == 1);
      }
    }
  }
}

}  // namespace
}  // namespace meshwright::search
