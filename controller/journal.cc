#include "controller/journal.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/text.h"

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

Journal LoadJournal(const std::string& job_dir) {
  Journal journal;
  if (const auto text = ReadFile(job_dir + "/metrics.jsonl"); text.has_value()) {
    for (const std::string& line : Split(*text, '\n')) {
      const auto object = nlohmann::json::parse(line, nullptr, false);
      if (!object.is_object() || !object.contains("step")) continue;
      proto::StepMetrics step;
      step.step = static_cast<int64_t>(ReadNumber(object, "step"));
      step.loss = ReadNumber(object, "loss");
      step.grad_norm = ReadNumber(object, "grad_norm");
      step.lr = ReadNumber(object, "lr");
      step.tokens = ReadNumber(object, "tokens");
      step.seconds = ReadNumber(object, "seconds");
      step.validation_loss = ReadNumber(object, "validation_loss");
      ReadValues(object, step);
      journal.AddStep(step);
    }
  }
  if (const auto text = ReadFile(job_dir + "/job.log"); text.has_value()) {
    for (std::string& line : Split(*text, '\n')) {
      if (!line.empty()) journal.AddLine(std::move(line));
    }
  }
  return journal;
}

}  // namespace meshwright::controller
