#include "web/run_stories.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "mesh/measured_factors.h"
#include "planner/plan_text.h"
#include "report/plan_svg.h"
#include "report/recorded_run.h"
#include "report/step_spans.h"
#include "report/step_trace.h"
#include "report/why.h"

namespace meshwright::web {
namespace {

using controller::StepFigures;
using controller::StoryForm;
using controller::StoryQuestion;
using internal::Failure;

constexpr double kSecondsPerNs = 1e-9;

// A job's plan and what came of it.
struct Story {
  JobId job{0};
  controller::MadePlan made;
  std::string layout;
  planner::Forecast forecast;
  report::RecordedRun run;
  // Of a run before, by the same layout: kept until a later one has records.
  bool past = false;

  // Whether the question is about steps of this; one that names none is about those of the plan
  // that runs now, and of the run before by the same.
  bool Answers(const StoryQuestion& question, const Story* now) const {
    const bool asked = question.steps.count > 0 || (now != nullptr && layout == now->layout);
    return asked && job == question.job && !run.Steps(*made.plan, question.steps).empty();
  }

  size_t instructions() const {
    size_t count = 0;
    for (const ir::Program& program : made.plan->Main()) count += program.instructions.size();
    return count;
  }
};

// Seconds that devices stood still, per step.
void SetCheckpoints(const std::vector<report::RecordedSave>& saves, report::WhyFigures& figures) {
  std::map<int64_t, std::pair<double, int>> by_step;
  for (const report::RecordedSave& save : saves) {
    auto& [seconds, members] = by_step[save.step];
    seconds += static_cast<double>(save.end_ns - save.begin_ns) * kSecondsPerNs;
    ++members;
  }
  if (by_step.empty()) return;
  double all_s = 0;
  for (const auto& [step, sum] : by_step) all_s += sum.first / sum.second;
  figures.saves = static_cast<int64_t>(by_step.size());
  const int64_t last = by_step.rbegin()->first, first = by_step.begin()->first;
  // Of the first one nobody knows how many steps it is for, but where it is the only one.
  const double steps = figures.saves == 1 ? static_cast<double>(last)
                                          : static_cast<double>(last - first) *
                                                static_cast<double>(figures.saves) /
                                                static_cast<double>(figures.saves - 1);
  figures.checkpoint_s = all_s / std::max(1.0, steps);
}

// What times of two hosts may be wrong by against each other.
int64_t ClockError(const std::map<std::string, report::HostClock>& clocks) {
  if (clocks.size() < 2) return 0;
  std::vector<int64_t> errors;
  for (const auto& [host, clock] : clocks) errors.push_back(clock.error_ns);
  std::sort(errors.rbegin(), errors.rend());
  return errors[0] + errors[1];
}

std::map<std::string, double> NamedParts(const report::StepParts& parts) {
  std::map<std::string, double> named;
  for (size_t p = 0; p < report::kStepPartCount; ++p) {
    named[std::string(report::StepPartName(static_cast<report::StepPart>(p)))] = parts.seconds[p];
  }
  return named;
}

report::WhyFigures FiguresOf(const Story& story, const std::vector<report::RecordedStep>& steps) {
  report::WhyFigures figures;
  figures.job = fmt::format("job {} ({})", story.job.value(), story.made.request->name);
  figures.steps = {steps.front().step, static_cast<int64_t>(steps.size())};
  figures.forecast = report::ForecastParts(*story.made.plan, story.forecast, story.made.topology);
  figures.measured = report::MeasureParts(*story.made.plan, steps);
  SetCheckpoints(story.run.saves(), figures);
  figures.layout = story.layout;
  figures.advice_from_s = story.forecast.step_s;
  figures.clock_error_ns = ClockError(story.run.clocks());
  for (const mesh::Device& device : story.made.topology.devices) {
    if (device.profile == nullptr || !figures.profile_note.empty()) continue;
    figures.profile_note = mesh::MeasuredNote(*device.profile);
  }
  return figures;
}

Status WriteFiles(const Story& story, const std::vector<report::RecordedStep>& steps,
                  const report::WhyFigures& figures) {
  const planner::Plan& plan = *story.made.plan;
  const auto path = [&](const char* name) {
    return fmt::format("{}/{}", story.made.job_dir, name);
  };
  const planner::Simulation last = report::SimulationOf(plan, steps.back());
  const std::string title =
      fmt::format("step {} as measured: {}, forecast {}", steps.back().step + 1,
                  FormatDuration(last.makespan_s), FormatDuration(story.forecast.step_s));
  MW_TRY(WriteFileAtomic(path(kMeasuredPicture),
                         report::StepSvg(plan, last, story.made.topology, title)));
  MW_TRY(WriteFileAtomic(path(kPartsFile), report::WhyJson(figures)));
  MW_ASSIGN_OR_RETURN(const std::string trace,
                      report::StepTrace(plan, story.run, steps, figures.job));
  return WriteFileAtomic(path(kTimelineFile), trace);
}

// For who reads a job's folder: of the run before nothing is left there.
Status ShowPlan(const planner::Plan& plan, const std::string& job_dir) {
  for (const char* name : {kMeasuredPicture, kPartsFile, kTimelineFile}) {
    MW_TRY(RemoveAll(fmt::format("{}/{}", job_dir, name)));
  }
  return WriteFileAtomic(job_dir + "/plan.txt", planner::FormatPlan(plan, false));
}

std::string Missing(const std::list<Story>& stories, const StoryQuestion& question) {
  std::set<int64_t> known;
  for (const Story& story : stories) {
    if (story.job != question.job) continue;
    for (const auto& [step, record] : story.run.steps()) known.insert(step + 1);
  }
  const std::string asked =
      question.steps.count > 0
          ? fmt::format("steps {} to {}", question.steps.first + 1, question.steps.end())
          : std::string("steps");
  if (known.empty()) {
    return fmt::format("no {} of job {} are recorded", asked, question.job.value());
  }
  return fmt::format("{} of job {} are not recorded; there are records of {}", asked,
                     question.job.value(),
                     planner::FormatRanges(std::vector<int64_t>(known.begin(), known.end())));
}

// running: the layout by which the job runs, where that is known.
Status NotHere(JobId job, const std::string& running) {
  return FailedPrecondition(
      running.empty()
          ? fmt::format("nothing is known of the steps of job {}: it ran no step, or this "
                        "controller has not planned it since it was started, or has made {} plans "
                        "since",
                        job.value(), StoryOptions::kMostPlans)
          : fmt::format("job {} runs by {} now, a plan that this controller no longer holds",
                        job.value(), running));
}

// Factors of profiles, in a file. Thread rule: thread-safe.
class ProfileBook {
 public:
  // path: empty: nothing is learned.
  explicit ProfileBook(std::string path) : path_(std::move(path)) {
    if (path_.empty() || !FileExists(path_)) return;
    const auto text = ReadFile(path_);
    auto factors = text.has_value() ? mesh::ParseFactors(*text)
                                    : Result<mesh::FactorsByDevice>(Fail(text.error()));
    if (factors.has_value()) {
      const MutexLock lock(mutex_);
      factors_ = *std::move(factors);
    } else {
      LogWarn(fmt::format("{} is not used: {}", path_, factors.error().message()));
    }
  }

