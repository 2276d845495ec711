#include "base/disk_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DiskMetrics, AFolderHasTheSizeAndTheRoomOfItsFileSystem) {
  MetricsRegistry registry;
  SetDiskMetrics(registry, "state", "/");
  SetDiskMetrics(registry, "checkpoints", "/no/such/folder");
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("meshwright_disk_bytes{use=\"state\"}"));
  EXPECT_THAT(text, HasSubstr("meshwright_disk_available_bytes{use=\"state\"}"));
  EXPECT_THAT(text, Not(HasSubstr("use=\"checkpoints\"")));
}

}  // namespace
}  // namespace meshwright
