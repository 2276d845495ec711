// The plan of a job: the layout by rules or search, then its shardings by rules or search, then
// what the planner's programs really take.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "ir/program_outputs.h"
#include "planner/forecast.h"
#include "planner/memory.h"
#include "planner/recompute_modes.h"
#include "planner/resolve_layout.h"
#include "planner/stages.h"
#include "planner/vocabulary_schedule.h"
#include "search/choose_memory.h"
#include "search/choose_overlap.h"
#include "search/find_layout.h"
#include "search/find_shardings.h"
#include "search/least_memory.h"
#include "search/nearest_choice.h"
#include "search/open_choices.h"
#include "search/plan_cache.h"
#include "search/sharding_pins.h"
#include "search/short_programs.h"
#include "search/tried_grids.h"

namespace meshwright::search {
namespace {

using planner::Layout;
using planner::Plan;
using planner::Recompute;

// Layouts whose shardings are searched: each takes seconds.
constexpr size_t kSearchedLayouts = 3;

// Of a device's memory: what is left is for what an estimate is wrong by.
constexpr double kFirstShare = 0.99;

// Faster by less is not faster: the rules' plan is the one that people know.
constexpr double kLeastGain = 1e-3;

mesh::Topology WithMemory(mesh::Topology topology, double share) {
  for (mesh::Device& device : topology.devices) {
    device.memory_bytes = static_cast<int64_t>(share * static_cast<double>(device.memory_bytes));
  }
  return topology;
}

bool IsMisfit(const Result<Plan>& plan) {
  return !plan.has_value() && plan.error().code() == StatusCode::kResourceExhausted;
}

// "1.2 s and 3.1 GB"; why not, where there is no forecast.
std::string StepAndMemory(const planner::Plan& plan, const mesh::Topology& topology) {
  const Result<planner::Forecast> forecast = planner::ForecastStep(plan, topology);
  if (!forecast.has_value()) return fmt::format("no forecast ({})", forecast.error().message());
  return fmt::format("{} and {}", FormatDuration(forecast->step_s),
                     FormatBytes(planner::FullestBytes(plan.memory)));
}

// What a vocabulary that stages share gains. `plain`: the plan without, or why there is none.
std::string SharingNote(const planner::Plan& shared, const Result<planner::Plan>& plain,
                        const mesh::Topology& topology) {
  const std::string without =
      plain.has_value()
          ? fmt::format("with {} it is {}", plain->layout.schedule, StepAndMemory(*plain, topology))
          : fmt::format("without there is no plan: {}", plain.error().message());
  return fmt::format(
      "stages share the vocabulary: a step is forecast to take {} on the fullest device; {}",
      StepAndMemory(shared, topology), without);
}

class PlanFinder {
 public:
  PlanFinder(const ir::JobRequest& job, const mesh::Topology& topology, const FindOptions& options,
             const SearchTime& time, planner::PlanScope scope)
      : job_(job), topology_(topology), options_(options), time_(time), scope_(scope) {}

  Result<FoundPlan> Run() {
    MW_TRY(CheckLeastMemory(job_, topology_));
    // A search compares training steps; what only runs forward is split by the rules.
    if (job_.trained() == nullptr) {
      MW_ASSIGN_OR_RETURN(Plan plan, planner::MakePlan(job_, topology_, scope_));
      return FoundPlan{std::move(plan), {}, false, false};
    }
    const bool searches = LeavesOpen(job_) || job_.parallel.shardings == "search";
    if (options_.cache == nullptr || !searches) return Find();
    const std::string key = PlanCacheKey(job_, topology_, options_);
    std::string why;
    if (auto cached = FromCache(key, why)) return *std::move(cached);
    MW_ASSIGN_OR_RETURN(FoundPlan found, Find());
    if (!why.empty()) found.plan.notes.push_back("the cached plan is ignored: " + why);
    // A search that was cut has a gap; this has none, and would look whole. And a search that has
    // the whole time may find a better one.
    if (timed_out_ || (time_.is_part() && (found.found.gap > 0 || by_search_))) return found;
    const Status kept = Keep(key, found);
    if (!kept.ok()) found.plan.notes.push_back("the plan is not kept: " + kept.message());
    return found;
  }

