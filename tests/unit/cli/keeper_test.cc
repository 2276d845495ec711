#include "cli/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/args.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLong = 60'000;
const ExitStatus kKilled{0, 9};
const ExitStatus kFailed{1, 0};

TEST(RestartPolicy, WhoWasKilledIsStartedAgainAtOnce) {
  RestartPolicy policy;
  EXPECT_EQ(policy.Ended(kKilled, 10), 0);
}

TEST(RestartPolicy, WhoDiesAgainAndAgainWaitsLonger) {
  RestartPolicy policy;
  EXPECT_EQ(policy.Ended(kKilled, 10), 0);
  for (const int64_t delay_ms : {1000, 2000, 4000, 8000, 16'000, 30'000, 30'000}) {
    EXPECT_EQ(policy.Ended(kFailed, 10), delay_ms);
  }
  EXPECT_EQ(policy.Ended(kKilled, kLong), 0) << "it has lived for long";
  EXPECT_EQ(policy.Ended(kKilled, 10), 1000);
}

TEST(RestartPolicy, WhoEndedByItselfStaysAway) {
  EXPECT_EQ(RestartPolicy().Ended({}, kLong), std::nullopt);
  RestartPolicy policy;
  EXPECT_EQ(policy.Ended(kKilled, 10), 0);
  EXPECT_EQ(policy.Ended({}, 10), std::nullopt);
}

TEST(RestartPolicy, WhoWasRefusedStaysAway) {
  EXPECT_EQ(RestartPolicy().Ended(kFailed, 10), std::nullopt) << "its starter tells why";
  EXPECT_EQ(RestartPolicy().Ended({kExitUsage, 0}, kLong), std::nullopt);
  EXPECT_EQ(RestartPolicy().Ended(kFailed, kLong), 0);
}

TEST(Keeper, ReadsWhatAStarterWrites) {
  const auto kept =
      ParseKeep({"keep", "/bin/m", "worker", "--name", "a", "--ready-fd", "3", "--start-fd", "4"});
  ASSERT_TRUE(kept.has_value());
  EXPECT_THAT(kept->args, ElementsAre("/bin/m", "worker", "--name", "a"));
  EXPECT_THAT(kept->first_args, ElementsAre("--ready-fd", "3", "--start-fd", "4"));
  EXPECT_THAT(kept->first_fds, ElementsAre(3, 4));
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {},
           {"keep"},
           {"worker", "/bin/m", "x", "--ready-fd", "3", "--start-fd", "4"},
           {"keep", "/bin/m", "x", "--ready-fd", "1", "--start-fd", "4"},
           {"keep", "/bin/m", "x", "--ready-fd", "3x", "--start-fd", "4"},
           {"keep", "/bin/m", "x", "--start-fd", "3", "--ready-fd", "4"}}) {
    EXPECT_FALSE(ParseKeep(args).has_value());
  }
}

}  // namespace
}  // namespace meshwright::cli
