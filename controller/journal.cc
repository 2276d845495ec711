#include "controller/journal.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json_int.h"
#include "base/unique_fd.h"
#include "ir/job.h"

namespace meshwright::controller {
namespace {

template <typename T>
std::vector<T> Slice(const std::deque<T>& all, int64_t first, int64_t& from, int64_t limit) {
  const auto size = static_cast<int64_t>(all.size());
  // Clamped first: `from` is the caller's and may be any number.
  const int64_t begin = from <= first ? 0 : std::min(size, from - first);
  const int64_t end = begin + std::min(size - begin, limit);
  std::vector<T> slice;
  for (int64_t i = begin; i < end; ++i) slice.push_back(all[static_cast<size_t>(i)]);
  if (end > begin) from = first + end;
  return slice;
}

std::string Number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
}

// The lines in the first `bytes` bytes of a file, read a chunk at a time.
struct Lines {
  std::string path;
  int64_t bytes = 0;

  // Calls `take` with every line behind the first `skip`. Of one without an end in sight, parts are
  // taken for lines.
  template <typename Take>
  void ForEach(int64_t skip, Take take) const {
    constexpr int64_t kChunkBytes = 1 << 20;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string rest;  // of the chunks before: the begin of a line
    const auto line = [&](std::string_view text) {
      if (skip-- <= 0) take(text);
    };
    for (int64_t at = 0; fd.valid() && at < bytes;) {
      const size_t kept = rest.size();
      rest.resize(kept + static_cast<size_t>(std::min(kChunkBytes, bytes - at)));
      const ssize_t got = ::pread(fd.get(), rest.data() + kept, rest.size() - kept, at);
      rest.resize(kept + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got <= 0) break;
      at += got;
      size_t begin = 0;
      for (size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
        line(std::string_view(rest).substr(begin, end - begin));
      }
      rest.erase(0, begin);
      if (static_cast<int64_t>(rest.size()) > kChunkBytes) {
        line(rest);
        rest.clear();
      }
    }
    if (!rest.empty()) line(rest);
  }

  int64_t Count() const {
    int64_t lines = 0;
    ForEach(0, [&lines](std::string_view) { ++lines; });
    return lines;
  }
};

double ReadNumber(const nlohmann::json& object, const char* name) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_number()) return std::numeric_limits<double>::quiet_NaN();
  return it->get<double>();
}

void ReadValues(const nlohmann::json& object, proto::StepMetrics& step) {
  const auto values = object.find("values");
  if (values == object.end() || !values->is_object()) return;
  for (auto it = values->begin(); it != values->end(); ++it) {
    if (it->is_number()) step.values[it.key()] = it->get<double>();
  }
}

// The end of a file: `bytes` of it, or all.
std::string Tail(const std::string& path, int64_t bytes) {
  const int64_t size = FileSize(path).value_or(0);
  const int64_t begin = std::max<int64_t>(0, size - bytes);
  std::string tail(static_cast<size_t>(size - begin), '\0');
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t got = fd.valid() ? ::pread(fd.get(), tail.data(), tail.size(), begin) : 0;
  tail.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return tail;
}

// Calls `find` with more and more of the end of a file, until it finds something, or has seen all.
template <typename Find>
auto FindInTail(const std::string& path, Find find) -> decltype(find(std::string_view())) {
  const int64_t size = FileSize(path).value_or(0);
  for (int64_t bytes = 64 << 10;; bytes *= 16) {
    const std::string tail = Tail(path, bytes);
    auto found = find(tail);
    if (found || bytes >= size) return found;
  }
}

int64_t BytesOfWholeLines(const std::string& path) {
  const auto cut = FindInTail(path, [](std::string_view tail) -> std::optional<size_t> {
    const size_t at = tail.rfind('\n');
    if (at == std::string_view::npos) return std::nullopt;
    return tail.size() - at - 1;
  });
  return cut ? FileSize(path).value_or(0) - static_cast<int64_t>(*cut) : 0;
}

// Of a file of whole lines.
std::string LastLine(const std::string& path) {
  const auto line = FindInTail(path, [](std::string_view tail) -> std::optional<std::string> {
    if (tail.empty()) return std::nullopt;
    tail.remove_suffix(1);
    const size_t at = tail.rfind('\n');
    if (at == std::string_view::npos) return std::nullopt;
    return std::string(tail.substr(at + 1));
  });
  if (line) return *line;
  std::string all = Tail(path, FileSize(path).value_or(0));
  if (!all.empty()) all.pop_back();
  return all;
}

