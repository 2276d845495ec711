#include "worker/core_claims.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace meshwright::worker {
namespace {

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return CPU_COUNT(&set);
}

// Of this process and test only.
std::string Realm(const char* test) { return fmt::format("test-{}-{}", test, getpid()); }

TEST(CoreClaims, TwoWorkersGetDifferentCoresAndGiveThemBack) {
  const std::string realm = Realm("two");
  const int cores = UsableCores();
  const auto all = CoreClaims::Take(cores, realm);
  EXPECT_EQ(all.cores().size(), static_cast<size_t>(cores));
  EXPECT_TRUE(CoreClaims::Take(1, realm).cores().empty()) << "all are taken";
  {
    const CoreClaims other = CoreClaims::Take(1, Realm("other"));
    EXPECT_EQ(other.cores().size(), 1u);
  }
  if (cores < 2) return;
  const std::string pair = Realm("pair");
  const CoreClaims first = CoreClaims::Take(1, pair);
  const CoreClaims second = CoreClaims::Take(1, pair);
  ASSERT_EQ(second.cores().size(), 1u);
  EXPECT_NE(first.cores()[0], second.cores()[0]);
}

TEST(CoreClaims, WithoutEnoughCoresNoneIsHeld) {
  const std::string realm = Realm("few");
  const int cores = UsableCores();
  EXPECT_TRUE(CoreClaims::Take(cores + 1, realm).cores().empty());
  EXPECT_EQ(CoreClaims::Take(cores, realm).cores().size(), static_cast<size_t>(cores));
}

}  // namespace
}  // namespace meshwright::worker