 private:
  Result<FoundPlan> Find() {
    MW_TRY(TakeGrid());
    MW_ASSIGN_OR_RETURN(Plan plan, MakeOne());
    // The layout of the plan stands first.
    const auto own = std::find_if(found_.best.begin(), found_.best.end(), [&](const auto& cost) {
      return cost.layout.ToString() == plan.layout.ToString();
    });
    if (own != found_.best.end()) std::rotate(found_.best.begin(), own, own + 1);
    NoteIdle(plan, found_.best);
    found_.deciders = DecidersOf(plan);
    found_.microbatches = PricesOf(plan.layout, found_.microbatches, found_.best);
    if (timed_out_) {
      plan.notes.push_back(fmt::format(
          "{} s were not enough to compare all plans that may be about as fast; a search of more "
          "seconds (plan --plan-timeout) may find a better one",
          static_cast<double>(options_.timeout_ms) / 1e3));
    }
    return FoundPlan{std::move(plan), std::move(found_), by_search_, false};
  }

  // A single stage differs from none, whatever stages a search may have had before it.
  DeciderCounts DecidersOf(const Plan& plan) const {
    DeciderCounts counts = deciders_;
    if (plan.layout.pipeline > 1) return counts;
    int64_t& differ = counts.times[static_cast<size_t>(Decider::kStageSearch)];
    counts.times[static_cast<size_t>(Decider::kEqualStages)] += std::exchange(differ, 0);
    return counts;
  }

  // Devices that the search leaves without work. `best`: from the plan's layout.
  void NoteIdle(Plan& plan, const std::vector<LayoutCost>& best) const {
    const auto devices = static_cast<int64_t>(topology_.devices.size());
    const int64_t used = plan.layout.device_count();
    if (!LeavesOpen(job_) || used >= devices) return;
    const bool is_fastest = std::none_of(best.begin(), best.end(), [&](const LayoutCost& other) {
      return other.step_s < best.front().step_s;
    });
    plan.notes.insert(
        plan.notes.begin(),
        fmt::format("{} of {} devices have no work: no layout that was tried is {}faster with them",
                    devices - used, devices, is_fastest ? "" : "much "));
  }

  // The rules plan for one tensor axis; a grid that the job names is the search's.
  Status TakeGrid() {
    if (job_.parallel.tensor_axes.empty()) return OkStatus();
    const auto layers = planner::LayerCount(job_.main().graph);
    MW_ASSIGN_OR_RETURN(
        const Layout layout,
        planner::ResolveLayout(job_, static_cast<int64_t>(topology_.devices.size()), layers));
    grid_ = layout.tensor_axes;
    job_.parallel.tensor = layout.tensor();
    job_.parallel.tensor_axes.clear();
    return OkStatus();
  }

  // None, and why, where there is an entry that cannot be used.
  std::optional<FoundPlan> FromCache(const std::string& key, std::string& why) {
    const Result<std::string> text = options_.cache->Read(key);
    if (!text.has_value()) {
      if (text.error().code() != StatusCode::kNotFound) why = text.error().message();
      return std::nullopt;
    }
    Result<PlanEntry> entry = ParsePlanEntry(key, *text);
    if (!entry.has_value()) {
      why = entry.error().message();
      return std::nullopt;
    }
    Result<Plan> plan =
        entry->by_search ? PlanBySearch(entry->layout) : PlanByRulesOf(entry->layout);
    if (!plan.has_value()) {
      why = plan.error().message();
      return std::nullopt;
    }
    if (!entry->note.empty()) plan->notes.push_back(entry->note);
    NoteIdle(*plan, entry->found.best);
    return FoundPlan{*std::move(plan), std::move(entry->found), entry->by_search, true};
  }

  Status Keep(const std::string& key, const FoundPlan& found) const {
    PlanEntry entry{found.plan.layout, found.by_search, note_, found.found};
    MW_ASSIGN_OR_RETURN(const std::string text, FormatPlanEntry(key, entry));
    return options_.cache->Write(key, text);
  }

  Result<Plan> MakeOne() {
    Result<Plan> rules = RulesPlan();
    // What the rules do with a pin they cannot honour is no answer.
    const bool needs_search =
        !rules.has_value() &&
        (!grid_.empty() || rules.error().code() == StatusCode::kFailedPrecondition);
    if (job_.parallel.shardings != "search" && !needs_search) return rules;
    // What the search splits more may fit where the rules' plan does not.
    if (!rules.has_value() && !IsMisfit(rules) && !needs_search) return rules;
    MW_ASSIGN_OR_RETURN(const std::vector<Layout> layouts, LayoutsToSearch(rules));
    return FastestOf(std::move(rules), WithGrids(layouts));
  }

