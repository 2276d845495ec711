#include "web/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "web/api_json.h"
#include "web/plan_drawer.h"
#include "web/run_stories.h"

namespace meshwright::web {
namespace {

constexpr const char* kJson = "application/json";
// A picture that somebody opens by itself has its colours in it, and nothing that runs.
constexpr const char* kPicturePolicy = "default-src 'none'; style-src 'unsafe-inline'; sandbox";
constexpr size_t kMostJobs = 200;  // of an overview, the newest
constexpr int64_t kMostEvents = 10'000;
constexpr int64_t kLogBytes = 256 << 10;
constexpr int64_t kMostLogLines = 2000;
constexpr int64_t kPlanBytes = 4 << 20;
constexpr int64_t kTraceBytes = 80 << 20;
constexpr int64_t kHourMs = 3'600'000;

HttpReply ReplyWith(Result<std::string> text) {
  return text ? JsonReply(*std::move(text)) : ErrorReply(text.error());
}
HttpReply Text(Result<std::string> text) {
  if (!text) return ErrorReply(text.error());
  HttpReply reply;
  reply.body = *std::move(text);
  return reply;
}
HttpReply Picture(Result<std::string> text) {
  HttpReply reply = Text(std::move(text));
  if (reply.code == 200) reply.content_type = "image/svg+xml";
  reply.headers.emplace_back("Content-Security-Policy", kPicturePolicy);
  return reply;
}
HttpReply TooLong(const proto::JobInfo& job, const char* name, int64_t most) {
  HttpReply reply = ErrorReply(ResourceExhausted(fmt::format(
      "{} of job {} is longer than the {} that the page takes; it is in the job's folder on the "
      "controller's host, {}",
      name, job.id, FormatBytes(most), job.directory)));
  reply.code = 413;
  return reply;
}

}  // namespace

HttpReply JsonReply(std::string text) {
  HttpReply reply;
  reply.content_type = kJson;
  reply.body = std::move(text) + "\n";
  return reply;
}

// {"error":"..."} with the code of the error.
HttpReply ErrorReply(const Status& status) {
  HttpReply reply = ReplyOf(status);
  reply.content_type = kJson;
  reply.body = fmt::format("{{\"error\":\"{}\"}}\n", JsonEscape(status.message()));
  return reply;
}

int64_t NumberIn(const std::string& text, int64_t least, int64_t most, int64_t other) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return other;
  return std::clamp(number, least, most);
}

Status NoSuchPage(const std::string& path) {
  return NotFound(fmt::format("no page at {}", path.substr(0, 200)));
}

HttpReply Api::Read(const std::vector<std::string>& path, const HttpRequest& request, Role role) {
  const std::string& what = path[0];
  if (what == "jobs" && path.size() > 1) return ReadJob(path, request);
  if (what == "workers" && path.size() == 2) return ReplyWith(Worker(path[1]));
  if (what == "workers" && path.size() == 3 && path[2] == "log") {
    return ReplyWith(WorkerLog(path[1], request));
  }
  if (path.size() != 1) return ErrorReply(NoSuchPage(request.path));
  if (what == "overview") return ReplyWith(Overview(role));
  if (what == "jobs") return ReplyWith(Jobs());
  if (what == "workers") return ReplyWith(Workers());
  if (what == "events") return ReplyWith(Events(0, request));
  if (what == "history") return JsonReply(Past(request));
  if (what == "config") return JsonReply(SettingsJson(parts_.settings));
  return ErrorReply(NoSuchPage(request.path));
}

HttpReply Api::ReadJob(const std::vector<std::string>& path, const HttpRequest& request) {
  const int64_t job = NumberIn(path[1], 0, INT64_MAX, 0);
  // Errors of what follows should not depend on files that are left of a job.
  const auto info = parts_.cluster.Job(job);
  if (!info) return ErrorReply(info.error());
  if (path.size() == 2) return ReplyWith(Job(*info));
  const std::string& what = path.size() == 3 ? path[2] : path[1];
  if (what == "steps") return ReplyWith(Steps(job, request));
  if (what == "events") return ReplyWith(Events(job, request));
  if (what == "log") return ReplyWith(Log(job));
  if (what == "hang") return ReplyWith(parts_.cluster.Hang(job));
  // The end of a form that has to be whole is none of it.
  const auto whole = [&](const char* name, int64_t most, auto reply) {
    auto text = parts_.cluster.FileEnd(job, name, most + 1);
    if (text && static_cast<int64_t>(text->size()) > most) return TooLong(*info, name, most);
    return reply(std::move(text));
  };
  if (what == "plan") return whole(kPlanFigures, kPlanBytes, ReplyWith);
  if (what == "plan.svg") return whole(kPlanPicture, kPlanBytes, Picture);
  if (what == "timeline") return whole(kTimelineFile, kTraceBytes, ReplyWith);
  if (what == "parts") return whole(kPartsFile, kPlanBytes, ReplyWith);
  if (what == "measured.svg") return whole(kMeasuredPicture, kPlanBytes, Picture);
  if (what == "plan.txt") return Text(parts_.cluster.FileEnd(job, "plan.txt", kPlanBytes));
  if (what == "config") return whole("config.resolved.toml", kPlanBytes, Text);
  return ErrorReply(NoSuchPage(request.path));
}

