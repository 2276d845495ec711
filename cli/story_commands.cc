// timeline and why: what happened in a job's steps.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "cli/commands.h"
#include "cli/connect.h"

namespace meshwright::cli {
namespace {

using client::Client;
using client::StoryForm;

constexpr std::chrono::milliseconds kLook{200};
// For what a job's devices have sent to be known to the controller.
constexpr int64_t kArriveMs = 5'000;

Result<int64_t> StepOf(std::string_view text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error == std::errc() && end == text.data() + text.size() && step >= 1) return step;
  return Fail(
      InvalidArgument(fmt::format("--steps wants A..B, steps of the job from 1, not '{}'", text)));
}

// "3..5" or "3"; empty: none.
Result<ir::StepRange> StepsOf(const std::string& text) {
  if (text.empty()) return ir::StepRange{};
  const size_t dots = text.find("..");
  MW_ASSIGN_OR_RETURN(const int64_t first, StepOf(text.substr(0, dots)));
  int64_t last = first;
  if (dots != std::string::npos) {
    MW_ASSIGN_OR_RETURN(last, StepOf(text.substr(dots + 2)));
  }
  if (last < first) {
    return Fail(
        InvalidArgument(fmt::format("--steps {}: the last step is before the first", text)));
  }
  return ir::StepRange{first - 1, last - first + 1};
}

// Asks for steps that are still to come to be recorded, and waits until they are done.
Status AwaitSteps(Client& client, int64_t job, const ir::StepRange& steps, int64_t timeout_s) {
  MW_ASSIGN_OR_RETURN(client::JobInfo info, client.Get(job));
  if (client::IsTerminal(info.state) || info.steps_done >= steps.end()) return OkStatus();
  MW_TRY(client.Record(job, steps));
  const auto before = [&](const client::JobUpdate& update) {
    return update.info.steps_done < steps.end();
  };
  MW_ASSIGN_OR_RETURN(info, client.Watch(job, before, timeout_s * 1000));
  if (client::IsTerminal(info.state) || info.steps_done >= steps.end()) return OkStatus();
  return DeadlineExceeded(fmt::format(
      "after {} s job {} is at step {}; it will be recorded in steps {} to {}: ask again",
      timeout_s, job, info.steps_done, steps.first + 1, steps.end()));
}

Result<std::string> StoryOf(Client& client, int64_t job, const std::string& steps,
                            int64_t timeout_s, StoryForm form) {
  client::StoryAsk ask{job, {}, form};
  MW_ASSIGN_OR_RETURN(ask.steps, StepsOf(steps));
  if (ask.steps.count > 0) MW_TRY(AwaitSteps(client, job, ask.steps, timeout_s));
  // What is done is told before it is kept.
  const Deadline deadline = Deadline::After(kArriveMs);
  Mutex mutex;
  CondVar never;
  for (;;) {
    auto story = client.Story(ask);
    const bool late = !story.has_value() && story.error().code() == StatusCode::kNotFound;
    if (!late || ask.steps.count == 0 || deadline.expired()) return story;
    const MutexLock lock(mutex);
    (void)never.WaitFor(mutex, kLook);
  }
}

// Prints what `body` gives, or what went wrong.
template <typename Body>
int PrintStory(const GlobalArgs& global, Body body) {
  auto connection = Connect(global);
  if (!connection) return ReportError(connection.error());
  const Result<std::string> text = body(**connection);
  if (!text) return ReportError(text.error());
  fmt::print("{}", *text);
  return kExitOk;
}

}  // namespace

int RunTimeline(const TimelineArgs& args, const GlobalArgs& global) {
  return PrintStory(global, [&](Client& client) -> Result<std::string> {
    const bool json = args.out == "json" || (global.json && args.out == "table");
    const bool table = json || args.out == "table" || args.out == "text";
    const StoryForm form = json    ? StoryForm::kTableJson
                           : table ? StoryForm::kTable
                                   : StoryForm::kTrace;
    MW_ASSIGN_OR_RETURN(std::string text,
                        StoryOf(client, args.id, args.steps, args.timeout_s, form));
    if (table) return text;
    MW_TRY(WriteFileAtomic(args.out, text));
    return fmt::format("trace of job {} in {}: open it at https://ui.perfetto.dev\n", args.id,
                       args.out);
  });
}

int RunWhy(const WhyArgs& args, const GlobalArgs& global) {
  return PrintStory(global, [&](Client& client) {
    return StoryOf(client, args.id, args.steps, args.timeout_s,
                   global.json ? StoryForm::kWhyJson : StoryForm::kWhy);
  });
}

}  // namespace meshwright::cli
