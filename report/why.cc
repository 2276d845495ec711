#include "report/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/forecast.h"
#include "planner/layout.h"
#include "planner/resolve_layout.h"
#include "search/find_layout.h"

namespace meshwright::report {
namespace {

// Less is within what forecasts of neighbours are wrong by.
constexpr double kWorthIt = 0.99;
// A rank that is so much busier than the others is named.
constexpr double kSlow = 1.1;

class Neighbours {
 public:
  Neighbours(const ir::JobRequest& job, const planner::Layout& layout)
      : layout_(layout), own_(job.parallel), batch_(job.train.global_batch) {
    planned_ = own_;
    planner::PinDegrees(layout, planned_);
  }

  std::vector<Neighbour> Run() {
    AddMicrobatches();
    AddSchedules();
    AddRecompute();
    AddDegrees();
    ir::ParallelSpec open = ir::OpenParallel();
    open.device = own_.device;
    open.shardings = own_.shardings;
    open.sharding_pins = own_.sharding_pins;
    Add("leave [parallelism] and [activation_checkpoint] out", open);
    return std::move(all_);
  }

 private:
  void Add(std::string text, const ir::ParallelSpec& parallel) {
    if (parallel == own_) return;
    all_.push_back({std::move(text), parallel});
  }

  void AddMicrobatches() {
    for (const int64_t count : {layout_.microbatches * 2, layout_.microbatches / 2}) {
      const int64_t rows = batch_ / std::max<int64_t>(1, layout_.data());
      if (count < 1 || count > rows || rows % count != 0) continue;
      ir::ParallelSpec parallel = own_;
      parallel.microbatches = count;
      Add(fmt::format("parallelism.pipeline_parallel_microbatches = {}", count), parallel);
    }
  }

  void AddSchedules() {
    if (layout_.pipeline < 2) return;
    for (const char* const schedule : {"1f1b", "zb-h1"}) {
      if (layout_.schedule == schedule) continue;
      ir::ParallelSpec parallel = own_;
      parallel.schedule = schedule;
      Add(fmt::format("parallelism.pipeline_parallel_schedule = \"{}\"", schedule), parallel);
    }
  }

  void AddRecompute() {
    const bool any =
        std::any_of(layout_.recompute.begin(), layout_.recompute.end(),
                    [](planner::Recompute mode) { return mode != planner::Recompute::kNone; });
    if (!any) return;
    ir::ParallelSpec parallel = own_;
    parallel.recompute = "none";
    Add("activation_checkpoint.mode = \"none\"", parallel);
  }

  // One of data, tensor and pipeline is doubled and another halved.
  void AddDegrees() {
    if (!layout_.stage_degrees.empty()) return;
    struct Degree {
      const char* key;
      int64_t ir::ParallelSpec::*member;
    };
    constexpr Degree kDegrees[] = {
        {"parallelism.data_parallel_replicate_degree", &ir::ParallelSpec::data},
        {"parallelism.tensor_parallel_degree", &ir::ParallelSpec::tensor},
        {"parallelism.pipeline_parallel_degree", &ir::ParallelSpec::pipeline}};
    for (const Degree& more : kDegrees) {
      for (const Degree& less : kDegrees) {
        if (more.key == less.key || planned_.*less.member % 2 != 0) continue;
        ir::ParallelSpec parallel = own_;
        parallel.*more.member = planned_.*more.member * 2;
        parallel.*less.member = planned_.*less.member / 2;
        Add(fmt::format("{} = {}, {} = {}", more.key, parallel.*more.member, less.key,
                        parallel.*less.member),
            parallel);
      }
    }
  }

  const planner::Layout& layout_;
  const ir::ParallelSpec own_;  // as the job asks
  const int64_t batch_;
  ir::ParallelSpec planned_;  // and as it is planned
  std::vector<Neighbour> all_;
};

std::string Share(double part, double of) {
  return of > 0 ? fmt::format("{:.1f} %", 100 * part / of) : "-";
}

// Ranks whose own work takes longer than that of most.
std::string SlowRanks(const MeasuredParts& measured) {
  std::vector<double> work;
  const auto of = [](const StepParts& parts) {
    return parts.Of(StepPart::kCompute) + parts.Of(StepPart::kInput) + parts.Of(StepPart::kCopies);
  };
  for (const auto& [rank, parts] : measured.ranks) work.push_back(of(parts));
  if (work.size() < 2) return "";
  std::nth_element(work.begin(), work.begin() + static_cast<ptrdiff_t>((work.size() - 1) / 2),
                   work.end());
  const double usual = work[(work.size() - 1) / 2];
  std::string text;
  for (const auto& [rank, parts] : measured.ranks) {
    if (of(parts) <= kSlow * usual) continue;
    text += fmt::format("{}rank {} {:.2f} x", text.empty() ? "" : ", ", rank,
                        usual > 0 ? of(parts) / usual : 0);
  }
  return text;
}

// What each part is to who reads it.
constexpr std::pair<StepPart, const char*> kRows[] = {
    {StepPart::kCompute, "compute"},
    {StepPart::kCommunication, "exposed communication"},
    {StepPart::kBubble, "bubble, waiting for stages"},
    {StepPart::kStragglers, "waiting for slower members"},
    {StepPart::kInput, "input"},
    {StepPart::kCopies, "copies from and to the host"},
};

std::string StepsText(const ir::StepRange& steps) {
  return steps.count == 1 ? fmt::format("step {}", steps.first + 1)
                          : fmt::format("steps {} to {}", steps.first + 1, steps.end());
}

}  // namespace

std::vector<Neighbour> NeighboursOf(const ir::JobRequest& job, const planner::Layout& layout) {
  return Neighbours(job, layout).Run();
}

std::vector<Advice> FindAdvice(const ir::JobRequest& job, const planner::Layout& layout,
                               const mesh::Topology& topology, double plan_s,
                               const AdviceOptions& options, const Clock& clock) {
  MW_CHECK(plan_s > 0) << "advice against a step of " << plan_s << " s";
  const Deadline deadline = Deadline::After(options.timeout_ms, clock);
  std::vector<Advice> found;
  std::set<std::string> seen = {layout.ToString()};
  for (const Neighbour& neighbour : NeighboursOf(job, layout)) {
    if (deadline.expired() || (options.gone && options.gone())) break;
    ir::JobRequest other = job;
    other.parallel = neighbour.parallel;
    search::FindOptions one;
    one.timeout_ms = deadline.remaining_ms() / 2;
    one.patience_ms = deadline.remaining_ms();
    if (options.gone) {
      one.progress = [&options](const search::FindProgress&) { return !options.gone(); };
    }
    const auto plan =
        search::FindPlan(other, topology, one, clock, planner::PlanScope::kOnePerStage);
    if (!plan || !seen.insert(plan->plan.layout.ToString()).second) continue;
    const auto forecast = planner::ForecastStep(plan->plan, topology);
    if (!forecast || forecast->step_s >= kWorthIt * plan_s) continue;
    int64_t bytes = 0;
    for (const planner::DeviceMemory& device : plan->plan.memory) {
      bytes = std::max(bytes, device.total_bytes);
    }
    found.push_back({neighbour.text, plan->plan.layout.ToString(), forecast->step_s, bytes});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Advice& a, const Advice& b) { return a.step_s < b.step_s; });
  if (found.size() > options.most) found.resize(options.most);
  return found;
}

