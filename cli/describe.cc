#include "cli/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "cli/output.h"
#include "config/config_keys.h"
#include "report/views_json.h"

namespace meshwright::cli {
namespace {

using client::JobInfo;

std::string UtcText(int64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm time = {};
  ::gmtime_r(&seconds, &time);
  std::array<char, 32> text = {};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &time);
  return {text.data(), length};
}

double SecondsBetween(int64_t from_unix_ms, int64_t to_unix_ms) {
  return static_cast<double>(std::max<int64_t>(to_unix_ms - from_unix_ms, 0)) / 1e3;
}

// What can be said of a job's pace; none before its first step.
struct Pace {
  double step_s = 0;  // from the start on, with all that came between
  double tokens_per_s = 0;
  std::optional<double> left_s;
};

std::optional<Pace> PaceOf(const JobStory& story, int64_t now_unix_ms) {
  const JobInfo& info = story.info;
  if (info.steps_done <= 0 || info.started_unix_ms <= 0) return {};
  const int64_t end = info.ended_unix_ms > 0 ? info.ended_unix_ms : now_unix_ms;
  Pace pace;
  pace.step_s = SecondsBetween(info.started_unix_ms, end) / static_cast<double>(info.steps_done);
  const ir::TrainSpec& train = story.request.train;
  if (pace.step_s > 0 && !story.request.programs.empty()) {
    pace.tokens_per_s =
        static_cast<double>(train.global_batch) * static_cast<double>(train.sequence) / pace.step_s;
  }
  if (info.state == client::JobState::kRunning) {
    pace.left_s = pace.step_s * static_cast<double>(info.steps - info.steps_done);
  }
  return pace;
}

// "2 devices of 2 workers", as the last "planned .. on 2 devices of 2 workers (generation 3)" says.
std::string DevicesIn(const std::vector<std::string>& events) {
  constexpr std::string_view kOn = " on ";
  for (auto it = events.rbegin(); it != events.rend(); ++it) {
    const size_t planned = it->find(" planned ");
    if (planned == std::string::npos) continue;
    const size_t on = it->find(kOn, planned);
    const size_t end = it->find(" (generation", planned);
    if (on == std::string::npos || end == std::string::npos || end < on) continue;
    return it->substr(on + kOn.size(), end - on - kOn.size());
  }
  return "";
}

int64_t RecoveriesIn(const std::vector<std::string>& events) {
  return std::count_if(events.begin(), events.end(), [](const std::string& event) {
    return event.find(" recovered in ") != std::string::npos;
  });
}

std::vector<std::string> LastOf(const std::vector<std::string>& events, int64_t most) {
  const auto count = std::min<int64_t>(most, static_cast<int64_t>(events.size()));
  return {events.end() - count, events.end()};
}

std::string OwnerIn(const std::vector<std::pair<std::string, std::string>>& keys) {
  for (const auto& [name, value] : keys) {
    if (name == "job.owner") return value.substr(1, value.size() - 2);  // it is quoted
  }
  return "";
}

std::string TimeText(const JobInfo& info, const std::optional<Pace>& pace, int64_t now_unix_ms) {
  std::string text = "submitted " + UtcText(info.submitted_unix_ms);
  if (info.started_unix_ms <= 0) {
    const int64_t until = info.ended_unix_ms > 0 ? info.ended_unix_ms : now_unix_ms;
    return text + fmt::format(", not started in {}",
                              FormatDuration(SecondsBetween(info.submitted_unix_ms, until)));
  }
  text += fmt::format(", started {} later",
                      FormatDuration(SecondsBetween(info.submitted_unix_ms, info.started_unix_ms)));
  if (info.ended_unix_ms > 0) {
    return text + fmt::format(", ran {}", FormatDuration(SecondsBetween(info.started_unix_ms,
                                                                        info.ended_unix_ms)));
  }
  text +=
      fmt::format(", {} ago", FormatDuration(SecondsBetween(info.started_unix_ms, now_unix_ms)));
  return pace && pace->left_s ? text + fmt::format("; {} left", FormatDuration(*pace->left_s))
                              : text;
}

std::string LossText(const JobInfo& info, const Pace& pace) {
  std::string text = fmt::format("{:.4f}, {} a step", info.loss, FormatDuration(pace.step_s));
  if (pace.tokens_per_s > 0) {
    text += fmt::format(", {} tokens/s", FormatCount(static_cast<int64_t>(pace.tokens_per_s)));
  }
  return text;
}

std::string CheckpointText(const JobStory& story) {
  const JobInfo& info = story.info;
  if (info.checkpoint_folder.path.empty()) return "none (checkpoint.enable)";
  const std::string newest = info.checkpoint_step < 0
                                 ? "none yet"
                                 : fmt::format("newest after step {}", info.checkpoint_step);
  return fmt::format("{}, in {}", newest, info.checkpoint_folder.path);
}

std::string MemoryText(const JobInfo& info) {
  if (info.device_memory_bytes <= 0) return "";
  std::string text = ", " + FormatBytes(info.device_memory_bytes);
  if (info.device_budget_bytes > 0) text += " of " + FormatBytes(info.device_budget_bytes);
  return text + " planned on the fullest";
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> ChangedKeys(
    const std::string& config_text) {
  std::vector<std::pair<std::string, std::string>> changed;
  if (config_text.empty()) return changed;
  config::ConfigSource source;
  source.environment_names = {};
  source.environment = [](const std::string&) { return std::optional<std::string>(); };
  source.text = config_text;
  source.file = "the job's configuration";
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, config::ParseJobConfig(source));
  source.text.clear();
  MW_ASSIGN_OR_RETURN(config::JobConfig usual, config::ParseJobConfig(source));
  usual.optimizer.total_steps = config.train.steps;  // follows from it
  for (const config::ConfigKey& key : config::ConfigKeys()) {
    const std::string value = config::FormatValue(key, config);
    if (value == config::FormatValue(key, usual)) continue;
    changed.emplace_back(fmt::format("{}.{}", key.section, key.name), value);
  }
  return changed;
}

std::string FormatDescription(const JobStory& story, int64_t most_events, int64_t now_unix_ms,
                              bool color) {
  const JobInfo& info = story.info;
  const std::optional<Pace> pace = PaceOf(story, now_unix_ms);
  const auto changed = ChangedKeys(story.request.config_text);
  std::string text = fmt::format("job {} {} {}", info.id, OneLine(info.name),
                                 PaintState(color, client::JobStateName(info.state)));
  if (info.steps > 0) {
    text +=
        fmt::format("  step {} of {} ({:.0f} %)", info.steps_done, info.steps,
                    100.0 * static_cast<double>(info.steps_done) / static_cast<double>(info.steps));
  }
  text += "\n";
  const auto add = [&text](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<12}{}\n", name, OneLine(value));
  };
  add("cause", info.message.empty() || info.reason.empty() ? info.message + info.reason
                                                           : info.reason + ": " + info.message);
  add("session of", info.tool);
  add("owner", changed ? OwnerIn(*changed) : "");
  add("time", TimeText(info, pace, now_unix_ms));
  if (pace) add("loss", LossText(info, *pace));
  add("layout", info.layout);
  const std::string devices = DevicesIn(story.events);
  if (!devices.empty()) add("devices", devices + MemoryText(info));
  add("checkpoints", CheckpointText(story));
  if (const int64_t recoveries = RecoveriesIn(story.events); recoveries > 0) {
    add("recoveries", std::to_string(recoveries));
  }
  add("files", info.directory);
  if (changed && !changed->empty()) text += "configuration, where it is not the default\n";
  if (changed) {
    for (const auto& [name, value] : *changed) {
      if (name != "job.owner" && name != "job.name") {
        text += fmt::format("  {} = {}\n", name, OneLine(value));
      }
    }
  }
  const std::vector<std::string> last = LastOf(story.events, most_events);
  if (!last.empty()) text += "last events\n";
  for (const std::string& event : last) text += fmt::format("  {}\n", OneLine(event));
  return text;
}

std::string DescriptionJson(const JobStory& story, int64_t most_events, int64_t now_unix_ms) {
  nlohmann::ordered_json object = report::JobObject(story.info);
  const std::optional<Pace> pace = PaceOf(story, now_unix_ms);
  const nlohmann::ordered_json none(nullptr);
  object["seconds_per_step"] = pace ? report::NumberOrNull(pace->step_s) : none;
  object["tokens_per_second"] = pace ? report::NumberOrNull(pace->tokens_per_s) : none;
  object["seconds_left"] = pace && pace->left_s ? report::NumberOrNull(*pace->left_s) : none;
  object["devices"] = DevicesIn(story.events);
  object["device_memory_bytes"] = story.info.device_memory_bytes;
  object["device_budget_bytes"] = story.info.device_budget_bytes;
  object["recoveries"] = RecoveriesIn(story.events);
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  const auto changed = ChangedKeys(story.request.config_text);
  if (changed) {
    for (const auto& [name, value] : *changed) keys[name] = value;
  }
  object["configuration"] = keys;  // values as in a job file
  object["events"] = LastOf(story.events, most_events);
  return report::JsonText(object, 2) + "\n";
}

}  // namespace meshwright::cli
