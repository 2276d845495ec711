#include "cart_pole.h"

#include <cmath>
#include <numbers>

namespace policy_gradient {
namespace {

constexpr double kGravity = 9.8;
constexpr double kCartMass = 1;
constexpr double kPoleMass = 0.1;
constexpr double kHalfLength = 0.5;
constexpr double kForce = 10;
constexpr double kSeconds = 0.02;

}  // namespace

CartPole::CartPole(std::mt19937_64& random) {
  std::uniform_real_distribution<double> small(-0.05, 0.05);
  for (double& x : state_) x = small(random);
}

bool CartPole::fallen() const {
  constexpr double kMostAngle = 12 * std::numbers::pi / 180;
  constexpr double kMostPlace = 2.4;
  return std::abs(state_[0]) > kMostPlace || std::abs(state_[2]) > kMostAngle;
}

void CartPole::Push(int32_t action) {
  auto& [place, speed, angle, turning] = state_;
  const double force = action == 1 ? kForce : -kForce;
  const double sine = std::sin(angle);
  const double cosine = std::cos(angle);
  constexpr double kMass = kCartMass + kPoleMass;
  const double pushed = (force + kPoleMass * kHalfLength * turning * turning * sine) / kMass;
  const double inertia = kHalfLength * (4.0 / 3.0 - kPoleMass * cosine * cosine / kMass);
  const double angular = (kGravity * sine - cosine * pushed) / inertia;
  const double linear = pushed - kPoleMass * kHalfLength * angular * cosine / kMass;
  place += kSeconds * speed;
  speed += kSeconds * linear;
  angle += kSeconds * turning;
  turning += kSeconds * angular;
}

}  // namespace policy_gradient
