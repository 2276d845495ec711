// A convolutional classifier of small images that a client makes and feeds.
//
// Two blocks of convolution, relu and pooling, then a linear layer. The program "test" counts on
// the devices how many images of a batch the model gets right. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "ir/job.h"

namespace image_classifier {

struct Options {
  int64_t steps = 150;
  int64_t batch = 32;         // images per step
  int64_t test_batches = 10;  // after the steps, of images that were not trained on
  uint64_t seed = 1;
  meshwright::ir::DType dtype = meshwright::ir::DType::kF32;
  meshwright::ir::ParallelSpec parallel = meshwright::ir::OpenParallel();
  std::function<void(int64_t step, double loss)> on_step = [](int64_t, double) {};
};

struct Outcome {
  std::vector<double> losses;  // per step
  double accuracy = 0;
};

// Trains and tests. Errors: why the job was refused, or ended.
meshwright::Result<Outcome> Run(meshwright::client::Client& client, const Options& options);

}  // namespace image_classifier
