#include "ops/cpu/vec_few.h"

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

TEST(VecFew, EqualsSumsWrittenOutForSizesThatFillNoBlock) {
  const GemmSize sizes[] = {{1, 1, 1},     {5, 15, 3},    {6, 16, 64},   {7, 17, 1},
                            {13, 95, 9},   {17, 48, 128}, {33, 100, 31}, {64, 96, 40},
                            {100, 145, 5}, {128, 50, 33}, {48, 191, 17}, {3, 5, 0}};
  for (const GemmSize& size : sizes) {
    for (const bool along : {false, true}) {
      // Rows lie further apart than they are long; what is between them stays as it was.
      const int64_t a_stride = size.k + 3, c_stride = size.n + 5;
      const ConstMatrix at =
          along ? ConstMatrix{nullptr, size.n + 1, 1} : ConstMatrix{nullptr, 1, size.k + 1};
      const std::vector<float> a = Whole(size.m * a_stride, 1);
      const std::vector<float> b = Whole((size.n + 1) * (size.k + 1), 2);
      const std::vector<float> before = Whole(size.m * c_stride, 3);
      std::vector<float> expected = before, c = before;
      for (int64_t i = 0; i < size.m; ++i) {
        for (int64_t j = 0; j < size.n; ++j) {
          float sum = 0;
          for (int64_t k = 0; k < size.k; ++k) {
            sum += a[static_cast<size_t>(i * a_stride + k)] *
                   b[static_cast<size_t>(k * at.row_stride + j * at.column_stride)];
          }
          expected[static_cast<size_t>(i * c_stride + j)] = sum;
        }
      }
      VecFewRows(size, {a.data(), a_stride, 1}, {b.data(), at.row_stride, at.column_stride},
                 {c.data(), c_stride, 1});
      EXPECT_TRUE(c == expected) << size.m << "x" << size.n << "x" << size.k << " " << along;
    }
  }
}

}  // namespace
}  // namespace meshwright::ops::cpu
