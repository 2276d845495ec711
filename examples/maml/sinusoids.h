// Tasks of regression: sinusoids of random amplitude and phase, each known by some points.
//
// Thread rule: pure functions of their arguments. Source: Finn, Abbeel and Levine, "Model-Agnostic
// Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017, section 5.1.
#pragma once

#include <cstdint>
#include <vector>

namespace maml {

// Points [tasks, points] of y = amplitude * sin(x - phase); a task has one amplitude in [0.1, 5]
// and one phase in [0, pi], and x is in [-5, 5].
struct Points {
  std::vector<double> x;
  std::vector<double> y;
};

// Of the same tasks: what the model adapts to, and what it is judged by.
struct Tasks {
  Points support;
  Points query;
};

Tasks SampleTasks(int64_t tasks, int64_t points, uint64_t seed);

}  // namespace maml
