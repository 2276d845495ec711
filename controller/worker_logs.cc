#include "controller/worker_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace meshwright::controller {
namespace {

// Of who went on in the log of a worker that is not to be had: its position means nothing in what
// is kept, the last lines do.
void AskForTheEnd(proto::FetchLog& what) {
  if (what.from < 0) return;
  what.from = -1;
  what.lines = 20;
}

// "w0.000000000042.log" -> "w0".
std::optional<std::string> LogNameOf(const std::string& file) {
  const std::vector<std::string> parts = Split(file, '.');
  if (parts.size() < 3 || parts.back() != "log" || !ParseInt(parts[parts.size() - 2])) {
    return std::nullopt;
  }
  return Join({parts.begin(), parts.end() - 2}, ".");
}

std::string Ago(int64_t ms) { return FormatDuration(static_cast<double>(ms) / 1000); }

}  // namespace

Result<std::unique_ptr<WorkerLogs>> WorkerLogs::Open(std::string folder, const Clock& clock) {
  std::unique_ptr<WorkerLogs> logs(new WorkerLogs(std::move(folder), clock));
  MW_TRY(logs->TakeUp());
  return logs;
}

LineLogOptions WorkerLogs::OptionsOf(const std::string& safe_name) const {
  return {.folder = folder_, .name = safe_name, .segment_bytes = kKeptBytes / 2, .segments = 2};
}

Status WorkerLogs::TakeUp() {
  MW_TRY(MakeDirs(folder_));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const auto name = LogNameOf(entry.path().filename().string());
    if (!name) continue;
    const auto age = std::filesystem::file_time_type::clock::now() - entry.last_write_time(error);
    const int64_t written_ms =
        clock_.UnixMs() - std::chrono::duration_cast<std::chrono::milliseconds>(age).count();
    Kept& kept = kept_[*name];
    kept.last_unix_ms = std::max(kept.last_unix_ms, written_ms);
    if (kept.log != nullptr) continue;
    MW_ASSIGN_OR_RETURN(kept.log, LineLog::Open(OptionsOf(*name)));
  }
  return OkStatus();
}

void WorkerLogs::Stop() {
  files_.Stop();
  std::map<uint64_t, Pending> rest;
  {
    const MutexLock lock(mutex_);
    rest.swap(pending_);
  }
  for (const auto& [ask, pending] : rest) {
    pending.done(Fail(Unavailable("the controller is stopping")));
  }
}

uint64_t WorkerLogs::Join(const std::string& worker, Fetch fetch) {
  const MutexLock lock(mutex_);
  MW_CHECK(fetch != nullptr) << "worker '" << worker << "' cannot be asked for its log";
  const uint64_t id = next_id_++;
  sessions_[worker] = {id, std::move(fetch)};
  return id;
}

void WorkerLogs::Leave(const std::string& worker, uint64_t session) {
  std::vector<uint64_t> asks;
  {
    const MutexLock lock(mutex_);
    const auto it = sessions_.find(worker);
    if (it != sessions_.end() && it->second.id == session) sessions_.erase(it);
    for (const auto& [ask, pending] : pending_) {
      if (pending.session == session) asks.push_back(ask);
    }
  }
  for (const uint64_t ask : asks) {
    (void)files_.Post([this, ask] { GiveUpOnLoop(ask, "has just left"); });
  }
}

void WorkerLogs::Keep(const std::string& worker, proto::LogLines lines) {
  (void)files_.Post([this, worker, lines = std::move(lines)] { KeepOnLoop(worker, lines); });
}

void WorkerLogs::KeepOnLoop(const std::string& worker, const proto::LogLines& lines) {
  const std::string name = SafeFileName(worker);
  Kept& kept = kept_[name];
  if (kept.log == nullptr) {
    auto opened = LineLog::Open(OptionsOf(name));
    if (!opened.has_value()) {
      kept_.erase(name);
      return LogWarn(
          fmt::format("lines of worker '{}' are not kept: {}", worker, opened.error().message()));
    }
    kept.log = std::move(*opened);
  }
  kept.last_unix_ms = clock_.UnixMs();
  std::string text;
  if (lines.dropped > 0) text = fmt::format("({} lines were left out)\n", lines.dropped);
  for (const std::string& line : lines.lines) text += line + "\n";
  if (text.empty()) return;
  if (const Status status = kept.log->Add(text); !status.ok()) {
    LogWarn(fmt::format("lines of worker '{}' are not kept: {}", worker, status.message()));
  }
  if (kept_.size() > kMostWorkers) ForgetOneOnLoop();
}

