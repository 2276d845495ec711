#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/table.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/args.h"
#include "ir/metric.h"
#include "mesh/device_profile.h"

namespace meshwright::cli {
namespace {

using client::JobInfo;
using client::JobState;
using client::WorkerInfo;

constexpr std::string_view kReset = "\x1b[0m";

std::string Paint(bool color, std::string_view code, const std::string& text) {
  return color ? fmt::format("\x1b[{}m{}{}", code, text, kReset) : text;
}

// `table` with the words below STATE painted, which are `states`, a row each.
std::string PaintStates(const std::string& table, const std::vector<std::string>& states) {
  const std::vector<std::string> lines = Split(table, '\n');
  const size_t column = lines.front().find("  STATE");
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line = lines[i];
    if (i > 0 && i <= states.size()) {
      const std::string& state = states[i - 1];
      const size_t at = line.find("  " + state, column);
      if (at != std::string::npos) line.replace(at + 2, state.size(), PaintState(true, state));
    }
    text += line + (i + 1 < lines.size() ? "\n" : "");
  }
  return text;
}

std::string Age(int64_t from_unix_ms, int64_t to_unix_ms) {
  if (from_unix_ms <= 0) return "-";
  return FormatDuration(static_cast<double>(std::max<int64_t>(to_unix_ms - from_unix_ms, 0)) / 1e3);
}

int64_t EndOr(const JobInfo& job, int64_t now_unix_ms) {
  return job.ended_unix_ms > 0 ? job.ended_unix_ms : now_unix_ms;
}

// Three significant digits and no exponent: "12.3", "0.00123".
std::string ThreeDigits(double value) {
  const int magnitude = value > 0 ? static_cast<int>(std::floor(std::log10(value))) : 0;
  return fmt::format("{:.{}f}", value, std::clamp(2 - magnitude, 0, 12));
}

std::string DashIfEmpty(const std::string& text) { return text.empty() ? "-" : text; }

// "98 GF/s, 11 GB/s": what a device reaches in f32, and the rate of its memory.
std::string SpeedText(const WorkerInfo& worker) {
  const auto profile = mesh::ParseDeviceProfile(worker.device_profile);
  if (!profile) return DashIfEmpty(worker.device_name);
  return fmt::format("{:.0f} GF/s, {:.0f} GB/s", profile->PeakOf(ir::DType::kF32) / 1e9,
                     profile->Rates(mesh::KernelClass::kElementwise).bytes_per_s / 1e9);
}

std::vector<std::string> WorkerRow(const WorkerInfo& worker) {
  return {worker.name,
          worker.state,
          fmt::format("{}/{}", worker.busy_devices, worker.devices),
          FormatBytes(worker.memory_bytes),
          DashIfEmpty(worker.device_kind),
          SpeedText(worker),
          fmt::format("{:.1f} s", worker.last_seen_s),
          DashIfEmpty(worker.address),
          DashIfEmpty(worker.metrics_address)};
}

}  // namespace

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Printable(text);
}

bool UseColor(const std::string& mode) {
  if (mode == "always") return true;
  const char* no_color = std::getenv("NO_COLOR");
  if (mode == "never" || (no_color != nullptr && *no_color != '\0')) return false;
  return ::isatty(STDOUT_FILENO) == 1;
}

std::string PaintState(bool color, const std::string& state) {
  static const std::map<std::string, std::string_view> codes = {
      {"SUCCEEDED", "32"}, {"RUNNING", "32"},    {"READY", "32"},  {"FAILED", "31"},
      {"LOST", "31"},      {"CANCELLED", "35"},  {"QUEUED", "33"}, {"PLANNING", "36"},
      {"STARTING", "36"},  {"RECOVERING", "33"}, {"PAUSED", "34"}};
  const auto known = codes.find(state);
  return Paint(color, known == codes.end() ? "33" : known->second, state);
}

namespace {

// A job that goes on from a checkpoint has steps, and no loss before it has done one.
bool HasLoss(const JobInfo& job) { return job.steps_done > 0 && job.loss != 0; }

}  // namespace

std::string FormatJobsTable(const std::vector<JobInfo>& jobs, int64_t now_unix_ms, bool color) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> states;
  for (const JobInfo& job : jobs) {
    rows.push_back({std::to_string(job.id), job.name, client::JobStateName(job.state),
                    fmt::format("{}/{}", job.steps_done, job.steps),
                    HasLoss(job) ? fmt::format("{:.4f}", job.loss) : "-",
                    Age(job.submitted_unix_ms, now_unix_ms),
                    Age(job.started_unix_ms, EndOr(job, now_unix_ms)), DashIfEmpty(job.reason)});
    states.emplace_back(client::JobStateName(job.state));
  }
  const std::string table =
      FormatTable({"ID", "NAME", "STATE", "STEP", "LOSS", "AGE", "RUNTIME", "REASON"}, rows);
  return color ? PaintStates(table, states) : table;
}

