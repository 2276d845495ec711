// A plan's time is one for all that look for it. The clocks are the tests' own: nothing is timed.
#include "search/search_time.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "search/choose_memory.h"
#include "search/choose_overlap.h"
#include "search/find_layout.h"
#include "search/least_memory.h"
#include "tests/fake_clock.h"
#include "tests/ticking_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

ir::JobRequest WithOpenMemories(ir::JobRequest job) {
  job.parallel.optimizer_memory = job.parallel.weights_memory = "auto";
  job.parallel.gradients_memory = job.parallel.activations_memory = "auto";
  return job;
}

mesh::Topology Devices(int count, int64_t memory_bytes) {
  mesh::Topology topology = mesh::Topology::Local(count);
  for (mesh::Device& device : topology.devices) device.memory_bytes = memory_bytes;
  return topology;
}

TEST(SearchTime, PartsAreOfWhatIsLeft) {
  FakeClock clock;
  const SearchTime time(100, 300, clock);
  EXPECT_FALSE(time.is_part());
  EXPECT_FALSE(time.OneOf(1).is_part());
  const SearchTime third = time.OneOf(3);
  EXPECT_TRUE(third.is_part());
  EXPECT_EQ(third.left_ms(true), 33);
  EXPECT_EQ(third.left_ms(false), 100);
  EXPECT_EQ(time.ForBetter().left_ms(false), 100);
  clock.AdvanceMs(100);
  EXPECT_TRUE(time.IsOver(true));
  EXPECT_FALSE(time.IsOver(false));
  EXPECT_EQ(time.left_ms(), 200);
  EXPECT_EQ(time.OneOf(2).left_ms(false), 100);
}

// Each of the 36 choices of memories takes all that it is given, and none is asked behind the end.
TEST(SearchTime, FartherMemoriesShareIt) {
  FakeClock clock;
  constexpr int64_t kAnyMs = 1'000'000;
  const SearchTime time(kAnyMs, kAnyMs, clock);
  std::vector<int64_t> parts;
  const FindOnDevices find = [&](const ir::JobRequest&, const mesh::Topology&,
                                 const SearchTime& own) -> Result<FoundPlan> {
    parts.push_back(own.left_ms(false));
    clock.AdvanceMs(own.left_ms(false));
    return Fail(ResourceExhausted("too large"));
  };
  const auto found = FindInMemories(WithOpenMemories(OpenJob()), Devices(1, 1 << 20), time, find);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(clock.NowMs(), kAnyMs) << "what one does not take the next ones have";
  EXPECT_EQ(parts.size(), 36u);
  EXPECT_EQ(parts.front(), kAnyMs / 2);
  EXPECT_EQ(parts[1], kAnyMs / 4 / 4) << "of the four of the next distance";
}

// One that goes on for longer than it may is the last one.
TEST(SearchTime, NothingIsTriedBehindItsEnd) {
  FakeClock clock;
  const SearchTime time(10, 10, clock);
  int asked = 0;
  const FindOnDevices find = [&](const ir::JobRequest&, const mesh::Topology&,
                                 const SearchTime&) -> Result<FoundPlan> {
    ++asked;
    clock.AdvanceMs(11);
    return Fail(ResourceExhausted("too large"));
  };
  const auto far = FindInMemories(WithOpenMemories(OpenJob()), Devices(1, 1 << 20), time, find);
  ASSERT_FALSE(far.has_value());
  EXPECT_EQ(asked, 1);
  EXPECT_NE(far.error().message().find("the time was over before farther memories were tried"),
            std::string::npos)
      << far.error();
  // Collectives in their turn instead of beside what computes.
  mesh::Topology cores = Devices(2, 1 << 20);
  cores.hosts[cores.devices[0].host].cores = 8;
  asked = 0;
  EXPECT_FALSE(FindWithOverlap(OpenJob(), cores, SearchTime(10, 10, clock), find).has_value());
  EXPECT_EQ(asked, 1);
  // Layouts whose programs do not fit.
  std::vector<LayoutCost> layouts(5);
  asked = 0;
  const auto make = [&](const planner::Layout&) -> Result<planner::Plan> {
    ++asked;
    clock.AdvanceMs(11);
    return Fail(ResourceExhausted("too large"));
  };
  EXPECT_FALSE(FirstThatHasAPlan(layouts, make, SearchTime(10, 10, clock)).has_value());
  EXPECT_EQ(asked, 1);
}

// Of all searches, with memories and shardings open and where nothing or little fits.
TEST(SearchTime, EndsAPlanWhoseMemoriesAreOpen) {
  const ir::JobRequest job = WithOpenMemories(OpenJob());
  const int64_t state = LeastStateBytes(OpenJob());
  FindOptions options;
  options.timeout_ms = 20;
  options.patience_ms = 40;
  for (const int64_t bytes : {state / 100, state / 12, state / 4 + state / 100}) {
    for (const char* const shardings : {"rules", "search"}) {
      ir::JobRequest asked = job;
      asked.parallel.shardings = shardings;
      const TickingClock clock;
      const auto found = FindPlan(asked, Devices(4, bytes), options, clock);
      // Behind the end each of those that were begun looks at the clock a few times.
      EXPECT_LE(clock.NowMs(), 3 * options.patience_ms)
          << bytes << " bytes, " << shardings << ": "
          << (found.has_value() ? "a plan" : found.error().message());
    }
  }
}

}  // namespace
}  // namespace meshwright::search
