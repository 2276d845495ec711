// The records of a run, for the tools that people compare runs with: TensorBoard, pandas, a
// spreadsheet.
//
//   tensorboard  an event file (formats/event_file.h) with TorchTitan's tags, steps from 1:
//                  loss_metrics/global_avg_loss  grad_norm  lr  validation_metrics/loss
//                  throughput(tps)  tokens per second and device
//                  tflops, mfu(%)   per device, where they are known
//                  time_metrics/end_to_end(s)  n_tokens_seen
//                  values/NAME      what the job's own programs report
//   jsonl        an object per step, steps from 0, as the controller's metrics.jsonl and -o json
//   csv          the same as a table; a field that a step lacks is empty
//   otlp         spans for OpenTelemetry (report/otlp_spans.h)
//
// The controller keeps no time of a step: the wall time of an event is when the job began plus the
// seconds of its steps so far, without what it waited in between.
//
// Thread rule: values; a RunRecorder by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "client/client.h"
#include "formats/event_file.h"
#include "ir/job.h"

namespace meshwright::report {

enum class RecordFormat : uint8_t { kTensorBoard, kJsonl, kCsv, kOtlp };

// What is known of a run beside its steps.
struct RunFacts {
  int64_t job = 0;
  std::string name;
  std::string layout;
  double begin_unix_s = 0;
  double submitted_unix_s = 0;  // 0: not known
  int64_t devices = 0;          // 0: not known
  double flops_per_step = 0;    // of all devices together; 0: not known
  double peak_flops_per_s = 0;
  std::string config_text;  // the resolved configuration; empty: a client's own job
};

// Of a layout as the controller says it ("data=2 tensor=1 pipeline=2 ..."); 0: it does not say.
int64_t DevicesOf(const std::string& layout);
RunFacts FactsOf(const client::JobInfo& info, const ir::JobRequest& job);

// tokens: of the run so far, this step's included.
std::vector<formats::EventScalar> ScalarsOf(const client::StepMetrics& step, const RunFacts& facts,
                                            double tokens);
std::string StepLine(const client::StepMetrics& step);  // with its line end

// "gpt-3": the folder of a run below that of all records; what may be in no file name is "_".
std::string RunFolder(const RunFacts& facts);

// Writes the records of one run as they come, each readable at once. What an earlier one wrote of
// the same run is replaced.
class RunRecorder {
 public:
  // Makes <folder>/<RunFolder> and its files; config.resolved.toml, too, where it is known. Errors:
  // those of base/file.h.
  static Result<std::unique_ptr<RunRecorder>> Open(const std::string& folder, const RunFacts& facts,
                                                   std::vector<RecordFormat> formats);

  // Steps in the order in which they came. Errors: those of writing.
  Status Add(const std::vector<client::StepMetrics>& steps);
  // Of csv, whose columns are those of all steps, and otlp, whose first span is as long as all of
  // them: they are written here.
  Status Finish();
  // By which plan it goes on: after a failure it may be another one.
  void SetPlanned(const client::JobInfo& info);

  const std::string& path() const { return path_; }  // of the run's folder
  int64_t steps() const { return count_; }

 private:
  RunRecorder(RunFacts facts, std::vector<RecordFormat> formats, std::string path)
      : facts_(std::move(facts)), formats_(std::move(formats)), path_(std::move(path)) {}
  bool Writes(RecordFormat format) const;
  Status OpenFiles();

  RunFacts facts_;
  const std::vector<RecordFormat> formats_;
  const std::string path_;
  UniqueFd events_, lines_;
  std::vector<client::StepMetrics> all_;  // of csv and otlp
  int64_t count_ = 0;
  double tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace meshwright::report