  // The search prices layers, and a vocabulary that stages share is of none: what is open is one
  // device, and replicas take what is left. A note says what the plain schedule would take.
  Result<Plan> PlanOfSharedVocabulary() {
    if (job_.parallel.pipeline == 0) {
      return Fail(InvalidField("parallel.pipeline",
                               fmt::format("is open, and the search does not know schedule '{}'; "
                                           "say how many stages share the vocabulary",
                                           job_.parallel.schedule)));
    }
    MW_ASSIGN_OR_RETURN(Plan plan,
                        planner::MakePlan(job_, topology_, scope_, MakePinnedRules(job_)));
    if (!planner::SharesVocabulary(plan.layout)) return plan;
    const ir::JobRequest asked = job_;
    planner::PinDegrees(plan.layout, job_.parallel);
    job_.parallel.schedule = planner::ScheduleWithoutVocabulary(plan.layout.schedule);
    const Result<Plan> plain = RulesPlan();
    job_ = asked;
    found_ = {};
    plan.notes.push_back(SharingNote(plan, plain, topology_));
    return plan;
  }

  Result<Plan> RulesPlan() {
    if (planner::SharesVocabulary(job_.parallel.schedule)) return PlanOfSharedVocabulary();
    if (LeavesOpen(job_)) return PlanByRules();
    if (std::optional<Plan> plan = PlanOfPinnedDegrees()) return *std::move(plan);
    return planner::MakePlan(job_, topology_, scope_, MakePinnedRules(job_));
  }

  // Degrees, schedule and ZeRO are pinned; the layers of stages and what they compute again are
  // not: as the search decides them for a layout that it finds itself. None: there are no stages,
  // or nothing of the kind has a plan, and the rules say why.
  std::optional<Plan> PlanOfPinnedDegrees() {
    if (job_.parallel.pipeline == 1 || !job_.parallel.part_layers.empty()) return std::nullopt;
    const auto devices = static_cast<int64_t>(topology_.devices.size());
    const Result<Layout> layout =
        planner::ResolveLayout(job_, devices, planner::LayerCount(job_.main().graph));
    if (!layout.has_value() || !layout->stage_degrees.empty()) return std::nullopt;
    const std::string idle = planner::IdleDevicesNote(job_, *layout, devices);
    const ir::JobRequest asked = job_;
    planner::PinDegrees(*layout, job_.parallel);
    Result<Plan> plan = PlanByRules();
    job_ = asked;
    found_ = {};  // it had nothing to choose from
    if (!plan.has_value()) return std::nullopt;
    if (!idle.empty()) plan->notes.insert(plan->notes.begin(), idle);
    return *std::move(plan);
  }

  Result<Plan> PlanByRulesOf(const Layout& layout) const {
    return planner::MakePlanOf(job_, topology_, layout, scope_, MakePinnedRules(job_));
  }

  // The layout that is found says what it refuses; the rules, what would have it padded.
  Status RefusalOf(Status refusal) const {
    if (refusal.code() != StatusCode::kInvalidArgument) return refusal;
    const auto devices = static_cast<int64_t>(topology_.devices.size());
    const Result<Layout> layout =
        planner::ResolveLayout(job_, devices, planner::LayerCount(job_.main().graph));
    if (!layout.has_value()) return refusal;
    return planner::OfferPadding(std::move(refusal), job_, topology_, *layout);
  }

  // The search's memory is an estimate: a little is left to what it is wrong by. Where programs
  // need more than their estimate it has less, where they may need less it has all and more.
  Result<Plan> PlanByRules() {
    Status misfit = OkStatus();
    bool of_programs = false;  // which says more than what the estimate misses
    for (const double share : {kFirstShare, 1.0, 1.1, 1.25}) {
      if (!misfit.ok() && time_.IsOver(false)) break;
      Result<FoundLayout> found = FindWithin(share);
      if (!found.has_value()) {
        const bool tried = !misfit.ok();  // all that fits this share may have been
        if (found.error().code() != StatusCode::kResourceExhausted) {
          if (!tried) return Fail(RefusalOf(found.error()));
        } else if (!of_programs && share <= 1.0) {
          misfit = found.error();
        }
        continue;
      }
      found_ = *std::move(found);
      Result<Plan> plan = FirstThatFits();
      if (IsMisfit(plan) && !of_programs) plan = PlanWithinLess(std::move(plan));
      if (!IsMisfit(plan)) return plan;
      misfit = of_programs ? planner::MoreTelling(misfit, plan.error()) : plan.error();
      of_programs = true;
    }
    return Fail(misfit);
  }