Result<std::string> Api::Overview(Role role) {
  MW_ASSIGN_OR_RETURN(const ClusterState state, parts_.cluster.Tiles());
  MW_ASSIGN_OR_RETURN(const auto events, parts_.cluster.Events(0, 50));
  return OverviewJson({.role = RoleName(role),
                       .version = proto::kVersion,
                       .tokens = parts_.tokens,
                       .state = &state,
                       .events = &events,
                       .most_jobs = kMostJobs});
}

Result<std::string> Api::Jobs() {
  MW_ASSIGN_OR_RETURN(const ClusterState state, parts_.cluster.Tiles());
  return JobsJson(state.jobs);
}

Result<std::string> Api::Workers() {
  MW_ASSIGN_OR_RETURN(const ClusterState state, parts_.cluster.Look());
  return WorkersJson(state.workers);
}

Result<std::string> Api::Worker(const std::string& name) {
  MW_ASSIGN_OR_RETURN(const ClusterState state, parts_.cluster.Look());
  for (const proto::WorkerInfo& worker : state.workers) {
    if (worker.name != name) continue;
    const auto of = [&name](const auto& by_worker) {
      const auto at = by_worker.find(name);
      return at == by_worker.end() ? std::decay_t<decltype(at->second)>() : at->second;
    };
    return WorkerDetailJson(worker, of(state.device_jobs), of(state.device_runs));
  }
  return Fail(NotFound(fmt::format("there is no worker {}", name.substr(0, 100))));
}

Result<std::string> Api::WorkerLog(const std::string& name, const HttpRequest& request) {
  controller::LogQuestion question;
  question.worker = name;
  question.kept = request.Query("kept") == "1";
  question.what.from = NumberIn(request.Query("from"), 0, INT64_MAX, -1);
  question.what.lines = NumberIn(request.Query("lines"), 1, kMostLogLines, 200);
  question.what.job = NumberIn(request.Query("job"), 0, INT64_MAX, 0);
  question.what.most_bytes = kLogBytes;
  MW_ASSIGN_OR_RETURN(const controller::LogAnswer log, parts_.cluster.WorkerLog(question));
  return WorkerLogJson(log);
}

Result<std::string> Api::Job(const proto::JobInfo& info) {
  MW_ASSIGN_OR_RETURN(const controller::JobStory story, parts_.cluster.Story(info.id));
  return JobDetailJson({info, story});
}

Result<std::string> Api::Steps(int64_t job, const HttpRequest& request) {
  const int64_t points = NumberIn(request.Query("points"), 1, Curve::kMostPoints, 600);
  MW_ASSIGN_OR_RETURN(const Curves::View view, parts_.curves.Of(job, static_cast<size_t>(points)));
  return CurveJson(view);
}

Result<std::string> Api::Events(int64_t job, const HttpRequest& request) {
  MW_ASSIGN_OR_RETURN(const auto events, parts_.cluster.Events(job, NumberIn(request.Query("limit"),
                                                                             1, kMostEvents, 200)));
  return EventsJson(events);
}

Result<std::string> Api::Log(int64_t job) {
  auto text = parts_.cluster.FileEnd(job, "job.log", kLogBytes);
  // A job that has said nothing has none.
  if (!text && text.error().code() == StatusCode::kNotFound) return LinesJson("", false);
  MW_TRY(text);
  return LinesJson(*text, static_cast<int64_t>(text->size()) >= kLogBytes);
}

std::string Api::Past(const HttpRequest& request) const {
  const int64_t hours = NumberIn(request.Query("hours"), 1, 24 * 7, 6);
  const int64_t points = NumberIn(request.Query("points"), 1, 2000, 360);
  return HistoryJson(parts_.watcher.HistorySince(parts_.clock.UnixMs() - hours * kHourMs,
                                                 static_cast<size_t>(points)));
}

}  // namespace meshwright::web