  mesh::SharedProfile Measured(const mesh::SharedProfile& profile) {
    if (profile == nullptr || path_.empty()) return profile;
    const MutexLock lock(mutex_);
    bases_[profile->name] = profile;
    const auto known = factors_.find(profile->name);
    if (known == factors_.end()) return profile;
    return std::make_shared<const mesh::DeviceProfile>(mesh::WithFactors(*profile, known->second));
  }

  void LearnFrom(const planner::Plan& plan, const mesh::Topology& topology,
                 const std::vector<report::RecordedStep>& steps) {
    if (path_.empty()) return;
    const auto kinds = report::MeasureKernels(plan, BaseOf(topology), steps);
    if (kinds.empty()) return;
    std::string text;
    {
      const MutexLock lock(mutex_);
      for (const auto& [name, measured] : kinds) {
        // The file has names in quotes.
        if (name.find_first_of("\"\n") != std::string::npos) continue;
        factors_[name] = mesh::Learn(factors_[name], measured);
      }
      std::erase_if(factors_, [](const auto& each) { return each.second.steps < 1; });
      text = mesh::FormatFactors(factors_);
    }
    const Status written = WriteFileAtomic(path_, text);
    if (!written.ok()) LogWarn(fmt::format("profiles are not kept: {}", written.message()));
  }

