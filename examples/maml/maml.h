// MAML on sinusoids: weights from which one step of gradient descent on a few points of a new task
// gives a good model of that task.
//
// The step is part of the loss graph: every task of the batch has its own copy of the weights,
// Builder::Grad gives the slope of the support points' error, and the error of the query points
// with the adapted weights is what "step" trains, through the slope. Thread rule: one thread.
// Source: Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep
// Networks", ICML 2017, algorithm 2.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "ir/job.h"

namespace maml {

struct Options {
  int64_t steps = 1000;
  int64_t tasks = 16;   // per step
  int64_t points = 10;  // of a task, of either kind
  double inner_lr = 0.02;
  uint64_t seed = 1;
  meshwright::ir::DType dtype = meshwright::ir::DType::kF32;
  meshwright::ir::ParallelSpec parallel = meshwright::ir::OpenParallel();
  std::function<void(int64_t step, double loss)> on_step = [](int64_t, double) {};
};

// Mean squared errors on the query points of new tasks.
struct Errors {
  double unadapted = 0;  // of the weights as they are
  double adapted = 0;    // after a step on the support points
};

struct Outcome {
  std::vector<double> losses;  // per step
  Errors before;               // the training
  Errors after;
};

// Tests, trains and tests again. Errors: why the job was refused, or ended.
meshwright::Result<Outcome> Run(meshwright::client::Client& client, const Options& options);

}  // namespace maml
