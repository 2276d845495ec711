#include "report/plan_search_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/table.h"
#include "base/text.h"
#include "planner/router_sweep.h"

namespace meshwright::report {
namespace {

constexpr size_t kMostAlternatives = 5;
constexpr int64_t kQuietMs = 1000;  // searches that are shorter show nothing
constexpr int64_t kRedrawMs = 100;

// What the forecast of the plan is to its estimate; 1 where it has none among the alternatives.
double Correction(const search::FoundLayout& found, const PlanFigures& plan) {
  for (const search::LayoutCost& cost : found.best) {
    if (cost.layout.ToString() != plan.layout || cost.step_s <= 0) continue;
    return cost.is_forecast ? 1 : plan.step_s / cost.step_s;
  }
  return 1;
}

// "2 is estimated 3.1 % slower"; "" where nothing is known. own_s: the estimate of the plan's
// number; 0: it has none.
std::string VerdictOn(const search::MicrobatchPrice& other, double own_s) {
  // What differs by less is as good.
  constexpr double kSame = 5e-4;
  const bool bounded = other.step_s <= 0 || (other.least_s > 0 && other.least_s < other.step_s);
  const double other_s = bounded ? other.least_s : other.step_s;
  if (other_s > 0) {
    if (own_s <= 0) return "";
    const double slower = other_s / own_s - 1;
    if (bounded) {
      if (slower < -kSame) return "";  // nobody looked
      if (slower < kSame) return fmt::format("{} is not faster", other.microbatches);
      return fmt::format("{} is at least {:.1f} % slower", other.microbatches, 1e2 * slower);
    }
    if (std::abs(slower) < kSame) return fmt::format("{} is as fast", other.microbatches);
    return fmt::format("{} is estimated {:.1f} % {}", other.microbatches, 1e2 * std::abs(slower),
                       slower < 0 ? "faster" : "slower");
  }
  if (other.missing_bytes <= 0) return "";
  const bool known = other.missing_bytes < std::numeric_limits<int64_t>::max();
  return fmt::format(
      "{} does not fit{}", other.microbatches,
      known ? fmt::format(" (by {} a device)", FormatBytes(other.missing_bytes)) : std::string());
}

}  // namespace

std::string MicrobatchesLine(const search::FoundLayout& found, const planner::Layout& layout,
                             const ir::JobRequest& job) {
  if (job.parallel.microbatches > 0 || job.trained() == nullptr) return "";
  if (found.best.empty()) {
    const char* rule = "by rule, one where there are no stages";
    if (layout.pipeline > 1)
      rule = "by rule, as many as divide a replica's rows, at most two a stage";
    if (layout.pipeline > 1 && !planner::WholeBatchOf(job).empty())
      rule = "one, for the model reads the whole batch at once";
    return fmt::format("microbatches {}: {}\n", layout.microbatches, rule);
  }
  const search::MicrobatchPrice* own = nullptr;
  const search::MicrobatchPrice* fewer = nullptr;
  const search::MicrobatchPrice* more = nullptr;
  for (const search::MicrobatchPrice& price : found.microbatches) {
    if (price.microbatches == layout.microbatches) own = &price;
    if (price.microbatches < layout.microbatches) fewer = &price;
    if (price.microbatches > layout.microbatches && more == nullptr) more = &price;
  }
  const double own_s = own == nullptr ? 0 : own->step_s;
  std::string text;
  for (const search::MicrobatchPrice* other : {fewer, more}) {
    const std::string verdict = other == nullptr ? "" : VerdictOn(*other, own_s);
    if (!verdict.empty()) text += (text.empty() ? "" : ", ") + verdict;
  }
  if (text.empty()) return "";
  return fmt::format("microbatches {}: with these degrees {}\n", layout.microbatches, text);
}

std::string DecidersLine(const search::DeciderCounts& deciders) {
  std::string text;
  for (size_t i = 0; i < deciders.times.size(); ++i) {
    if (deciders.times[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "decided by " : ", ", search::kDeciderNames[i],
                        FormatCount(deciders.times[i]));
  }
  return text.empty() ? "" : text + "\n";
}

std::string FormatSearch(const search::FoundLayout& found, const PlanFigures& plan) {
  if (found.best.empty()) return DecidersLine(found.deciders);
  const double correction = Correction(found, plan);
  const auto shown_s = [&](const search::LayoutCost& cost) {
    if (cost.layout.ToString() == plan.layout) return plan.step_s;
    return cost.is_forecast ? cost.step_s : cost.step_s * correction;
  };
  const bool all_forecasts = std::all_of(found.best.begin(), found.best.end(),
                                         [](const auto& c) { return c.is_forecast; });
  const double first_s = shown_s(found.best.front());
  std::vector<std::vector<std::string>> rows;
  for (const search::LayoutCost& cost : found.best) {
    if (rows.size() == kMostAlternatives) break;
    const std::string layout = cost.layout.ToString();
    const bool is_plan = layout == plan.layout;
    rows.push_back(
        {FormatDuration(shown_s(cost)), fmt::format("x{:.3f}", shown_s(cost) / first_s),
         FormatBytes(is_plan ? plan.memory_bytes : cost.fullest_bytes()),
         layout + (cost.is_forecast && !is_plan && !all_forecasts ? " (forecast)" : "")});
  }
  const char* const of_steps =
      all_forecasts ? "LAYOUT (forecasts)" : "LAYOUT (estimates, but for the plan)";
  return FormatTable({"STEP", "RATIO", "MEMORY", of_steps}, rows) +
         fmt::format("{} layouts priced, {} families of degrees and microbatches; gap {}\n",
                     FormatCount(found.priced), FormatCount(found.candidates),
                     found.gap > 0 ? fmt::format("{:.1f} %", 100 * found.gap)
                                   : std::string("0: none of them is faster")) +
         DecidersLine(found.deciders);
}

SearchProgress::SearchProgress(const Clock& clock, std::function<void(const std::string&)> write)
    : clock_(clock), write_(std::move(write)), start_ms_(clock.NowMs()) {}

SearchProgress::~SearchProgress() {
  if (shown_ms_ >= 0) write_("\r\x1b[K");
}

void SearchProgress::Show(const search::FindProgress& progress) {
  const int64_t now_ms = clock_.NowMs();
  if (now_ms - start_ms_ < kQuietMs) return;
  if (shown_ms_ >= 0 && now_ms - shown_ms_ < kRedrawMs) return;
  shown_ms_ = now_ms;
  write_(fmt::format("\r\x1b[Ksearch: best step {}, gap {:.1f} %, {} layouts priced",
                     FormatDuration(progress.best_s), 100 * progress.gap,
                     FormatCount(progress.priced)));
}

}  // namespace meshwright::report