 private:
  // The topology with profiles as workers registered them.
  mesh::Topology BaseOf(const mesh::Topology& topology) {
    mesh::Topology base = topology;
    const MutexLock lock(mutex_);
    for (mesh::Device& device : base.devices) {
      if (device.profile == nullptr) continue;
      const auto known = bases_.find(device.profile->name);
      if (known != bases_.end()) device.profile = known->second;
    }
    return base;
  }

  const std::string path_;
  Mutex mutex_;
  mesh::FactorsByDevice factors_ MW_GUARDED_BY(mutex_);
  std::map<std::string, mesh::SharedProfile> bases_ MW_GUARDED_BY(mutex_);  // as registered
};

Failure Gone() { return Fail(Cancelled("the asker has gone")); }
Failure Stopping() { return Fail(Unavailable("the controller is stopping")); }

// Searches for what to try, on a thread of its own: that takes seconds.
//
// Thread rule: thread-safe.
class Adviser {
 public:
  using Found = Result<std::vector<report::Advice>>;

  Adviser(int64_t timeout_ms, const Clock& clock) : timeout_ms_(timeout_ms), clock_(clock) {}

  // Answers once. A plan is searched around once: what is found depends on no steps. Errors:
  // kCancelled: `gone` says so; kUnavailable: the end.
  void Ask(const controller::MadePlan& made, double plan_s, std::function<bool()> gone,
           const std::function<void(Found)>& answer) {
    const bool posted = thread_.Post(
        [this, made, plan_s, gone = std::move(gone), answer] { answer(Find(made, plan_s, gone)); });
    if (!posted) answer(Stopping());
  }

  // What waits is refused, and the search that is under way ends soon.
  void Refuse() { stopping_ = true; }
  void Stop() {
    Refuse();
    thread_.Stop();
  }

 private:
  Found Find(const controller::MadePlan& made, double plan_s,
             const std::function<bool()>& asker_gone) {
    const auto gone = [&] { return stopping_ || (asker_gone && asker_gone()); };
    if (gone()) return stopping_ ? Stopping() : Gone();
    std::erase_if(known_, [](const auto& each) { return each.first.expired(); });
    for (const auto& [plan, found] : known_) {
      if (plan.lock() == made.plan) return found;
    }
    auto found = report::FindAdvice(*made.request, made.plan->layout, made.topology, plan_s,
                                    {.timeout_ms = timeout_ms_, .most = 3, .gone = gone}, clock_);
    if (gone()) return stopping_ ? Stopping() : Gone();
    known_.emplace_back(made.plan, found);
    return found;
  }

  const int64_t timeout_ms_;
  const Clock& clock_;
  std::atomic<bool> stopping_ = false;
  // On the thread, by their plans, of which as many are held as there are stories.
  std::list<std::pair<std::weak_ptr<const planner::Plan>, std::vector<report::Advice>>> known_;
  Executor thread_{"mw-advice"};  // last: it ends before what it uses
};

class RunStories final : public controller::RunStory {
 public:
  using Answer = std::function<void(Result<std::string>)>;

  RunStories(StoryOptions options, const Clock& clock)
      : options_(std::move(options)), clock_(clock), profiles_(options_.factors_path) {}
  ~RunStories() override { Stop(); }

  void Listen(std::function<void(const StepFigures&)> listener,
              controller::PlanListener taken_up) override {
    listener_ = std::move(listener);
    taken_up_ = std::move(taken_up);
  }

  void OnPlan(controller::MadePlan made) override {
    (void)thread_.Post([this, made = std::move(made)]() mutable { KeepPlan(std::move(made)); });
  }

