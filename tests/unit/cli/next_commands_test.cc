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

TEST(NextCommands, GiveTheWorkerThatTheClusterHas) {
  EXPECT_THAT(NextCommands({}, {}, {}), HasSubstr("  meshwright worker --address "));
  UpArgs args;
  args.worker_binary = "/my worker";
  EXPECT_THAT(NextCommands(args, {}, {}), HasSubstr("  '/my worker' --address "));
}

}  // namespace
}  // namespace meshwright::cli
