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

std::string FormatJobsTable(const std::vector<client::JobInfo>& jobs, int64_t now_unix_ms);
// Workers, jobs and devices of the cluster.
std::string FormatStatus(const std::vector<client::WorkerInfo>& workers,
                         const std::vector<client::JobInfo>& jobs, int64_t now_unix_ms);
std::string JobsJson(const std::vector<client::JobInfo>& jobs);
std::string StatusJson(const std::vector<client::WorkerInfo>& workers,
                       const std::vector<client::JobInfo>& jobs);
std::string JobJson(const client::JobInfo& job);
std::string StepJson(const client::StepMetrics& step);
std::string LogJson(const std::string& line);  // {"line":".."}

// "SUCCEEDED in 12.3 s", and why when it did not. One line per fact, indented.
std::string FormatJobEnd(const client::JobInfo& job);

// Of a job that has ended: 0, 4 when it did not fit the cluster, else 1.
int ExitCodeOfJob(const client::JobInfo& job);

// Turns steps into TorchTitan's line, averaged since the last one:
//   step: 10  loss: 8.04  grad_norm: 1.34  memory: 1.02GiB(1.08%)  tps: 27,483  tflops: 1.97
//   mfu: n/a  lr: 3.00e-04  eta: 1m20s
// (one line), and "validate step: 10  loss:  8.1000" where a step was validated. tps and tflops are
// those of the whole job; memory is what the plan takes of the fullest device; mfu is the share of
// what the job's devices reach together, n/a where that is not known. Other fields that are not
// known are left out.
class StepPrinter {
 public:
  struct Options {
    int64_t steps = 0;          // of the job; 0: unknown, no eta
    int64_t log_every = 1;      // the first and the last step are printed too
    double flops_per_step = 0;  // 0: unknown
    bool color = false;
    bool json = false;  // every step as a JSON line
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

 private:
  std::string Line(const client::StepMetrics& step) const;
  std::string FormatMemory() const;

  Options options_;
  double tokens_ = 0;  // since the last line
  double seconds_ = 0;
  int64_t count_ = 0;
  int64_t memory_bytes_ = 0;
  int64_t memory_budget_bytes_ = 0;
  double peak_flops_per_s_ = 0;
  bool first_ = true;
};

}  // namespace meshwright::cli
