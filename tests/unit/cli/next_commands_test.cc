#include "cli/next_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(NextCommands, GiveTheTokenThatTheClusterWants) {
  ClusterState state;
  state.address = "127.0.0.1:7700";
  GlobalArgs global;
  EXPECT_THAT(NextCommands({}, global, state), Not(HasSubstr("MESHWRIGHT_TOKEN")));
  global.token_file = "a token's file";
  EXPECT_THAT(NextCommands({}, global, state),
              HasSubstr("export MESHWRIGHT_TOKEN=\"$(cat 'a token'\\''s file')\"\n"));
}

// On loopback no other host can join: the hint must not say that it can.
TEST(NextCommands, SayWhoReachesTheCluster) {
  ClusterState state;
  state.address = "127.0.0.1:7700";
  state.metrics_address = "127.0.0.1:7780";
  const std::string text = NextCommands({}, {}, state);
  EXPECT_THAT(text, HasSubstr("worker --address 127.0.0.1:7700          # one more worker on this "
                              "machine\n"));
  EXPECT_THAT(text, HasSubstr("Other machines do not reach this cluster"));
}

TEST(NextCommands, GiveTheWorkerThatTheClusterHas) {
  EXPECT_THAT(NextCommands({}, {}, {}), HasSubstr("  meshwright worker --address "));
  UpArgs args;
  args.worker_binary = "/my worker";
  EXPECT_THAT(NextCommands(args, {}, {}), HasSubstr("  '/my worker' --address "));
}

}  // namespace
}  // namespace meshwright::cli