  // `plan`: why what was found so far does not fit.
  Result<Plan> PlanWithinLess(Result<Plan> plan) {
    Status misfit = plan.error();
    for (const double share : {0.97, 0.93, 0.87, 0.8, 0.7, 0.6, 0.5}) {
      if (time_.IsOver(false)) break;
      Result<FoundLayout> found = FindWithin(share);
      if (!found.has_value()) {
        if (found.error().code() == StatusCode::kResourceExhausted) break;
        continue;  // all that fits this share was tried; within less there are others
      }
      found_ = *std::move(found);
      plan = FirstThatFits();
      if (!IsMisfit(plan)) return plan;
      misfit = planner::MoreTelling(misfit, plan.error());
    }
    return Fail(misfit);
  }

  Result<FoundLayout> FindWithin(double share) {
    const auto misfits = [this](const Layout& layout) {
      return misfits_.contains({layout.ToString(), layout.devices});
    };
    const mesh::Topology devices = WithMemory(topology_, share);
    // As long again is left to what is made of its answer.
    const SearchTime time = time_.OneOf(2);
    Result<FoundLayout> found = FindLayout(job_, devices, options_, time, misfits);
    if (!found.has_value()) return found;
    deciders_.Add(found->deciders);
    // What lacks some of a share may have it of the whole.
    for (MicrobatchPrice& price : found->microbatches) {
      if (price.missing_bytes == 0) continue;
      price.missing_bytes = share < kFirstShare ? 0 : std::numeric_limits<int64_t>::max();
    }
    timed_out_ |= !SharesCores(topology_) && !time_.is_part() &&
                  AddFewerMicrobatches(job_, devices, options_, time, misfits, found->best);
    return found;
  }

  Result<Plan> FirstThatFits() {
    const bool compares = SharesCores(topology_);
    const double gap_of_fastest = found_.gap;
    const std::string note = compares ? "" : PreferShortPrograms();
    const auto make = [this](const Layout& layout) {
      Result<Plan> plan = PlanByRulesOf(layout);
      if (IsMisfit(plan)) misfits_.emplace(layout.ToString(), layout.devices);
      return plan;
    };
    MW_ASSIGN_OR_RETURN(FirstPlan first, FirstThatHasAPlan(found_.best, make, time_));
    const auto passed_over = static_cast<std::ptrdiff_t>(first.index);
    found_.best.erase(found_.best.begin(), found_.best.begin() + passed_over);
    if (compares) return BestOfNearest(std::move(first.plan));
    if (passed_over > 0) {  // what was preferred has no plan
      found_.gap = gap_of_fastest;
    } else if (!note.empty()) {
      deciders_.Add(Decider::kShortPrograms);
      note_ = note;
      first.plan.notes.push_back(note);
    }
    return std::move(first.plan);
  }

  // Says so if another layout than the fastest stands first then.
  std::string PreferShortPrograms() {
    std::vector<LayoutCost>& best = found_.best;
    const size_t chosen = ShortestOfNearest(best);
    if (chosen == 0) return "";
    const double slower = best[chosen].step_s / best.front().step_s;
    found_.gap = 1 - (1 - found_.gap) / slower;
    std::string note = fmt::format(
        "the estimate of the plan is {:.1f} % slower than the fastest, {}, whose programs are at "
        "least twice as long; estimates cannot tell the two apart",
        1e2 * (slower - 1), best.front().layout.ToString());
    const auto at = best.begin() + static_cast<std::ptrdiff_t>(chosen);
    std::rotate(best.begin(), at, at + 1);
    return note;
  }

  Result<Plan> BestOfNearest(Plan first) {
    const NearestInput input = {job_, topology_, options_, time_,
                                [this](const Layout& layout) { return PlanByRulesOf(layout); }};
    MW_ASSIGN_OR_RETURN(NearestChoice choice, ChooseNearest(input, found_.best, std::move(first)));
    found_.best = std::move(choice.best);
    if (choice.changed) deciders_.Add(Decider::kForecasts);
    if (!choice.note.empty()) {
      found_.gap = 1 - (1 - found_.gap) / choice.slowdown;
      note_ = choice.note;
      choice.plan.notes.push_back(note_);
    }
    timed_out_ = choice.timed_out;
    return std::move(choice.plan);
  }

