#include "cli/job_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <utility>

namespace meshwright::cli {
namespace {

// "2026-11-27T05:30:22.880Z ", the time of an event in UTC.
constexpr std::string_view kStamp = "0000-00-00T00:00:00.000Z ";

bool HasStamp(std::string_view line) {
  if (line.size() < kStamp.size()) return false;
  for (size_t i = 0; i < kStamp.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(line[i])) != 0;
    if (kStamp[i] == '0' ? !digit : line[i] != kStamp[i]) return false;
  }
  return true;
}

}  // namespace

std::string EventText(const std::string& line) {
  if (!HasStamp(line)) return OneLine(line);
  const std::string text = line.substr(kStamp.size());
  const bool of_step = text.starts_with("step ") && text.find("validation loss") != text.npos;
  // `logs`, `plan` and `why` say it, too, and it is the same for job after job.
  const bool of_profile = text.starts_with("note: profile:");
  if (of_step || of_profile) return "";
  return line.substr(11, 8) + " " + OneLine(text);
}

JobView::JobView(const Clock& clock, Options options)
    : options_(std::move(options)),
      printer_(options_.steps),
      live_(clock, options_.live ? TerminalColumns(STDERR_FILENO) : 0) {}

JobView::~JobView() { Clear(); }

void JobView::Clear() {
  fmt::print(stderr, "{}", live_.Clear());
  std::fflush(stderr);
}

void JobView::Show(const client::JobUpdate& update) {
  printer_.SetPlanned(update.info);
  std::string events;
  for (const std::string& line : update.log_lines) {
    const std::string text = options_.events ? EventText(line) : "";
    if (!text.empty()) events += fmt::format("  {}\n", text);
  }
  std::string lines;
  for (const client::StepMetrics& step : update.steps) lines += printer_.Add(step);
  if (!options_.step_lines) lines.clear();
  if (!events.empty() || !lines.empty()) {
    fmt::print(stderr, "{}{}", live_.Clear(), events);
    std::fflush(stderr);
    fmt::print("{}", lines);
    std::fflush(stdout);
  }
  fmt::print(stderr, "{}", live_.Draw(update));
  std::fflush(stderr);
}

}  // namespace meshwright::cli
