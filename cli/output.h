// Text for people: tables, colours, the lines of a running job. Pure, so that tests compare
// strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/client.h"

namespace meshwright::cli {

// What came from others as one line that changes nothing of what a terminal shows.
std::string OneLine(std::string text);

// --color and NO_COLOR: always, never, or whether stdout is a terminal.
bool UseColor(const std::string& mode);

// color: states are painted.
std::string FormatJobsTable(const std::vector<client::JobInfo>& jobs, int64_t now_unix_ms,
                            bool color = false);
// Without those that commands such as `generate` had for themselves and that have ended: there are
// as many as such commands were called.
std::vector<client::JobInfo> WithoutEndedSessions(std::vector<client::JobInfo> jobs);
// What is said where `count` > 0 of them are left out.
std::string HiddenSessionsNote(size_t count);
// Workers, jobs and devices of the cluster.
std::string FormatStatus(const std::vector<client::WorkerInfo>& workers,
                         const std::vector<client::JobInfo>& jobs, int64_t now_unix_ms,
                         bool color = false);
std::string JobsJson(const std::vector<client::JobInfo>& jobs);
std::string StatusJson(const std::vector<client::WorkerInfo>& workers,
                       const std::vector<client::JobInfo>& jobs);
std::string JobJson(const client::JobInfo& job);
std::string StepJson(const client::StepMetrics& step);
std::string LogJson(const std::string& line);  // {"line":".."}

// "SUCCEEDED in 12.3 s", and why when it did not. One line per fact, indented.
std::string FormatJobEnd(const client::JobInfo& job, bool color = false);

// The name of a job's or a worker's state in its colour: green is well, red has failed, yellow
// waits or is mended.
std::string PaintState(bool color, const std::string& state);

// Of a job that has ended: 0, 4 when it did not fit the cluster, else 1.
int ExitCodeOfJob(const client::JobInfo& job);

// Turns steps into TorchTitan's line, averaged since the last one:
//   step: 10  loss: 8.04  grad_norm: 1.34  memory: 1.02GiB(1.08%)  tps: 27,483  tflops: 1.97
//   mfu: n/a  lr: 3.00e-04  eta: 1m20s
// (one line), and "validate step: 10  loss:  8.1000" where a step was validated, behind which the
// losses of validation sets stand and what else is validated; "accuracy" of a classifier is a field
// of the line. tps and tflops are
// those of the whole job; memory is what the plan takes of the fullest device; mfu is the share of
// what the job's devices reach together, n/a where that is not known. Other fields that are not
// known are left out, and of a terminal's line those that it has no room for, from the right of
// step, loss, accuracy, grad_norm, skipped, tps, eta, lr, mfu, loss_scale, tflops, memory. In
// float16 a step whose gradients were not finite changed nothing: its grad_norm is "skipped".
class StepPrinter {
 public:
  struct Options {
    int64_t steps = 0;          // of the job; 0: unknown, no eta
    int64_t log_every = 1;      // the first and the last step are printed too
    double flops_per_step = 0;  // 0: unknown
    bool color = false;
    bool json = false;  // every step as a JSON line
    int width = 0;      // columns of a line; 0: all fields
  };
  explicit StepPrinter(Options options) : options_(options) {}

  // What the plan says of the job.
  void SetPlanned(const client::JobInfo& job) {
    memory_bytes_ = job.device_memory_bytes;
    memory_budget_bytes_ = job.device_budget_bytes;
    peak_flops_per_s_ = job.peak_flops_per_s;
  }
  // Lines with line ends; "" when nothing is due.
  std::string Add(const client::StepMetrics& step);
  // What of all steps is to be said at the end: how many were skipped; "" where none was.
  std::string Summary() const;

 private:
  struct Field {
    std::string text;
    const char* color;  // "": none
    int rank;           // the highest goes first where there is no room
  };
  std::string Line(const client::StepMetrics& step) const;
  std::string FormatMemory() const;
  void AddRates(std::vector<Field>& fields) const;
  void AddScale(std::vector<Field>& fields) const;

  Options options_;
  double tokens_ = 0;  // since the last line
  double seconds_ = 0;
  int64_t count_ = 0;
  int64_t skipped_ = 0;  // since the last line
  int64_t all_skipped_ = 0;
  double loss_scale_ = 0;  // of the last step; 0: there is none
  int64_t memory_bytes_ = 0;
  int64_t memory_budget_bytes_ = 0;
  double peak_flops_per_s_ = 0;
  bool first_ = true;
};

}  // namespace meshwright::cli