std::vector<JobInfo> WithoutEndedSessions(std::vector<JobInfo> jobs) {
  std::erase_if(
      jobs, [](const JobInfo& job) { return !job.tool.empty() && client::IsTerminal(job.state); });
  return jobs;
}

std::string HiddenSessionsNote(size_t count) {
  return fmt::format(
      "{} ended {} of generate, predict and the like {} left out; all: meshwright "
      "jobs --all",
      count, count == 1 ? "session" : "sessions", count == 1 ? "is" : "are");
}

std::string FormatStatus(const std::vector<WorkerInfo>& workers, const std::vector<JobInfo>& jobs,
                         int64_t now_unix_ms, bool color) {
  int64_t ready = 0;
  int64_t devices = 0;
  int64_t busy = 0;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> states;
  for (const WorkerInfo& worker : workers) {
    rows.push_back(WorkerRow(worker));
    states.push_back(worker.state);
    if (worker.state != "READY") continue;
    ++ready;
    devices += worker.devices;
    busy += worker.busy_devices;
  }
  std::string text = fmt::format("Workers  {} ready of {}\nDevices  {} busy of {}\n\n", ready,
                                 workers.size(), busy, devices);
  const std::string table = FormatTable(
      {"NAME", "STATE", "BUSY", "MEMORY", "DEVICE", "SPEED", "SEEN", "ADDRESS", "METRICS"}, rows);
  text += rows.empty() ? "(no workers)\n" : color ? PaintStates(table, states) : table;
  std::vector<JobInfo> active;
  for (const JobInfo& job : jobs) {
    if (!client::IsTerminal(job.state)) active.push_back(job);
  }
  text += "\nActive jobs\n";
  text += active.empty() ? "(no active jobs)\n" : FormatJobsTable(active, now_unix_ms, color);
  // What stands still or is slow is said while it runs (docs/recovery.md).
  for (const JobInfo& job : active) {
    if (job.state != JobState::kRunning || job.message.empty()) continue;
    text += fmt::format("\njob {}: {}\n", job.id, OneLine(job.message));
  }
  return text;
}

std::string FormatJobEnd(const JobInfo& job, bool color) {
  std::string text = fmt::format("job {} {} {} after {} steps, {}\n", job.id, OneLine(job.name),
                                 PaintState(color, client::JobStateName(job.state)), job.steps_done,
                                 Age(job.started_unix_ms, job.ended_unix_ms));
  if (!job.message.empty()) {
    text += fmt::format("  cause    {}{}\n", job.reason.empty() ? "" : OneLine(job.reason) + ": ",
                        OneLine(job.message));
  }
  if (!job.layout.empty()) text += fmt::format("  layout   {}\n", OneLine(job.layout));
  if (job.state == JobState::kSucceeded && HasLoss(job)) {
    text += fmt::format("  loss     {:.4f}\n", job.loss);
  } else if (job.state == JobState::kSucceeded && job.steps_done > 0 && job.tool.empty()) {
    text += "  loss     0, or none: no step was left to do (training.steps says how far to go)\n";
  }
  if (!job.directory.empty()) text += fmt::format("  files    {}\n", job.directory);
  return text;
}

int ExitCodeOfJob(const JobInfo& job) {
  if (job.state == JobState::kSucceeded) return kExitOk;
  return job.reason == "Infeasible" ? kExitDoesNotFit : kExitJobFailed;
}

namespace {

constexpr const char* kAccuracy = "accuracy";

// "  accuracy: 0.8750  chats: 2.1000": the losses of sets, and what else the model says of them.
std::string ValidationValues(const client::StepMetrics& step) {
  std::string text;
  for (const auto& [name, value] : step.values) {
    if (!name.starts_with(ir::kValidationPrefix)) continue;
    text +=
        fmt::format("  {}: {:.4f}",
                    OneLine(name.substr(std::string_view(ir::kValidationPrefix).size())), value);
  }
  return text;
}

}  // namespace

