#include "report/plan_search_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/table.h"
#include "base/text.h"

namespace meshwright::report {
namespace {

constexpr size_t kMostAlternatives = 5;
constexpr int64_t kQuietMs = 1000;  // searches that are shorter show nothing
constexpr int64_t kRedrawMs = 100;

// What the forecast of the plan is to its estimate; 1 where it is not among the alternatives.
double Correction(const search::FoundLayout& found, const PlanFigures& plan) {
  for (const search::LayoutCost& cost : found.best) {
    if (cost.layout.ToString() == plan.layout && cost.step_s > 0) return plan.step_s / cost.step_s;
  }
  return 1;
}

}  // namespace

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
  const double best_s = found.best.front().step_s;
  const double correction = Correction(found, plan);
  std::vector<std::vector<std::string>> rows;
  for (const search::LayoutCost& cost : found.best) {
    if (rows.size() == kMostAlternatives) break;
    const std::string layout = cost.layout.ToString();
    rows.push_back(
        {FormatDuration(cost.step_s * correction), fmt::format("x{:.3f}", cost.step_s / best_s),
         FormatBytes(layout == plan.layout ? plan.memory_bytes : cost.fullest_bytes()), layout});
  }
  return FormatTable({"STEP", "RATIO", "MEMORY", "LAYOUT (estimates, but for the plan)"}, rows) +
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
