#include "cli/worker_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log_lines.h"
#include "base/text.h"

namespace meshwright::cli {

Result<std::vector<LogLine>> WorkerLogReader::Next() {
  MW_ASSIGN_OR_RETURN(const client::LogText text, inspector_.Log(ask_));
  end_ = text.end;
  ask_.what.from = text.next;
  if (!text.note.empty()) {
    // From here on by what the controller keeps, of which the position is; it goes on there when
    // the worker is back.
    ask_.kept = true;
    note_ = text.note;
  }
  std::vector<LogLine> lines;
  std::vector<std::string> parts = Split(text.text, '\n');
  if (!parts.empty() && parts.back().empty()) parts.pop_back();
  for (std::string& part : parts) {
    unix_ms_ = UnixMsOfLine(part).value_or(unix_ms_);
    lines.push_back({ask_.worker, std::move(part), unix_ms_});
  }
  return lines;
}

std::string WorkerLogReader::TakeNote() { return std::exchange(note_, ""); }

std::vector<LogLine> MergeLines(std::vector<std::vector<LogLine>> of_workers) {
  std::vector<LogLine> all;
  for (std::vector<LogLine>& lines : of_workers) {
    int64_t latest_ms = 0;
    for (LogLine& line : lines) {
      latest_ms = std::max(latest_ms, line.unix_ms);  // a clock that was set back
      line.unix_ms = latest_ms;
      all.push_back(std::move(line));
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const LogLine& a, const LogLine& b) { return a.unix_ms < b.unix_ms; });
  return all;
}

std::string NoLinesNote(const LogsArgs& args) {
  std::string note = args.controller ? "the log of the controller has no line"
                     : args.all      ? "the logs of the workers have no line"
                                : fmt::format("the log of worker '{}' has no line", args.worker);
  if (args.id != 0) note += fmt::format(" of job {}", args.id);
  if (!args.since.empty()) note += fmt::format(" since {}", args.since);
  if (args.id != 0) note += fmt::format("; what happened to the job: meshwright logs {}", args.id);
  return note + (args.follow ? "; those that come are shown" : "");
}

std::string WorkerLineJson(const LogLine& line) {
  return fmt::format(R"({{"worker":"{}","line":"{}"}})", JsonEscape(line.worker),
                     JsonEscape(line.text));
}

}  // namespace meshwright::cli
