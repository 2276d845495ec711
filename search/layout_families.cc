#include "search/layout_families.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/zero_levels.h"

namespace meshwright::search {
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
  for (const LayerModes* const modes : whole.layers.front()) {
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
    family.rows = rows / microbatches;
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