  // With the grid that the job names, or the fastest layout's grids behind the layouts.
  std::vector<Layout> WithGrids(std::vector<Layout> layouts) const {
    if (!grid_.empty()) {
      for (Layout& layout : layouts) layout.tensor_axes = grid_;
      return layouts;
    }
    for (std::vector<int64_t>& grid : GridsOf(layouts.front().tensor())) {
      layouts.push_back(layouts.front());
      layouts.back().tensor_axes = std::move(grid);
    }
    return layouts;
  }

  // The rules' own first; where nothing fits, what the job pins with each way to recompute.
  Result<std::vector<Layout>> LayoutsToSearch(const Result<Plan>& rules) const {
    std::vector<Layout> layouts;
    if (rules.has_value()) layouts.push_back(rules->layout);
    for (const LayoutCost& candidate : found_.best) {
      const bool known = !layouts.empty() && candidate.layout.ToString() == layouts[0].ToString();
      if (!known && layouts.size() < kSearchedLayouts) layouts.push_back(candidate.layout);
    }
    if (!layouts.empty()) return layouts;
    auto pinned = PinnedLayouts();
    if (!pinned.has_value()) return Fail(rules.error());
    return pinned;
  }

  // What the job pins, with each way to recompute.
  Result<std::vector<Layout>> PinnedLayouts() const {
    const int layer_count = planner::LayerCount(job_.main().graph);
    MW_ASSIGN_OR_RETURN(
        Layout layout,
        planner::ResolveLayout(job_, static_cast<int64_t>(topology_.devices.size()), layer_count));
    std::vector<Layout> layouts;
    for (const Recompute mode : RecomputeModes(job_)) {
      MW_ASSIGN_OR_RETURN(layout.recompute, planner::RecomputeOfLayers(
                                                mode, job_.parallel.recompute_layers, layer_count));
      layouts.push_back(layout);
    }
    return layouts;
  }

  // The search's memory does not know the arena's gaps: where programs need more, it gets less.
  Result<Plan> PlanBySearch(const Layout& layout) {
    Result<Plan> plan = Fail(Internal("no budget was tried"));
    for (const double share : {1.0, 0.9, 0.8, 0.7}) {
      if (share < 1.0 && time_.IsOver(false)) break;
      const ShardingSearch options = {
          .time = &time_, .memory_share = share, .deciders = &deciders_};
      const auto chooser = MakeShardingChooser(job_, topology_, options, time_.clock());
      Result<Plan> next = planner::MakePlanOf(job_, topology_, layout, scope_, chooser);
      const bool first = share == 1.0;
      if (next.has_value() || first) plan = std::move(next);
      if (!IsMisfit(plan)) break;
    }
    return plan;
  }

  Result<double> StepSeconds(const Plan& plan) const {
    MW_ASSIGN_OR_RETURN(const planner::Forecast forecast, planner::ForecastStep(plan, topology_));
    return forecast.step_s;
  }

  Result<Plan> FastestOf(Result<Plan> rules, const std::vector<Layout>& layouts) {
    std::optional<double> rules_s;
    if (rules.has_value()) {
      MW_ASSIGN_OR_RETURN(rules_s, StepSeconds(*rules));
    }
    std::optional<Plan> best;
    double best_s = 0;
    std::string refused;
    std::vector<LayoutCost> tried;
    for (const Layout& layout : layouts) {
      // A layout that is not looked at any more could be faster: a note says so.
      const bool has_answer = best.has_value() || (rules.has_value() && grid_.empty());
      if (&layout != &layouts.front() && time_.IsOver(has_answer)) {
        timed_out_ = true;
        break;
      }
      Result<Plan> searched = PlanBySearch(layout);
      if (!searched.has_value()) {
        refused = searched.error().message();
        continue;
      }
      MW_ASSIGN_OR_RETURN(const double step_s, StepSeconds(*searched));
      tried.push_back(TriedLayout(*searched, step_s));
      if (best && step_s >= best_s) continue;
      best = std::move(*searched);
      best_s = step_s;
    }
    if (!grid_.empty() && !best) return Fail(InvalidArgument(refused));
    CountGrids(tried, !grid_.empty(), found_.best);
    if (best && (!grid_.empty() || !rules_s || best_s < *rules_s * (1 - kLeastGain))) {
      note_ = Gain(*best, best_s, rules, rules_s);
      best->notes.push_back(note_);
      by_search_ = true;
      deciders_.Add(Decider::kSearch);
      return std::move(*best);
    }
    if (!rules.has_value()) {
      const bool pinned = rules.error().code() == StatusCode::kFailedPrecondition;
      if (!pinned || refused.empty()) return rules;
      return Fail(
          InvalidArgument(fmt::format("{}, and the search for shardings has no answer either: {}",
                                      rules.error().message(), refused)));
    }
    deciders_.Add(Decider::kRules);
    note_ = best
                ? fmt::format(
                      "shardings are by the rules: the search finds none that is faster than "
                      "their {:.4g} ms per step (its best: {:.4g} ms)",
                      *rules_s * 1e3, best_s * 1e3)
                : fmt::format("shardings are by the rules: the search has no answer ({})", refused);
    rules->notes.push_back(note_);
    return rules;
  }

