// A number of a validation by which a job is judged: the name of one, less is better, or "max:" and
// the name of one of which more is better.
//
//   validation_loss       mean over all tokens of the validation
//   validation/NAME       mean over those of the validation set NAME, or what the trained program
//                         gives out as NAME, summed or averaged over the batches
//
// Thread rule: values, pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright::ir {

struct JobRequest;

inline constexpr char kValidationLoss[] = "validation_loss";
inline constexpr char kValidationPrefix[] = "validation/";

struct Metric {
  std::string name;
  bool more_is_better = false;

  bool Better(double value, double than) const {
    return more_is_better ? value > than : value < than;
  }
  friend bool operator==(const Metric&, const Metric&) = default;
};

Metric ParseMetric(std::string_view text);

// Errors: kInvalidArgument naming the field: the job has no such number, or does not validate.
Status CheckMetric(const JobRequest& job, const char* field, std::string_view metric);
// What the job says of an early end. Errors: the same.
Status CheckEarlyStop(const JobRequest& job);

}  // namespace meshwright::ir