std::optional<proto::StepMetrics> ParseStep(std::string_view line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  const auto number = JsonIntOf(object, "step", int64_t{0}, ir::kMaxSteps);
  if (!number.has_value()) return std::nullopt;
  proto::StepMetrics step;
  step.step = *number;
  step.loss = ReadNumber(object, "loss");
  step.grad_norm = ReadNumber(object, "grad_norm");
  step.lr = ReadNumber(object, "lr");
  step.tokens = ReadNumber(object, "tokens");
  step.seconds = ReadNumber(object, "seconds");
  step.validation_loss = ReadNumber(object, "validation_loss");
  ReadValues(object, step);
  return step;
}

}  // namespace

void Journal::AddStep(const proto::StepMetrics& step) {
  steps_.push_back(step);
  if (static_cast<int64_t>(steps_.size()) > kMaxSteps) {
    steps_.pop_front();
    ++first_step_;
  }
}

void Journal::AddLine(std::string line) {
  lines_.push_back(std::move(line));
  if (static_cast<int64_t>(lines_.size()) > kMaxLines) {
    lines_.pop_front();
    ++first_line_;
  }
}

void Journal::Append(const Journal& later) {
  for (const proto::StepMetrics& step : later.steps_) AddStep(step);
  for (const std::string& line : later.lines_) AddLine(line);
}

std::vector<proto::StepMetrics> Journal::StepsFrom(int64_t& from, int64_t limit) const {
  return Slice(steps_, first_step_, from, limit);
}

std::vector<std::string> Journal::LinesFrom(int64_t& from, int64_t limit) const {
  return Slice(lines_, first_line_, from, limit);
}

std::string FormatStep(const proto::StepMetrics& step) {
  std::string line =
      fmt::format(R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"tokens":{},"seconds":{})",
                  step.step, Number(step.loss), Number(step.grad_norm), Number(step.lr),
                  Number(step.tokens), Number(step.seconds));
  if (!std::isnan(step.validation_loss)) {
    line += fmt::format(R"(,"validation_loss":{})", Number(step.validation_loss));
  }
  if (!step.values.empty()) {
    nlohmann::json values = nlohmann::json::object();
    for (const auto& [name, value] : step.values) values[name] = value;
    line += fmt::format(R"(,"values":{})", values.dump());
  }
  return line + "}\n";
}

std::string FormatLine(const std::string& text, int64_t unix_ms) {
  const std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::string one_line = text;
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z {}\n", utc, unix_ms % 1000, one_line);
}

JournalSizes MeasureJournal(const std::string& job_dir) {
  return {FileSize(job_dir + "/metrics.jsonl").value_or(0),
          FileSize(job_dir + "/job.log").value_or(0)};
}

Journal LoadJournal(const std::string& job_dir, const JournalSizes& sizes) {
  const Lines metrics{job_dir + "/metrics.jsonl", sizes.metrics_bytes};
  const Lines log{job_dir + "/job.log", sizes.log_bytes};
  const int64_t old_steps = std::max<int64_t>(0, metrics.Count() - Journal::kMaxSteps);
  const int64_t old_lines = std::max<int64_t>(0, log.Count() - Journal::kMaxLines);
  Journal journal(old_steps, old_lines);
  metrics.ForEach(old_steps, [&](std::string_view line) {
    if (const auto step = ParseStep(line)) journal.AddStep(*step);
  });
  log.ForEach(old_lines, [&](std::string_view line) {
    if (!line.empty()) journal.AddLine(std::string(line));
  });
  return journal;
}

int64_t MendJournal(const std::string& job_dir) {
  const std::string metrics = job_dir + "/metrics.jsonl";
  for (const std::string& path : {metrics, job_dir + "/job.log"}) {
    const int64_t whole = BytesOfWholeLines(path);
    if (whole < FileSize(path).value_or(0)) (void)::truncate(path.c_str(), whole);
  }
  const std::string last = LastLine(metrics);
  const auto step = ParseStep(last);
  return step ? step->step + 1 : 0;
}

}  // namespace meshwright::controller
