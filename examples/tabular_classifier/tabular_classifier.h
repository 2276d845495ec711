// A classifier of rows of numbers: an MLP that a client feeds with rows of a table.
//
// One program is trained ("step"), one answers ("predict"); both have the same weights. Some rows
// are held back: how many of them "predict" gets right is the accuracy. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "ir/job.h"
#include "table.h"

namespace tabular_classifier {

struct Options {
  int64_t steps = 400;
  int64_t batch = 32;  // rows per step
  uint64_t seed = 1;
  meshwright::ir::DType dtype = meshwright::ir::DType::kF32;
  meshwright::ir::ParallelSpec parallel = meshwright::ir::OpenParallel();
  std::function<void(int64_t step, double loss)> on_step = [](int64_t, double) {};
};

struct Outcome {
  std::vector<double> losses;  // per step
  double accuracy = 0;         // of the rows that were held back: each fifth
};

// Trains on `table` and tests. Errors: kInvalidArgument: less than five rows; why the job ended.
meshwright::Result<Outcome> Run(meshwright::client::Client& client, const Table& table,
                                const Options& options);

}  // namespace tabular_classifier
