#pragma once
#include <iterator>
namespace meshwright::controller { constexpr double kStepNoise[] = {1.0, 1.01, 0.99}; }
