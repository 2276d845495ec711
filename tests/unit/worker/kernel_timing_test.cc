#include "worker/kernel_timing.h"

#include <gtest/gtest.h>

#include <set>

namespace meshwright::worker {
namespace {

// Time passes only when somebody asks for it: as long for every kernel.
class CountingClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_ += 5'000'000; }
  int64_t UnixMs() const override { return 0; }

 private:
  mutable int64_t now_ns_ = 0;
};

TEST(TimeKernels, RunsEveryKindOnceAndAFewTimes) {
  const auto timings = TimeKernels(1, CountingClock());
  ASSERT_TRUE(timings.has_value()) << timings.error();
  std::set<ir::Op> ops;
  for (size_t i = 0; i < timings->size(); ++i) {
    const KernelTiming& timing = (*timings)[i];
    EXPECT_DOUBLE_EQ(timing.seconds, 5e-3);
    EXPECT_GT(timing.cost.bytes, 0);
    ops.insert(timing.op);
    if (i == 0) continue;
    const KernelTiming& before = (*timings)[i - 1];
    if (before.op == timing.op && before.dtype == timing.dtype) {
      EXPECT_GE(timing.cost.flops, before.cost.flops) << ir::OpName(timing.op);
    }
  }
  EXPECT_EQ(ops, (std::set<ir::Op>{ir::Op::kAdd, ir::Op::kGelu, ir::Op::kEinsum, ir::Op::kAttention,
                                   ir::Op::kHeadLoss, ir::Op::kAdamW, ir::Op::kEmbedding}));
}

TEST(TimeHostCompute, IsAShareOfWhatACoreDoesAlone) {
  for (const int cores : {1, 2}) {
    const auto share = TimeHostCompute(cores, SystemClock());
    ASSERT_TRUE(share.has_value()) << share.error();
    EXPECT_GT(*share, 0);
    EXPECT_LE(*share, 1);
  }
}

TEST(TimeHostStream, CountsTheBytesOfAllCores) {
  constexpr double kBytes = 3 * 4 * (1 << 22);  // of one sum: two read, one written
  for (const int cores : {1, 2}) {
    const auto bytes_per_s = TimeHostStream(cores, CountingClock());
    ASSERT_TRUE(bytes_per_s.has_value()) << bytes_per_s.error();
    EXPECT_DOUBLE_EQ(*bytes_per_s, cores * kBytes / 5e-3);
  }
}

}  // namespace
}  // namespace meshwright::worker
