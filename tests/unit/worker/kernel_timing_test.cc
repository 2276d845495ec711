#include "worker/kernel_timing.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/scale.h"

namespace meshwright::worker {
namespace {

// Time passes only when somebody asks for it, each thread for itself: as long for every kernel.
class CountingClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_ += 5'000'000; }
  int64_t UnixMs() const override { return 0; }

 private:
  static thread_local int64_t now_ns_;
};
thread_local int64_t CountingClock::now_ns_ = 0;

class Undisturbed final : public CoreMeter {
  int64_t ThreadNs() const override { return 0; }
  int64_t ThreadInterruptions() const override { return 0; }
  int64_t ProcessInterruptions() const override { return 0; }
};

TEST(TimeMachine, RunsEveryKindOnceAndAFewTimes) {
  const auto machine = TimeMachine({.threads = 1}, CountingClock(), Undisturbed());
  ASSERT_TRUE(machine.has_value()) << machine.error();
  EXPECT_EQ(machine->host_bytes_per_s, 0);
  EXPECT_EQ(machine->host_compute_share, 0);
  const std::vector<KernelTiming>& timings = machine->kernels;
  std::set<ir::Op> ops;
  for (size_t i = 0; i < timings.size(); ++i) {
    const KernelTiming& timing = timings[i];
    EXPECT_DOUBLE_EQ(timing.seconds, 5e-3);
    EXPECT_GT(timing.cost.bytes, 0);
    ops.insert(timing.op);
    if (i == 0) continue;
    const KernelTiming& before = timings[i - 1];
    if (before.op == timing.op && before.dtype == timing.dtype) {
      EXPECT_GE(timing.cost.flops, before.cost.flops) << ir::OpName(timing.op);
    }
  }
  EXPECT_EQ(ops, (std::set<ir::Op>{ir::Op::kAdd, ir::Op::kGelu, ir::Op::kEinsum, ir::Op::kAttention,
                                   ir::Op::kHeadLoss, ir::Op::kAdamW, ir::Op::kEmbedding}));
}

TEST(TimeMachine, CountsTheBytesOfAllCores) {
  constexpr double kBytes = 3 * 4 * (1 << 22);  // of one sum: two read, one written
  for (const int cores : {1, 2}) {
    const auto machine =
        TimeMachine({.threads = 1, .host_cores = cores}, CountingClock(), Undisturbed());
    ASSERT_TRUE(machine.has_value()) << machine.error();
    EXPECT_DOUBLE_EQ(machine->host_bytes_per_s, cores * kBytes / 5e-3);
    EXPECT_DOUBLE_EQ(machine->host_compute_share, 1);
  }
}

TEST(TimeMachine, MeasuresThisMachine) {
  if (kSanitizedBuild) GTEST_SKIP() << "slices of time are too short for slow kernels";
  const auto machine = TimeMachine({.threads = 2, .host_cores = 2}, SystemClock());
  ASSERT_TRUE(machine.has_value()) << machine.error();
  for (const KernelTiming& timing : machine->kernels) EXPECT_GT(timing.seconds, 0);
  EXPECT_GT(machine->host_bytes_per_s, 0);
  EXPECT_GT(machine->host_compute_share, 0);
  EXPECT_LE(machine->host_compute_share, 1);
}

}  // namespace
}  // namespace meshwright::worker
