// A pole on a cart that is pushed to the left or to the right: keep it upright.
//
// The state is (place, speed, angle, speed of the angle), in metres, radians and seconds; a push
// lasts 20 ms. Thread rule: values. Source: Barto, Sutton and Anderson, "Neuronlike Adaptive
// Elements That Can Solve Difficult Learning Control Problems", 1983, appendix.
#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace policy_gradient {

inline constexpr int64_t kObserved = 4;
using State = std::array<double, kObserved>;

class CartPole {
 public:
  static constexpr int64_t kActions = 2;  // push to the left, to the right

  // Almost upright, at rest.
  explicit CartPole(std::mt19937_64& random);

  const State& state() const { return state_; }
  // Fallen by more than 12 degrees, or 2.4 m from the start.
  bool fallen() const;
  void Push(int32_t action);

 private:
  State state_;
};

}  // namespace policy_gradient