void WorkerLogs::ForgetOneOnLoop() {
  const auto oldest = std::min_element(
      kept_.begin(), kept_.end(),
      [](const auto& a, const auto& b) { return a.second.last_unix_ms < b.second.last_unix_ms; });
  const std::string name = oldest->first;
  kept_.erase(oldest);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (LogNameOf(entry.path().filename().string()) == name) {
      (void)RemoveAll(entry.path().string());
    }
  }
}

void WorkerLogs::Ask(LogQuestion question, Done done) {
  uint64_t ask = 0;
  Fetch fetch;
  proto::FetchLog what = question.what;
  {
    const MutexLock lock(mutex_);
    const auto it = sessions_.find(question.worker);
    if (!question.kept && it != sessions_.end()) {
      ask = next_id_++;
      fetch = it->second.fetch;
      pending_[ask] = {question, it->second.id, done};
    }
  }
  if (ask == 0) {
    if (!question.kept) AskForTheEnd(question.what);
    const std::string why = question.kept ? "" : "is not here";
    const bool posted =
        files_.Post([this, question, why, done] { AnswerKeptOnLoop(question, why, done); });
    if (!posted) done(Fail(Unavailable("the controller is stopping")));
    return;
  }
  what.ask = ask;
  fetch(what);
  const bool timed = files_.PostAfter(kAnswerMs, [this, ask] {
    GiveUpOnLoop(ask, fmt::format("did not answer within {} s", kAnswerMs / 1000));
  });
  if (timed) return;
  {
    const MutexLock lock(mutex_);
    if (pending_.erase(ask) == 0) return;
  }
  done(Fail(Unavailable("the controller is stopping")));
}

void WorkerLogs::OnPiece(proto::LogPiece piece) {
  Done done;
  {
    const MutexLock lock(mutex_);
    const auto it = pending_.find(piece.ask);
    if (it == pending_.end()) return;  // it was late
    done = std::move(it->second.done);
    pending_.erase(it);
  }
  const bool posted = files_.Post([piece, done] {
    if (piece.code != StatusCode::kOk) return done(Fail(Status(piece.code, piece.message)));
    done(LogAnswer{{piece.text, piece.next, piece.end}, true, ""});
  });
  if (!posted) done(Fail(Unavailable("the controller is stopping")));
}

void WorkerLogs::GiveUpOnLoop(uint64_t ask, const std::string& why) {
  Pending pending;
  {
    const MutexLock lock(mutex_);
    const auto it = pending_.find(ask);
    if (it == pending_.end()) return;
    pending = std::move(it->second);
    pending_.erase(it);
  }
  AskForTheEnd(pending.question.what);
  AnswerKeptOnLoop(pending.question, why, pending.done);
}

void WorkerLogs::AnswerKeptOnLoop(const LogQuestion& question, const std::string& why,
                                  const Done& done) {
  const auto it = kept_.find(SafeFileName(question.worker));
  if (it == kept_.end()) {
    return done(Fail(NotFound(
        fmt::format("there is no log of a worker '{}': it is not here, and nothing is kept of it; "
                    "`meshwright status` lists the workers",
                    question.worker.substr(0, 100)))));
  }
  Result<LinePiece> piece = it->second.log->Read(proto::QueryOf(question.what));
  if (!piece.has_value()) return done(Fail(piece.error()));
  LogAnswer answer{*std::move(piece), false, ""};
  if (!why.empty()) {
    answer.note = fmt::format(
        "worker '{}' {}; this is what it had told the controller, the last of it {} ago",
        question.worker, why, Ago(clock_.UnixMs() - it->second.last_unix_ms));
  }
  done(std::move(answer));
}

}  // namespace meshwright::controller
