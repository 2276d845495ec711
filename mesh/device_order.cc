#include "mesh/device_order.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

namespace meshwright::mesh {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The run of digits at `at` without leading zeros; moves `at` behind it.
std::string_view DigitRun(const std::string& text, size_t& at) {
  while (at + 1 < text.size() && text[at] == '0' && IsDigit(text[at + 1])) ++at;
  const size_t begin = at;
  while (at < text.size() && IsDigit(text[at])) ++at;
  return std::string_view(text).substr(begin, at - begin);
}

}  // namespace

bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      const std::string_view x = DigitRun(a, i);
      const std::string_view y = DigitRun(b, j);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  const bool a_ended = i == a.size();
  const bool b_ended = j == b.size();
  // Equal up to leading zeros: the plain order decides, so that the order is total.
  if (a_ended && b_ended) return a < b;
  return a_ended;
}

void SortForPlacement(std::vector<Device>& devices) {
  std::map<std::string, int64_t> per_host;
  for (const Device& device : devices) ++per_host[device.host];
  std::sort(devices.begin(), devices.end(), [&](const Device& a, const Device& b) {
    if (a.host != b.host) {
      return std::pair(-per_host[a.host], a.host) < std::pair(-per_host[b.host], b.host);
    }
    if (a.worker != b.worker) return NaturalLess(a.worker, b.worker);
    return a.local_index < b.local_index;
  });
}

}  // namespace meshwright::mesh