  void OnRun(JobId job, std::string layout) override {
    (void)thread_.Post([this, job, layout = std::move(layout)] { TakeUp(job, layout); });
  }

  void OnRecorded(controller::StepsRecorded recorded) override {
    (void)thread_.Post(
        [this, recorded = std::move(recorded)]() mutable { Keep(std::move(recorded)); });
  }

  void Ask(const StoryQuestion& question, Answer answer) override {
    if (waiting_.fetch_add(1) >= StoryOptions::kMostWaiting) {
      waiting_.fetch_sub(1);
      return answer(Fail(ResourceExhausted(
          fmt::format("{} questions about steps of jobs are waiting already; ask again in some "
                      "seconds",
                      StoryOptions::kMostWaiting))));
    }
    const Answer done = [this, answer = std::move(answer)](Result<std::string> text) {
      waiting_.fetch_sub(1);
      answer(std::move(text));
    };
    if (!thread_.Post([this, question, done] { Tell(question, done); })) done(Stopping());
  }

  mesh::SharedProfile Measured(const mesh::SharedProfile& profile) override {
    return profiles_.Measured(profile);
  }

  void Stop() override {
    adviser_.Refuse();
    thread_.Stop();
    adviser_.Stop();
  }

 private:
  // All on the thread.
  void KeepPlan(controller::MadePlan made) {
    MW_CHECK(made.plan != nullptr && made.request != nullptr) << "a plan of nothing";
    auto forecast = planner::ForecastStep(*made.plan, made.topology);
    if (!forecast.has_value()) {
      return LogWarn(
          fmt::format("job {} has no story: {}", made.job.value(), forecast.error().message()));
    }
    const std::string layout = made.plan->layout.ToString();
    Story* const before = Find(made.job, layout);
    const bool recorded = before != nullptr && !before->run.steps().empty();
    stories_.remove_if([&](const Story& story) {
      return story.job == made.job && story.layout == layout && story.past == recorded;
    });
    if (recorded) before->past = true;
    if (!made.ahead) running_[made.job] = layout;
    Story& story = stories_.emplace_back();
    story.job = made.job;
    story.layout = layout;
    story.made = std::move(made);
    story.forecast = *std::move(forecast);
    Trim();
  }

  void Trim() {
    size_t instructions = 0;
    for (const Story& each : stories_) instructions += each.instructions();
    while (stories_.size() > StoryOptions::kMostPlans ||
           (instructions > StoryOptions::kMostInstructions && stories_.size() > 1)) {
      auto oldest = std::find_if(stories_.begin(), std::prev(stories_.end()),
                                 [](const Story& story) { return story.made.ahead || story.past; });
      if (oldest == std::prev(stories_.end())) oldest = stories_.begin();
      instructions -= oldest->instructions();
      const JobId job = oldest->job;
      stories_.erase(oldest);
      const bool known = std::any_of(stories_.begin(), stories_.end(),
                                     [&](const Story& story) { return story.job == job; });
      if (!known) running_.erase(job);
    }
  }

  void TakeUp(JobId job, const std::string& layout) {
    const auto running = running_.find(job);
    if (running == running_.end() || running->second == layout) return;
    running->second = layout;
    Story* const story = Find(job, layout);
    if (story == nullptr) return;
    const Status shown = ShowPlan(*story->made.plan, story->made.job_dir);
    if (!shown.ok()) LogWarn(shown.message());
    story->made.ahead = false;
    if (taken_up_) taken_up_(story->made);
  }

  Story* Find(JobId job, const std::string& layout) {
    const auto at = std::find_if(stories_.begin(), stories_.end(), [&](const Story& story) {
      return story.job == job && story.layout == layout && !story.past;
    });
    return at == stories_.end() ? nullptr : &*at;
  }

