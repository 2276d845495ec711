#include "worker/core_share.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace meshwright::worker {
namespace {

TEST(CoreMeter, CountsTheTimeThatTheThreadHasTheCore) {
  const CoreMeter& meter = SystemCoreMeter();
  const int64_t begin_ns = meter.ThreadNs();
  constexpr int64_t kWorkNs = 5'000'000;
  while (meter.ThreadNs() - begin_ns < kWorkNs) {
  }
  const int64_t worked_ns = meter.ThreadNs();
  const int64_t begin_wall_ns = SystemClock().NowNs();
  ::poll(nullptr, 0, 20);  // has no core meanwhile
  EXPECT_LT(meter.ThreadNs() - worked_ns, SystemClock().NowNs() - begin_wall_ns);
  const int64_t of_thread = meter.ThreadInterruptions();
  EXPECT_GE(meter.ProcessInterruptions(), of_thread);
}

}  // namespace
}  // namespace meshwright::worker
