#include "report/run_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json_int.h"
#include "base/table.h"
#include "base/text.h"
#include "ir/job.h"
#include "ir/metric.h"
#include "report/steps_csv.h"
#include "report/views_json.h"

namespace meshwright::report {
namespace {

using client::StepMetrics;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kPlacesShown = 8;

double NumberOfField(const nlohmann::json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number() ? it->get<double>() : kNoNumber;
}

std::optional<StepMetrics> StepOfLine(std::string_view line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  const auto number = JsonIntOf(object, "step", int64_t{0}, ir::kMaxSteps);
  if (!number.has_value()) return std::nullopt;
  StepMetrics step;
  step.step = *number;
  step.loss = NumberOfField(object, "loss");
  step.grad_norm = NumberOfField(object, "grad_norm");
  step.lr = NumberOfField(object, "lr");
  step.tokens = NumberOfField(object, "tokens");
  step.seconds = NumberOfField(object, "seconds");
  step.validation_loss = NumberOfField(object, "validation_loss");
  const auto values = object.find("values");
  if (values == object.end() || !values->is_object()) return step;
  for (auto it = values->begin(); it != values->end(); ++it) {
    if (it->is_number()) step.values[it.key()] = it->get<double>();
  }
  return step;
}

double Known(double value) { return std::isnan(value) ? 0 : value; }

std::string NumberText(double value, const char* format) {
  return std::isnan(value) ? "-" : fmt::format(fmt::runtime(format), value);
}

// "optimizer.lr" -> "0.001" of a resolved configuration, which has one key per line.
std::map<std::string, std::string> KeysOf(const std::string& toml) {
  std::map<std::string, std::string> keys;
  std::string section;
  for (const std::string& raw : Split(toml, '\n')) {
    const std::string line(Trim(raw));
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[') {
      section = line.substr(1, line.rfind(']') - 1);
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key(Trim(std::string_view(line).substr(0, equals)));
    keys[section.empty() ? key : section + "." + key] =
        Trim(std::string_view(line).substr(equals + 1));
  }
  return keys;
}

double TokensOf(const ComparedRun& run) {
  double tokens = 0;
  for (const StepMetrics& step : run.steps) tokens += Known(step.tokens);
  return tokens;
}

double LossAtTokens(const ComparedRun& run, double wanted) {
  double tokens = 0;
  for (const StepMetrics& step : run.steps) {
    tokens += Known(step.tokens);
    if (tokens >= wanted) return step.loss;
  }
  return kNoNumber;
}

// The last of its steps up to that one: files may lack some.
double LossAtStep(const ComparedRun& run, int64_t wanted) {
  double loss = kNoNumber;
  for (const StepMetrics& step : run.steps) {
    if (step.step > wanted) break;
    loss = step.loss;
  }
  return loss;
}

// Rows of FormatTable: a name, and what each run has.
class Rows {
 public:
  explicit Rows(const std::vector<ComparedRun>& runs) : runs_(runs) {}

  template <typename TextOf>
  void Add(const std::string& name, TextOf text_of) {
    std::vector<std::string> row = {name};
    for (const ComparedRun& run : runs_) row.push_back(text_of(run));
    rows_.push_back(std::move(row));
  }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Text(const std::string& title) const {
    std::vector<std::string> header = {title};
    for (const ComparedRun& run : runs_) header.push_back(run.label);
    return FormatTable(header, rows_);
  }
  bool empty() const { return rows_.empty(); }

 private:
  const std::vector<ComparedRun>& runs_;
  std::vector<std::vector<std::string>> rows_;
};

// What validations say beside their loss: "validation/chats", "validation/accuracy".
std::set<std::string> ValidationNames(const std::vector<ComparedRun>& runs) {
  std::set<std::string> names;
  for (const ComparedRun& run : runs) {
    for (const StepMetrics& step : run.steps) {
      for (const auto& [name, value] : step.values) {
        if (name.starts_with(ir::kValidationPrefix)) names.insert(name);
      }
    }
  }
  return names;
}

double LastValue(const ComparedRun& run, const std::string& name) {
  double last = kNoNumber;
  for (const StepMetrics& step : run.steps) {
    const auto value = step.values.find(name);
    if (value != step.values.end()) last = value->second;
  }
  return last;
}

nlohmann::ordered_json ValidationJson(const ComparedRun& run) {
  auto object = nlohmann::ordered_json::object();
  for (const std::string& name : ValidationNames({run})) {
    object[name.substr(std::string_view(ir::kValidationPrefix).size())] =
        NumberOrNull(LastValue(run, name));
  }
  return object;
}

std::string FiguresTable(const std::vector<ComparedRun>& runs) {
  Rows rows(runs);
  const auto figure = [&](const char* name, double RunFigures::*field, const char* format) {
    rows.Add(name,
             [&](const ComparedRun& run) { return NumberText(FiguresOf(run).*field, format); });
  };
  rows.Add("state", [](const ComparedRun& run) { return run.state.empty() ? "-" : run.state; });
  rows.Add("steps", [](const ComparedRun& run) { return FormatCount(FiguresOf(run).steps); });
  rows.Add("tokens",
           [](const ComparedRun& run) { return FormatCount(std::llround(TokensOf(run))); });
  figure("last loss", &RunFigures::last_loss, "{:.4f}");
  rows.Add("best loss", [](const ComparedRun& run) {
    const RunFigures figures = FiguresOf(run);
    if (figures.best_step < 0) return std::string("-");
    return fmt::format("{:.4f} (step {})", figures.best_loss, figures.best_step + 1);
  });
  figure("last validation loss", &RunFigures::last_validation, "{:.4f}");
  figure("best validation loss", &RunFigures::best_validation, "{:.4f}");
  for (const std::string& name : ValidationNames(runs)) {
    rows.Add("last " + name,
             [&](const ComparedRun& run) { return NumberText(LastValue(run, name), "{:.4f}"); });
  }
  rows.Add("time per step", [](const ComparedRun& run) {
    const double seconds = FiguresOf(run).median_step_s;
    return std::isnan(seconds) ? std::string("-") : FormatDuration(seconds);
  });
  figure("tokens/s", &RunFigures::tokens_per_s, "{:.0f}");
  figure("tokens/s and device", &RunFigures::tokens_per_s_and_device, "{:.0f}");
  rows.Add("devices", [](const ComparedRun& run) {
    return run.facts.devices > 0 ? std::to_string(run.facts.devices) : std::string("-");
  });
  rows.Add("layout", [](const ComparedRun& run) {
    return run.facts.layout.empty() ? std::string("-") : run.facts.layout;
  });
  return rows.Text("RUN");
}

std::string LossTable(const std::vector<ComparedRun>& runs, const std::vector<LossesAt>& places,
                      const std::string& title) {
  Rows rows(runs);
  for (const LossesAt& at : places) {
    std::vector<std::string> row = {FormatCount(std::llround(at.place))};
    for (const double loss : at.losses) row.push_back(NumberText(loss, "{:.4f}"));
    rows.Add(std::move(row));
  }
  return rows.empty() ? "" : "\n" + rows.Text(title);
}

nlohmann::ordered_json PlacesJson(const std::vector<LossesAt>& places, const char* name) {
  auto list = nlohmann::ordered_json::array();
  for (const LossesAt& at : places) {
    auto losses = nlohmann::ordered_json::array();
    for (const double loss : at.losses) losses.push_back(NumberOrNull(loss));
    list.push_back({{name, std::llround(at.place)}, {"losses", losses}});
  }
  return list;
}

}  // namespace

Result<std::vector<StepMetrics>> ParseSteps(std::string_view text, const std::string& path) {
  std::vector<StepMetrics> steps;
  if (IsCsvOfSteps(text)) {
    steps = ParseCsvSteps(text);
    text = {};
  }
  for (const std::string& line : Split(text, '\n')) {
    if (auto step = StepOfLine(line)) steps.push_back(std::move(*step));
  }
  if (!steps.empty()) return steps;
  return Fail(
      InvalidArgument(fmt::format("{} has no steps: name the metrics.jsonl or metrics.csv of "
                                  "a run, or the folder of one",
                                  path)));
}

RunFigures FiguresOf(const ComparedRun& run) {
  RunFigures figures;
  figures.last_loss = figures.best_loss = kNoNumber;
  figures.last_validation = figures.best_validation = kNoNumber;
  figures.steps = static_cast<int64_t>(run.steps.size());
  figures.tokens = TokensOf(run);
  std::vector<double> seconds;
  for (const StepMetrics& step : run.steps) {
    figures.last_loss = step.loss;
    if (std::isnan(figures.best_loss) || step.loss < figures.best_loss) {
      figures.best_loss = step.loss;
      figures.best_step = step.step;
    }
    if (!std::isnan(step.validation_loss)) {
      figures.last_validation = step.validation_loss;
      figures.best_validation = std::fmin(figures.best_validation, step.validation_loss);
    }
    if (step.seconds > 0) seconds.push_back(step.seconds);
    figures.seconds += Known(step.seconds);
  }
  figures.median_step_s = kNoNumber;
  if (!seconds.empty()) {
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    figures.median_step_s = *middle;
  }
  figures.tokens_per_s = figures.seconds > 0 ? figures.tokens / figures.seconds : kNoNumber;
  figures.tokens_per_s_and_device =
      run.facts.devices > 0 ? figures.tokens_per_s / static_cast<double>(run.facts.devices)
                            : kNoNumber;
  return figures;
}

std::vector<LossesAt> LossesAtSteps(const std::vector<ComparedRun>& runs, size_t most) {
  int64_t common = std::numeric_limits<int64_t>::max();
  for (const ComparedRun& run : runs) {
    MW_CHECK(!run.steps.empty()) << run.label << " has no steps";
    common = std::min(common, run.steps.back().step + 1);
  }
  const int64_t places = std::min(common, static_cast<int64_t>(most));
  std::vector<LossesAt> all;
  for (int64_t i = 1; i <= places; ++i) {
    const int64_t step = common * i / places;
    LossesAt at{static_cast<double>(step), {}};
    for (const ComparedRun& run : runs) at.losses.push_back(LossAtStep(run, step - 1));
    all.push_back(std::move(at));
  }
  return all;
}

std::vector<LossesAt> LossesAtTokens(const std::vector<ComparedRun>& runs, size_t most) {
  double common = std::numeric_limits<double>::max();
  for (const ComparedRun& run : runs) common = std::min(common, TokensOf(run));
  std::vector<LossesAt> all;
  if (!(common > 0)) return all;
  for (size_t i = 1; i <= most; ++i) {
    const double tokens = std::floor(common * static_cast<double>(i) / static_cast<double>(most));
    LossesAt at{tokens, {}};
    for (const ComparedRun& run : runs) at.losses.push_back(LossAtTokens(run, tokens));
    all.push_back(std::move(at));
  }
  return all;
}

std::vector<ChangedKey> ChangedKeys(const std::vector<ComparedRun>& runs) {
  std::vector<std::map<std::string, std::string>> configs;
  std::set<std::string> names;
  std::vector<size_t> known;  // runs with a configuration
  for (size_t i = 0; i < runs.size(); ++i) {
    configs.push_back(KeysOf(runs[i].facts.config_text));
    if (!configs.back().empty()) known.push_back(i);
    for (const auto& [key, value] : configs.back()) names.insert(key);
  }
  std::vector<ChangedKey> changes;
  for (const std::string& name : names) {
    if (name == "job.name" || name == "job.description") continue;
    ChangedKey change{name, {}};
    for (auto& config : configs) change.values.push_back(config[name]);
    const bool differs = std::any_of(known.begin(), known.end(), [&](size_t i) {
      return change.values[i] != change.values[known.front()];
    });
    if (differs) changes.push_back(std::move(change));
  }
  return changes;
}

std::string FormatComparison(const std::vector<ComparedRun>& runs) {
  MW_CHECK(runs.size() >= 2) << "one run has nothing beside it";
  std::string text = FiguresTable(runs);
  text += LossTable(runs, LossesAtSteps(runs, kPlacesShown), "LOSS AT STEP");
  // Where steps have the same tokens this says the same again.
  const auto per_step = [](const ComparedRun& run) {
    return TokensOf(run) / static_cast<double>(run.steps.back().step + 1);
  };
  const bool differ = std::any_of(runs.begin(), runs.end(), [&](const ComparedRun& run) {
    return std::abs(per_step(run) - per_step(runs.front())) > 1e-9 * per_step(runs.front());
  });
  if (differ) text += LossTable(runs, LossesAtTokens(runs, kPlacesShown), "LOSS AT TOKENS");
  Rows keys(runs);
  for (const ChangedKey& change : ChangedKeys(runs)) {
    std::vector<std::string> row = {change.key};
    for (const std::string& value : change.values) row.push_back(value.empty() ? "-" : value);
    keys.Add(std::move(row));
  }
  if (!keys.empty()) return text + "\n" + keys.Text("CHANGED KEY");
  const bool all = std::none_of(runs.begin(), runs.end(), [](const ComparedRun& run) {
    return run.facts.config_text.empty();
  });
  return text + (all ? "\nThe configurations are equal.\n" : "");
}

std::string ComparisonJson(const std::vector<ComparedRun>& runs) {
  MW_CHECK(runs.size() >= 2) << "one run has nothing beside it";
  auto list = nlohmann::ordered_json::array();
  for (const ComparedRun& run : runs) {
    const RunFigures figures = FiguresOf(run);
    list.push_back({{"label", run.label},
                    {"state", run.state},
                    {"layout", run.facts.layout},
                    {"devices", run.facts.devices},
                    {"steps", figures.steps},
                    {"tokens", figures.tokens},
                    {"seconds", figures.seconds},
                    {"last_loss", NumberOrNull(figures.last_loss)},
                    {"best_loss", NumberOrNull(figures.best_loss)},
                    {"best_step", figures.best_step},
                    {"last_validation_loss", NumberOrNull(figures.last_validation)},
                    {"best_validation_loss", NumberOrNull(figures.best_validation)},
                    {"last_validation", ValidationJson(run)},
                    {"median_step_seconds", NumberOrNull(figures.median_step_s)},
                    {"tokens_per_second", NumberOrNull(figures.tokens_per_s)}});
  }
  auto changes = nlohmann::ordered_json::object();
  for (const ChangedKey& change : ChangedKeys(runs)) changes[change.key] = change.values;
  return JsonText({{"runs", list},
                   {"at_steps", PlacesJson(LossesAtSteps(runs, kPlacesShown), "step")},
                   {"at_tokens", PlacesJson(LossesAtTokens(runs, kPlacesShown), "tokens")},
                   {"changed_keys", changes}},
                  2) +
         "\n";
}

}  // namespace meshwright::report
