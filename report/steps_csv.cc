#include "report/steps_csv.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/job.h"

namespace meshwright::report {
namespace {

using client::StepMetrics;
using CsvRecord = std::vector<std::string>;

// Quoted where a spreadsheet wants it.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string CsvNumber(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string();
}

// Takes a record off the front, whole: one without a line end may be half of one. None: there is
// no other.
std::optional<CsvRecord> TakeRecord(std::string_view& text) {
  CsvRecord record(1);
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const bool doubled = quoted && i + 1 < text.size() && text[i + 1] == '"';
      if (doubled) record.back() += text[++i];
      quoted = doubled || !quoted;
    } else if (quoted) {
      record.back() += c;
    } else if (c == ',') {
      record.emplace_back();
    } else if (c == '\n') {
      text.remove_prefix(i + 1);
      return record;
    } else if (c != '\r') {
      record.back() += c;
    }
  }
  return std::nullopt;
}

// NaN where there is none.
double CsvNumberIn(const std::string& field) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  const bool whole = error == std::errc() && end == field.data() + field.size();
  return whole && std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN();
}

// Where the number of such a column goes; null: it is a value of the job's own.
double* FieldOf(StepMetrics& step, const std::string& name) {
  if (name == "loss") return &step.loss;
  if (name == "grad_norm") return &step.grad_norm;
  if (name == "lr") return &step.lr;
  if (name == "tokens") return &step.tokens;
  if (name == "seconds") return &step.seconds;
  return name == "validation_loss" ? &step.validation_loss : nullptr;
}

std::optional<StepMetrics> StepOfRecord(const CsvRecord& names, const CsvRecord& fields) {
  if (fields.size() != names.size()) return std::nullopt;
  StepMetrics step;
  for (const char* name : {"loss", "grad_norm", "lr", "tokens", "seconds", "validation_loss"}) {
    double* const field = FieldOf(step, name);
    MW_CHECK(field != nullptr) << "no place for " << name;
    *field = std::numeric_limits<double>::quiet_NaN();  // the table may lack the column
  }
  bool numbered = false;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "step") {
      const std::optional<int64_t> number = ParseInt(fields[i]);
      if (!number || *number < 0 || *number > ir::kMaxSteps) return std::nullopt;
      step.step = *number;
      numbered = true;
    } else if (double* const field = FieldOf(step, names[i])) {
      *field = CsvNumberIn(fields[i]);
    } else if (const double value = CsvNumberIn(fields[i]); !std::isnan(value)) {
      step.values[names[i]] = value;
    }
  }
  return numbered ? std::optional(std::move(step)) : std::nullopt;
}

}  // namespace

std::string CsvOf(const std::vector<StepMetrics>& steps) {
  std::set<std::string> names;
  for (const StepMetrics& step : steps) {
    for (const auto& [name, value] : step.values) names.insert(name);
  }
  std::string text = "step,loss,grad_norm,lr,tokens,seconds,validation_loss";
  for (const std::string& name : names) text += "," + CsvField(name);
  text += "\n";
  for (const StepMetrics& step : steps) {
    text += fmt::format("{},{},{},{},{},{},{}", step.step, CsvNumber(step.loss),
                        CsvNumber(step.grad_norm), CsvNumber(step.lr), CsvNumber(step.tokens),
                        CsvNumber(step.seconds), CsvNumber(step.validation_loss));
    for (const std::string& name : names) {
      const auto value = step.values.find(name);
      text += "," + (value == step.values.end() ? std::string() : CsvNumber(value->second));
    }
    text += "\n";
  }
  return text;
}

bool IsCsvOfSteps(std::string_view text) {
  const std::optional<CsvRecord> names = TakeRecord(text);
  if (!names) return false;
  bool step = false;
  bool loss = false;
  for (const std::string& name : *names) {
    step = step || name == "step";
    loss = loss || name == "loss";
  }
  return step && loss;
}

std::vector<StepMetrics> ParseCsvSteps(std::string_view text) {
  std::vector<StepMetrics> steps;
  const std::optional<CsvRecord> names = TakeRecord(text);
  if (!names) return steps;
  while (const std::optional<CsvRecord> fields = TakeRecord(text)) {
    if (auto step = StepOfRecord(*names, *fields)) steps.push_back(*std::move(step));
  }
  return steps;
}

}  // namespace meshwright::report
