#include "worker/worker_log.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"

namespace meshwright::worker {

Result<std::unique_ptr<WorkerLog>> WorkerLog::Open(LineLogOptions options) {
  MW_ASSIGN_OR_RETURN(std::unique_ptr<LineLog> lines, LineLog::Open(std::move(options)));
  return std::unique_ptr<WorkerLog>(new WorkerLog(std::move(lines)));
}

WorkerLog::~WorkerLog() {
  if (captures_) SetLogSink(nullptr);
  reader_.Stop();
}

void WorkerLog::Capture() {
  captures_ = true;
  SetLogSink([this](LogLevel level, std::string_view line) { Take(level, line); });
}

void WorkerLog::Take(LogLevel level, std::string_view lines) {
  // A full disk takes nothing; the controller is told all the same.
  (void)lines_->Add(lines);
  if (level < LogLevel::kInfo) return;
  const MutexLock lock(mutex_);
  for (const std::string& line : Split(lines, '\n')) {
    if (line.empty()) continue;
    if (waiting_.size() == kMostWaiting) (void)LeaveOutOne();
    waiting_.push_back({level, AsUtf8(line, proto::kMostLogLineBytes)});
  }
}

size_t WorkerLog::LeaveOutOne() {
  const auto lowest =
      std::min_element(waiting_.begin(), waiting_.end(),
                       [](const Line& a, const Line& b) { return a.level < b.level; });
  const size_t bytes = lowest->text.size();
  waiting_.erase(lowest);
  ++dropped_;
  return bytes;
}

std::optional<proto::LogLines> WorkerLog::News() {
  const MutexLock lock(mutex_);
  if (waiting_.empty() && dropped_ == 0) return std::nullopt;
  size_t bytes = 0;
  for (const Line& line : waiting_) bytes += line.text.size();
  while (waiting_.size() > proto::kMostLogLines ||
         (bytes > kMostNewsBytes && waiting_.size() > 1)) {
    bytes -= LeaveOutOne();
  }
  proto::LogLines news;
  for (Line& line : waiting_) news.lines.push_back(std::move(line.text));
  news.dropped = std::exchange(dropped_, 0);
  waiting_.clear();
  return news;
}

bool WorkerLog::Handle(const proto::DownBody& body,
                       const std::function<void(proto::UpBody)>& tell) {
  const auto* fetch = std::get_if<proto::FetchLog>(&body);
  if (fetch == nullptr) return false;
  if (asks_.fetch_add(1) >= kMostAsks) {
    --asks_;
    proto::LogPiece refused{fetch->ask,
                            "",
                            0,
                            true,
                            StatusCode::kResourceExhausted,
                            "too many ask for this worker's log at once; try again"};
    tell(std::move(refused));
    return true;
  }
  (void)reader_.Post([this, tell, fetch = *fetch] {
    tell(PieceOf(fetch));
    --asks_;
  });
  return true;
}

void WorkerLog::Settle() {
  std::promise<void> settled;
  if (reader_.Post([&settled] { settled.set_value(); })) settled.get_future().wait();
}

proto::LogPiece WorkerLog::PieceOf(const proto::FetchLog& fetch) const {
  Result<LinePiece> piece = lines_->Read(proto::QueryOf(fetch));
  if (!piece.has_value()) {
    return {fetch.ask, "", 0, true, piece.error().code(), piece.error().message()};
  }
  return {fetch.ask, std::move(piece->text), piece->next, piece->end};
}

std::optional<proto::LogLines> NewsOf(WorkerLog* log, bool takes_logs) {
  return log == nullptr || !takes_logs ? std::nullopt : log->News();
}

}  // namespace meshwright::worker
