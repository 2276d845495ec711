#include "tests/e2e/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/safetensors.h"

namespace meshwright::testing {

Result<Weights> ReadWeights(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const auto file, formats::SafetensorsFile::Open(path));
  Weights weights;
  for (const formats::SafetensorsEntry& entry : file->entries()) {
    const auto bytes = file->data(entry);
    const size_t element = entry.dtype_name == "F64" ? sizeof(double) : sizeof(float);
    std::vector<double>& values = weights[entry.name];
    for (size_t at = 0; at < bytes.size(); at += element) {
      double wide = 0;
      float narrow = 0;
      std::memcpy(element == sizeof(double) ? static_cast<void*>(&wide) : &narrow,
                  bytes.data() + at, element);
      values.push_back(element == sizeof(double) ? wide : narrow);
    }
  }
  return weights;
}

void ExpectWeightsNear(const Weights& expected, const Weights& actual, double tolerance,
                       const std::string& layout) {
  ASSERT_EQ(actual.size(), expected.size()) << layout;
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    ASSERT_TRUE(found != actual.end()) << layout << " has no " << name;
    ASSERT_EQ(found->second.size(), values.size()) << layout << " " << name;
    double largest = 0;
    double difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      difference = std::max(difference, std::abs(values[i] - found->second[i]));
    }
    EXPECT_LE(difference, tolerance * largest) << layout << " " << name;
  }
}

}  // namespace meshwright::testing
