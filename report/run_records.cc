#include "report/run_records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/file_io.h"
#include "base/os_error.h"
#include "base/text.h"
#include "ir/training_flops.h"
#include "report/otlp_spans.h"
#include "report/steps_csv.h"
#include "report/views_json.h"

namespace meshwright::report {
namespace {

using client::StepMetrics;
using formats::EventScalar;

// By which a recorder knows the files of earlier ones.
constexpr const char* kEventFileEnd = ".meshwright";

std::string HostName() {
  char host[256] = "localhost";
  (void)::gethostname(host, sizeof(host) - 1);
  return host;
}

// "2x1x4" -> 8; 0: it is none.
int64_t ProductOf(const std::string& text) {
  int64_t product = 1;
  for (const std::string& factor : Split(text, 'x')) product *= ParseInt(factor).value_or(0);
  return product;
}

Result<UniqueFd> OpenNew(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Fail(OsError(errno, "cannot write " + path));
  return fd;
}

Status RemoveOldEvents(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.rfind("events.out.tfevents.", 0) == 0 &&
                      entry.path().extension().string() == kEventFileEnd;
    if (ours) MW_TRY(RemoveAll(entry.path().string()));
  }
  return OkStatus();
}

}  // namespace

int64_t DevicesOf(const std::string& layout) {
  int64_t devices = 1;
  bool known = false;
  for (const std::string& word : Split(layout, ' ')) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (name == "meshes") {
      int64_t sum = 0;
      for (const std::string& stage : Split(value, ',')) sum += ProductOf(stage);
      return sum;
    }
    if (name == "data" || name == "context" || name == "tensor" || name == "pipeline") {
      devices *= ParseInt(value).value_or(0);
      known = known || name == "data";
    }
  }
  return known ? devices : 0;
}

RunFacts FactsOf(const client::JobInfo& info, const ir::JobRequest& job) {
  RunFacts facts;
  facts.job = info.id;
  facts.name = info.name;
  facts.layout = info.layout;
  facts.begin_unix_s = static_cast<double>(info.started_unix_ms > 0 ? info.started_unix_ms
                                                                    : info.submitted_unix_ms) /
                       1e3;
  facts.submitted_unix_s = static_cast<double>(info.submitted_unix_ms) / 1e3;
  facts.devices = DevicesOf(info.layout);
  facts.flops_per_step = ir::TrainingFlops(job);
  facts.peak_flops_per_s = info.peak_flops_per_s;
  facts.config_text = job.config_text;
  return facts;
}

std::vector<EventScalar> ScalarsOf(const StepMetrics& step, const RunFacts& facts, double tokens) {
  std::vector<EventScalar> scalars;
  const auto add = [&](std::string tag, double value) {
    scalars.push_back({std::move(tag), static_cast<float>(value)});
  };
  add("loss_metrics/global_avg_loss", step.loss);
  if (!std::isnan(step.grad_norm)) add("grad_norm", step.grad_norm);
  if (!std::isnan(step.lr)) add("lr", step.lr);
  if (!std::isnan(step.validation_loss)) add("validation_metrics/loss", step.validation_loss);
  if (step.seconds > 0) {
    const double devices = static_cast<double>(std::max<int64_t>(facts.devices, 1));
    add("throughput(tps)", step.tokens / step.seconds / devices);
    add("time_metrics/end_to_end(s)", step.seconds);
    const double rate = facts.flops_per_step / step.seconds;
    if (rate > 0) add("tflops", rate / devices / 1e12);
    if (rate > 0 && facts.peak_flops_per_s > 0) add("mfu(%)", 100 * rate / facts.peak_flops_per_s);
  }
  add("n_tokens_seen", tokens);
  for (const auto& [name, value] : step.values) add("values/" + name, value);
  return scalars;
}

std::string StepLine(const StepMetrics& step) {
  nlohmann::ordered_json object = StepObject(step);
  if (std::isnan(step.validation_loss)) object.erase("validation_loss");
  for (const auto& [name, value] : step.values) object["values"][name] = NumberOrNull(value);
  return JsonText(object) + "\n";
}

std::string RunFolder(const RunFacts& facts) {
  std::string name;
  for (const char c : facts.name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !name.empty());
    name += plain ? c : '_';
  }
  return fmt::format("{}-{}", name.substr(0, 100), facts.job);
}

void RunRecorder::SetPlanned(const client::JobInfo& info) {
  facts_.layout = info.layout;
  facts_.devices = DevicesOf(info.layout);
  facts_.peak_flops_per_s = info.peak_flops_per_s;
}

bool RunRecorder::Writes(RecordFormat format) const {
  return std::find(formats_.begin(), formats_.end(), format) != formats_.end();
}

Result<std::unique_ptr<RunRecorder>> RunRecorder::Open(const std::string& folder,
                                                       const RunFacts& facts,
                                                       std::vector<RecordFormat> formats) {
  std::unique_ptr<RunRecorder> recorder(
      new RunRecorder(facts, std::move(formats), folder + "/" + RunFolder(facts)));
  MW_TRY(recorder->OpenFiles());
  return recorder;
}

Status RunRecorder::OpenFiles() {
  MW_TRY(MakeDirs(path_));
  if (!facts_.config_text.empty()) {
    MW_TRY(WriteFileAtomic(path_ + "/config.resolved.toml", facts_.config_text));
  }
  if (Writes(RecordFormat::kJsonl)) {
    MW_ASSIGN_OR_RETURN(lines_, OpenNew(path_ + "/metrics.jsonl"));
  }
  if (!Writes(RecordFormat::kTensorBoard)) return OkStatus();
  MW_TRY(RemoveOldEvents(path_));
  const std::string name =
      formats::EventFileName(static_cast<int64_t>(facts_.begin_unix_s), HostName(),
                             fmt::format("{}.0{}", facts_.job, kEventFileEnd));
  MW_ASSIGN_OR_RETURN(events_, OpenNew(path_ + "/" + name));
  const formats::Event version{facts_.begin_unix_s, 0, std::string(formats::kEventFileVersion), {}};
  return WriteAll(events_.get(), formats::FormatEvent(version), path_);
}

Status RunRecorder::Add(const std::vector<StepMetrics>& steps) {
  std::string events, lines;
  for (const StepMetrics& step : steps) {
    ++count_;
    tokens_ += std::isnan(step.tokens) ? 0 : step.tokens;
    seconds_ += std::isnan(step.seconds) ? 0 : step.seconds;
    if (events_.valid()) {
      events += formats::FormatEvent(
          {facts_.begin_unix_s + seconds_, step.step + 1, "", ScalarsOf(step, facts_, tokens_)});
    }
    if (lines_.valid()) lines += StepLine(step);
    if (Writes(RecordFormat::kCsv) || Writes(RecordFormat::kOtlp)) all_.push_back(step);
  }
  if (events_.valid()) MW_TRY(WriteAll(events_.get(), events, path_));
  return lines_.valid() ? WriteAll(lines_.get(), lines, path_) : OkStatus();
}

Status RunRecorder::Finish() {
  if (Writes(RecordFormat::kCsv)) MW_TRY(WriteFileAtomic(path_ + "/metrics.csv", CsvOf(all_)));
  if (!Writes(RecordFormat::kOtlp)) return OkStatus();
  return WriteFileAtomic(path_ + "/traces.jsonl", OtlpOf(facts_, all_));
}

}  // namespace meshwright::report