std::string StepPrinter::Line(const client::StepMetrics& step) const {
  const bool skipped = loss_scale_ > 0 && !std::isfinite(step.grad_norm);
  std::vector<Field> fields = {
      {fmt::format("step: {:>4}", step.step + 1), "31", 0},
      {fmt::format("loss: {:>8.4f}", step.loss), "32", 1},
      {skipped ? "grad_norm:  skipped" : fmt::format("grad_norm: {:>8.4f}", step.grad_norm), "34",
       2}};
  if (const auto right = step.values.find(kAccuracy); right != step.values.end()) {
    fields.push_back({fmt::format("accuracy: {:.4f}", right->second), "33", 2});
  }
  if (memory_bytes_ > 0) fields.push_back({FormatMemory(), "35", 10});
  AddRates(fields);
  fields.push_back({fmt::format("lr: {:.2e}", step.lr), "", 6});
  AddScale(fields);
  const int64_t left = options_.steps - step.step - 1;
  if (options_.steps > 0 && left > 0 && seconds_ > 0) {
    const double step_s = seconds_ / static_cast<double>(count_);
    fields.push_back({"eta: " + FormatDuration(step_s * static_cast<double>(left)), "", 5});
  }
  const auto columns = [&fields] {
    size_t sum = 2 * (fields.size() - 1);
    for (const Field& field : fields) sum += field.text.size();
    return sum;
  };
  while (options_.width > 0 && fields.size() > 1 &&
         columns() > static_cast<size_t>(options_.width)) {
    fields.erase(std::max_element(fields.begin(), fields.end(),
                                  [](const Field& a, const Field& b) { return a.rank < b.rank; }));
  }
  std::string line;
  for (const Field& field : fields) {
    line += (line.empty() ? "" : "  ") +
            Paint(options_.color && *field.color != '\0', field.color, field.text);
  }
  return line + "\n";
}

void StepPrinter::AddRates(std::vector<Field>& fields) const {
  if (seconds_ <= 0) return;
  fields.push_back(
      {fmt::format("tps: {:>7}", FormatCount(std::llround(tokens_ / seconds_))), "", 4});
  if (options_.flops_per_step <= 0) return;
  const double rate = options_.flops_per_step * static_cast<double>(count_) / seconds_;
  fields.push_back({fmt::format("tflops: {:.4f}", rate / 1e12), "36", 9});
  const bool known = peak_flops_per_s_ > 0;
  fields.push_back(
      {known ? fmt::format("mfu: {:.1f}%", 100 * rate / peak_flops_per_s_) : "mfu: n/a", "", 7});
}

void StepPrinter::AddScale(std::vector<Field>& fields) const {
  if (skipped_ > 0) fields.push_back({fmt::format("skipped: {}", skipped_), "33", 3});
  if (loss_scale_ > 0) fields.push_back({fmt::format("loss_scale: {:.6g}", loss_scale_), "", 8});
}

std::string StepPrinter::Summary() const {
  if (all_skipped_ == 0) return "";
  return fmt::format(
      "  skipped  {} step{} whose gradients were beyond float16; the loss scale is {:.6g} now\n",
      all_skipped_, all_skipped_ == 1 ? "" : "s", loss_scale_);
}

std::string StepPrinter::FormatMemory() const {
  const double gib = static_cast<double>(memory_bytes_) / (1 << 30);
  if (memory_budget_bytes_ <= 0) return fmt::format("memory: {}GiB", ThreeDigits(gib));
  const double share =
      static_cast<double>(memory_bytes_) / static_cast<double>(memory_budget_bytes_);
  return fmt::format("memory: {}GiB({}%)", ThreeDigits(gib), ThreeDigits(100 * share));
}

std::string StepPrinter::Add(const client::StepMetrics& step) {
  if (options_.json) return StepJson(step) + "\n";
  if (const auto scale = step.values.find("loss_scale"); scale != step.values.end()) {
    loss_scale_ = scale->second;
    if (!std::isfinite(step.grad_norm)) ++skipped_, ++all_skipped_;
  }
  tokens_ += step.tokens;
  seconds_ += step.seconds;
  ++count_;
  const bool due = first_ || (step.step + 1) % std::max<int64_t>(options_.log_every, 1) == 0 ||
                   step.step + 1 == options_.steps;
  std::string text;
  if (due) {
    text = Line(step);
    first_ = false;
    tokens_ = seconds_ = 0;
    count_ = skipped_ = 0;
  }
  if (!std::isnan(step.validation_loss)) {
    text += Paint(options_.color, "33",
                  fmt::format("validate step: {:>4}  loss: {:>8.4f}{}", step.step + 1,
                              step.validation_loss, ValidationValues(step))) +
            "\n";
  }
  return text;
}

}  // namespace meshwright::cli
