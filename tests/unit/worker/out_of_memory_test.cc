#include "worker/out_of_memory.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace meshwright::worker {
namespace {

class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() {
    EXPECT_TRUE(MakeDirs(dir_.File("proc/self")).ok());
    EXPECT_TRUE(MakeDirs(dir_.File("cgroup/a/b")).ok());
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(dir_.File(name), text).ok());
  }
  std::optional<int64_t> Kills() const {
    return OutOfMemoryKills(dir_.File("proc"), dir_.File("cgroup"));
  }
  const TempDir dir_ = TempDir::Make().value();
};

TEST_F(OutOfMemoryTest, ReadsTheCountOfTheOwnGroup) {
  Write("proc/self/cgroup", "4:memory:/elsewhere\n0::/a/b\n");
  Write("cgroup/a/b/memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n");
  EXPECT_EQ(Kills(), 2);
}

TEST_F(OutOfMemoryTest, WithoutACountNothingIsKnown) {
  EXPECT_EQ(Kills(), std::nullopt);
  Write("proc/self/cgroup", "4:memory:/a/b\n");
  EXPECT_EQ(Kills(), std::nullopt);
  Write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(Kills(), std::nullopt);
  Write("cgroup/a/b/memory.events", "low 0\noom_kill many\n");
  EXPECT_EQ(Kills(), std::nullopt);
}

}  // namespace
}  // namespace meshwright::worker