  // What the search changed, and by how much.
  static std::string Gain(const Plan& best, double best_s, const Result<Plan>& rules,
                          const std::optional<double>& rules_s) {
    if (!rules_s) {
      return fmt::format("shardings are by search, {:.4g} ms per step: {}", best_s * 1e3,
                         IsMisfit(rules) ? "by the rules nothing fits" : rules.error().message());
    }
    if (best_s > *rules_s) {
      return fmt::format(
          "shardings are by search on the grid that the job names: {:.4g} ms per "
          "step; the rules' take {:.4g} ms",
          best_s * 1e3, *rules_s * 1e3);
    }
    std::string text = fmt::format(
        "shardings are by search: {:.4g} ms per step instead of the rules' {:.4g} ms ({:.1f} % "
        "less)",
        best_s * 1e3, *rules_s * 1e3, (1 - best_s / *rules_s) * 1e2);
    if (best.layout.ToString() != rules->layout.ToString()) {
      return text + fmt::format(", with {} instead of {}", best.layout.ToString(),
                                rules->layout.ToString());
    }
    int64_t changed = 0;
    std::string example;
    for (size_t i = 0; i < best.params.size(); ++i) {
      const planner::ParamInfo& param = best.params[i];
      const mesh::Sharding& before = rules->params[i].sharding;
      if (param.sharding == before) continue;
      if (changed++ > 0) continue;
      example = fmt::format("{}: {} instead of {}", param.name,
                            mesh::FormatSharding(param.type, param.sharding),
                            mesh::FormatSharding(param.type, before));
    }
    if (changed == 0) return text + "; all params are stored as before";
    return text + fmt::format("; {} of {} params are stored differently ({})", changed,
                              best.params.size(), example);
  }

  ir::JobRequest job_;
  const mesh::Topology& topology_;
  const FindOptions& options_;
  const SearchTime& time_;
  const planner::PlanScope scope_;
  std::vector<int64_t> grid_;  // that the job names
  bool by_search_ = false;
  std::string note_;
  bool timed_out_ = false;
  DeciderCounts deciders_;
  // Layouts whose programs do not fit, by text and devices: what is slower by its price may fit.
  std::set<std::pair<std::string, std::vector<int>>> misfits_;
  FoundLayout found_;  // by the search for layouts, if there was one
};

}  // namespace

Result<FoundPlan> FindPlan(const ir::JobRequest& job, const mesh::Topology& topology,
                           const FindOptions& options, const Clock& clock,
                           planner::PlanScope scope) {
  // Half of it is a search's for layouts.
  const int64_t all_ms = 2 * options.timeout_ms;
  const SearchTime whole(all_ms, std::max(all_ms, options.patience_ms), clock);
  const FindOnDevices find = [&](const ir::JobRequest& decided, const mesh::Topology& devices,
                                 const SearchTime& time) {
    ir::JobRequest placed = decided;
    // What programs read of one another is on the devices of one stage.
    if (ir::ReadsOutputs(decided) && decided.parallel.pipeline == 0) placed.parallel.pipeline = 1;
    return PlanFinder(placed, devices, options, time, scope).Run();
  };
  const FindOnDevices overlapped = [&](const auto& decided, const auto& devices, const auto& time) {
    return FindWithOverlap(decided, devices, time, find);
  };
  const FindOnDevices placed = [&](const auto& decided, const auto& devices, const auto& time) {
    return FindInMemories(decided, devices, time, overlapped);
  };
  return OfferTurns(placed(job, topology, whole), job, topology, whole, placed);
}

}  // namespace meshwright::search
