// The search for stages against all stages.
#include "search/stage_search.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "tests/still_clock.h"
#include "tests/unit/search/stage_problems.h"

namespace meshwright::search {
namespace {

// The whole range from the first case on.
int Below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

// Small whole numbers, so that ties are frequent and sums exact.
LayerCost ArbitraryCost() {
  return {static_cast<double>(Below(12)), static_cast<double>(Below(8)), Below(10), Below(6),
          Below(6)};
}

// At most `devices` of them.
StageDeviceClass ArbitraryClass(int devices) {
  StageDeviceClass result{{}, Below(4) == 0 ? 0 : 5 + Below(60)};
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

StageProblem Arbitrary(int layers, int options, int devices) {
  StageProblem problem;
  problem.layers = 1 + Below(layers);
  problem.microbatches = 1 + Below(6);
  problem.holds_all = Below(3) == 0;
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
  if (Below(3) == 0) problem.stages = 1 + Below(problem.layers);
  return problem;
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

bool Packs(const StageProblem& problem, std::span<const StageChoice> stages);

std::optional<Key> BruteForce(const StageProblem& problem) {
  std::optional<Key> best;
  std::vector<StageChoice> stages;
  ForAllStages(problem, stages, [&] {
    const bool fits = EvaluateStages(problem, stages).wrong.empty() && Packs(problem, stages);
    if (fits) best = std::min(best.value_or(KeyOf(problem, stages)), KeyOf(problem, stages));
  });
  return best;
}

// Wide enough to leave nothing out.
const StageSearchOptions kExact{.timeout_ms = 60'000, .width = 1 << 20};

void ExpectPlaced(const StageProblem& problem, const StageAnswer& answer) {
  std::vector<std::vector<std::vector<int>>> taken;
  for (const StageDeviceClass& c : problem.classes) {
    taken.emplace_back();
    for (const int devices : c.host_devices)
      taken.back().emplace_back(static_cast<size_t>(devices));
  }
  RC_ASSERT(answer.places.size() == answer.stages.size());
  for (size_t i = 0; i < answer.stages.size(); ++i) {
    const StageOption& option = problem.options[static_cast<size_t>(answer.stages[i].option)];
    RC_ASSERT(static_cast<int>(answer.places[i].hosts.size()) == option.shape.hosts);
    for (const int host : answer.places[i].hosts) {
      auto& devices = taken[static_cast<size_t>(option.device_class)][static_cast<size_t>(host)];
      for (int d = 0; d < option.shape.devices_per_host; ++d) {
        const int device = answer.places[i].first_device + d;
        RC_ASSERT(++devices.at(static_cast<size_t>(device)) == 1);
      }
    }
  }
}

void ExpectWhatBruteForceFinds(const StageProblem& problem) {
  const std::optional<Key> wanted = BruteForce(problem);
  const auto answer = SearchStages(problem, kExact, kStill);
  RC_CLASSIFY(wanted && std::get<1>(*wanted) > 1, "several stages");
  RC_ASSERT(answer.has_value() == wanted.has_value());
  if (!wanted) return;
  RC_ASSERT(EvaluateStages(problem, answer->stages).wrong.empty());
  RC_ASSERT(KeyOf(problem, answer->stages) == *wanted);
  ExpectPlaced(problem, *answer);
  // A narrow beam is real, and of so few layers seldom far off.
  const auto narrow = SearchStages(problem, {.timeout_ms = 60'000, .width = 8}, kStill);
  if (!narrow) return;
  RC_ASSERT(std::get<0>(KeyOf(problem, narrow->stages)) >= std::get<0>(*wanted));
  ExpectPlaced(problem, *narrow);
}

RC_GTEST_PROP(StageSearchProperty, FindsWhatBruteForceFinds, ()) {
  ExpectWhatBruteForceFinds(Arbitrary(5, 5, 8));
}

RC_GTEST_PROP(StageSearchProperty, FindsWhatBruteForceFindsInMoreLayers, ()) {
  ExpectWhatBruteForceFinds(Arbitrary(6, 3, 5));
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

bool Packs(const StageProblem& problem, std::span<const StageChoice> stages) {
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    std::vector<SubmeshShape> shapes;
    for (const StageChoice& stage : stages) {
      const StageOption& option = problem.options[static_cast<size_t>(stage.option)];
      if (option.device_class == static_cast<int>(c)) shapes.push_back(option.shape);
    }
    const std::vector<int>& hosts = problem.classes[c].host_devices;
    if (!Packs(hosts, hosts, shapes)) return false;
  }
  return true;
}

}  // namespace
}  // namespace meshwright::search
