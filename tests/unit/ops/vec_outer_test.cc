#include "ops/cpu/vec_outer.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace meshwright::ops::cpu {
namespace {

// Small whole numbers, so that sums in any order are the same.
std::vector<float> Whole(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = static_cast<float>(static_cast<int>(random() % 9) - 4);
  return numbers;
}

TEST(VecOuter, EqualsSumsWrittenOutForSizesThatFillNoBlock) {
  const GemmSize sizes[] = {{1, 1, 1},   {5, 15, 3},   {6, 16, 64},  {7, 17, 1},
                            {13, 95, 9}, {8, 48, 128}, {25, 100, 31}};
  for (const GemmSize& size : sizes) {
    for (const bool accumulate : {false, true}) {
      // Rows lie further apart than they are long; what is between them stays as it was.
      const int64_t a_stride = size.m + 3, b_stride = size.n + 1, c_stride = size.n + 5;
      const std::vector<float> a = Whole(size.k * a_stride, 1), b = Whole(size.k * b_stride, 2);
      const std::vector<float> before = Whole(size.m * c_stride, 3);
      std::vector<float> expected = before, c = before;
      for (int64_t i = 0; i < size.m; ++i) {
        for (int64_t j = 0; j < size.n; ++j) {
          float sum = accumulate ? before[static_cast<size_t>(i * c_stride + j)] : 0;
          for (int64_t k = 0; k < size.k; ++k) {
            sum +=
                a[static_cast<size_t>(k * a_stride + i)] * b[static_cast<size_t>(k * b_stride + j)];
          }
          expected[static_cast<size_t>(i * c_stride + j)] = sum;
        }
      }
      VecOuterProduct(size, {a.data(), a_stride, 1}, {b.data(), b_stride, 1},
                      {c.data(), c_stride, 1}, accumulate);
      EXPECT_TRUE(c == expected) << size.m << "x" << size.n << "x" << size.k << " " << accumulate;
    }
  }
}

}  // namespace
}  // namespace meshwright::ops::cpu