  // That of the plan by which the job runs, or another one that answers (Story::Answers). Errors:
  // kFailedPrecondition: the plan is not here.
  Result<Story*> FindToTell(const StoryQuestion& question) {
    const auto running = running_.find(question.job);
    Story* const story = running == running_.end() ? nullptr : Find(question.job, running->second);
    const auto has_steps = [&](const Story& each) { return each.Answers(question, story); };
    if (story == nullptr || !has_steps(*story)) {
      const auto other = std::find_if(stories_.rbegin(), stories_.rend(), has_steps);
      if (other != stories_.rend()) return &*other;
    }
    if (story != nullptr) return story;
    return Fail(NotHere(question.job, running == running_.end() ? "" : running->second));
  }

  void Keep(controller::StepsRecorded recorded) {
    Story* const story = Find(recorded.job, recorded.layout);
    if (story == nullptr) return;
    const bool save = recorded.launch.kind == controller::LaunchKind::kSave;
    std::vector<report::MemberNote> members;
    for (controller::RecordedMember& member : recorded.members) {
      members.push_back({std::move(member.worker), std::move(member.host), member.round,
                         member.begin_ns, member.said_ns, std::move(member.steps)});
    }
    const planner::Plan& plan = *story->made.plan;
    const ir::StepRange added =
        story->run.Add(plan, std::move(members), save ? recorded.launch.first_step : -1);
    if (added.count == 0) return;
    profiles_.LearnFrom(plan, story->made.topology, story->run.Steps(plan, added));
    const auto steps = story->run.Steps(plan, {});
    if (steps.empty()) return;
    const report::WhyFigures figures = FiguresOf(*story, steps);
    const Status written = WriteFiles(*story, steps, figures);
    if (!written.ok()) {
      LogWarn(fmt::format("what job {} did is not in its folder: {}", story->job.value(),
                          written.message()));
    }
    if (listener_) {
      listener_({story->job, figures.forecast.total(), figures.measured.mean.total(),
                 NamedParts(figures.forecast), NamedParts(figures.measured.mean)});
    }
  }

  void Tell(const StoryQuestion& question, const Answer& answer) {
    if (question.gone && question.gone()) return answer(Gone());
    const Result<Story*> found = FindToTell(question);
    if (!found.has_value()) return answer(Fail(found.error()));
    Story* const story = *found;
    const planner::Plan& plan = *story->made.plan;
    const auto steps = story->run.Steps(plan, question.steps);
    if (steps.empty()) return answer(Fail(NotFound(Missing(stories_, question))));
    const std::string name =
        fmt::format("job {} ({})", story->job.value(), story->made.request->name);
    switch (question.form) {
      case StoryForm::kTrace:
        return answer(report::StepTrace(plan, story->run, steps, name));
      case StoryForm::kTable:
        return answer(
            report::FormatLongest(report::SecondsByName(plan, story->made.topology, steps), steps));
      case StoryForm::kTableJson:
        return answer(
            report::LongestJson(report::SecondsByName(plan, story->made.topology, steps), steps));
      case StoryForm::kWhy:
      case StoryForm::kWhyJson:
        break;
    }
    adviser_.Ask(
        story->made, story->forecast.step_s, question.gone,
        [form = question.form, answer,
         figures = FiguresOf(*story, steps)](Adviser::Found advice) mutable {
          if (!advice.has_value()) return answer(Fail(advice.error()));
          figures.advice = *std::move(advice);
          answer(form == StoryForm::kWhy ? report::FormatWhy(figures) : report::WhyJson(figures));
        });
  }

  const StoryOptions options_;
  const Clock& clock_;
  std::function<void(const StepFigures&)> listener_;
  controller::PlanListener taken_up_;
  std::list<Story> stories_;              // on the thread, by the age of their plans
  std::map<JobId, std::string> running_;  // layouts of jobs of which plans are here
  ProfileBook profiles_;
  std::atomic<int> waiting_ = 0;  // questions
  // Last: they end before what they use.
  Adviser adviser_{options_.advice_ms, clock_};
  Executor thread_{"mw-stories"};
};

}  // namespace

std::shared_ptr<controller::RunStory> MakeRunStories(StoryOptions options, const Clock& clock) {
  return std::make_shared<RunStories>(std::move(options), clock);
}

}  // namespace meshwright::web
