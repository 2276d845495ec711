#include "sinusoids.h"

#include <cmath>
#include <numbers>
#include <random>

namespace maml {

Tasks SampleTasks(int64_t tasks, int64_t points, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> amplitudes(0.1, 5);
  std::uniform_real_distribution<double> phases(0, std::numbers::pi);
  std::uniform_real_distribution<double> places(-5, 5);
  Tasks sampled;
  for (int64_t task = 0; task < tasks; ++task) {
    const double amplitude = amplitudes(random);
    const double phase = phases(random);
    for (Points* set : {&sampled.support, &sampled.query}) {
      for (int64_t point = 0; point < points; ++point) {
        const double x = places(random);
        set->x.push_back(x);
        set->y.push_back(amplitude * std::sin(x - phase));
      }
    }
  }
  return sampled;
}

}  // namespace maml
