// Judge: what a validation is worth: whether it is the best so far, and whether so many behind the
// best were no better that the job is to end.
//
// A step that is validated once more, by a later run of the job, is judged as it was. Thread rule:
// one thread. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/job.h"
#include "ir/metric.h"
#include "proto/messages.h"

namespace meshwright::controller {

// What is remembered of the validations before. Steps count from 0; below 0: there was none.
struct JudgedSoFar {
  double best = 0;
  int64_t best_step = -1;
  double least = 0;  // by the metric of the early stop
  int64_t least_step = -1;
  int64_t worse = 0;  // validations in a row since then
  int64_t last_step = -1;
  friend bool operator==(const JudgedSoFar&, const JudgedSoFar&) = default;
};

struct Verdict {
  bool best = false;
  bool ends = false;
};

class Judge {
 public:
  // None where the job neither keeps its best save nor stops early.
  static std::optional<Judge> Of(const ir::JobRequest& job);

  // `metrics`: of a step with its validation.
  Verdict Of(const proto::StepMetrics& metrics);
  void Remember(const JudgedSoFar& standing) { standing_ = standing; }
  const JudgedSoFar& standing() const { return standing_; }

 private:
  std::optional<ir::Metric> best_;
  std::optional<ir::Metric> stop_;
  int64_t patience_ = 0;
  JudgedSoFar standing_;
};

}  // namespace meshwright::controller
