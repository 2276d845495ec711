#include "formats/float8.h"

#include <cmath>
#include <limits>

namespace meshwright::formats {
namespace {

struct Float8Form {
  int mantissa_bits;
  int bias;
};

double Finite(uint8_t bits, Float8Form form) {
  const int fraction = bits & ((1 << form.mantissa_bits) - 1);
  const int exponent = (bits & 0x7F) >> form.mantissa_bits;
  const double unit = std::ldexp(1.0, -form.mantissa_bits);
  // Without an exponent the leading 1 is not there.
  const double magnitude = exponent == 0 ? std::ldexp(fraction * unit, 1 - form.bias)
                                         : std::ldexp(1 + fraction * unit, exponent - form.bias);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

double ReadE4M3(uint8_t bits) {
  if ((bits & 0x7F) == 0x7F) return std::numeric_limits<double>::quiet_NaN();
  return Finite(bits, {3, 7});
}

double ReadE5M2(uint8_t bits) {
  if ((bits & 0x7C) != 0x7C) return Finite(bits, {2, 15});
  if ((bits & 3) != 0) return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return (bits & 0x80) != 0 ? -infinity : infinity;
}

}  // namespace

Float8Reader FindFloat8(std::string_view dtype_name) {
  if (dtype_name == "F8_E4M3") return ReadE4M3;
  if (dtype_name == "F8_E5M2") return ReadE5M2;
  return nullptr;
}

}  // namespace meshwright::formats