std::string FormatWhy(const WhyFigures& figures) {
  const StepParts& measured = figures.measured.mean;
  const StepParts& forecast = figures.forecast;
  const double step_s = measured.total();
  std::string text = fmt::format("{}, {}: {} a step, {} by forecast ({:.2f} x)\n", figures.job,
                                 StepsText(figures.steps), FormatDuration(step_s),
                                 FormatDuration(forecast.total()),
                                 forecast.total() > 0 ? step_s / forecast.total() : 0);
  if (!figures.layout.empty()) text += fmt::format("by the plan {}\n", figures.layout);
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* name, double now_s, double then_s, const std::string& note) {
    rows.push_back(
        {name, FormatDuration(now_s), Share(now_s, step_s), FormatDuration(then_s), note});
  };
  // A rank alone has nobody to speak to or to wait for.
  const bool alone = figures.measured.ranks.size() == 1;
  for (const auto& [part, name] : kRows) {
    const bool always = part == StepPart::kCompute || part == StepPart::kInput ||
                        (part != StepPart::kCopies && !alone);
    if (!always && measured.Of(part) == 0 && forecast.Of(part) == 0) continue;
    add(name, measured.Of(part), forecast.Of(part),
        part == StepPart::kStragglers ? SlowRanks(figures.measured) : "");
  }
  add("between steps and the rest", measured.Of(StepPart::kBetween) + measured.Of(StepPart::kRest),
      0, "");
  if (figures.saves > 0) {
    rows.push_back({"checkpoints", FormatDuration(figures.checkpoint_s), "beside", "-",
                    fmt::format("mean of {} saves", figures.saves)});
  }
  text += FormatTable({"PART", "MEASURED", "SHARE", "FORECAST", ""}, rows);
  if (figures.clock_error_ns > 0) {
    text += fmt::format("clocks of hosts agree to {}; waits that are shorter may be another's\n",
                        FormatDuration(static_cast<double>(figures.clock_error_ns) * 1e-9));
  }
  if (!figures.profile_note.empty()) text += figures.profile_note + '\n';
  if (figures.advice.empty()) {
    return text + "no neighbouring plan is forecast to be faster\n";
  }
  text +=
      fmt::format("to try, by forecast (this plan: {}):\n", FormatDuration(figures.advice_from_s));
  for (const Advice& advice : figures.advice) {
    text += fmt::format("  {} ({:+.0f} %, {}): {}\n", FormatDuration(advice.step_s),
                        100 * (advice.step_s / figures.advice_from_s - 1),
                        FormatBytes(advice.memory_bytes), advice.text);
  }
  return text;
}

std::string WhyJson(const WhyFigures& figures) {
  using Json = nlohmann::ordered_json;
  const auto parts = [](const StepParts& of) {
    Json object = Json::object();
    for (size_t p = 0; p < kStepPartCount; ++p) {
      object[std::string(StepPartName(static_cast<StepPart>(p))) + "_s"] = of.seconds[p];
    }
    return object;
  };
  Json ranks = Json::object();
  for (const auto& [rank, own] : figures.measured.ranks) ranks[std::to_string(rank)] = parts(own);
  Json advice = Json::array();
  for (const Advice& each : figures.advice) {
    advice.push_back({{"change", each.text},
                      {"layout", each.layout},
                      {"step_s", each.step_s},
                      {"memory_bytes", each.memory_bytes}});
  }
  const Json object = {{"job", figures.job},
                       {"first_step", figures.steps.first + 1},
                       {"steps", figures.steps.count},
                       {"measured", parts(figures.measured.mean)},
                       {"forecast", parts(figures.forecast)},
                       {"ranks", ranks},
                       {"checkpoint_s", figures.checkpoint_s},
                       {"saves", figures.saves},
                       {"clock_error_ns", figures.clock_error_ns},
                       {"profile", figures.profile_note},
                       {"plan_step_s", figures.advice_from_s},
                       {"layout", figures.layout},
                       {"to_try", advice}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshwright::report
