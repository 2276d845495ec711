// What digests leave behind.
#include "checkpoint/digest.h"

#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <vector>

namespace meshwright::checkpoint {
namespace {

#if defined(__x86_64__)
// Whether upper halves of vector registers are in use. Source: Intel's Software Developer's Manual,
// volume 1, 13.6, XINUSE by XGETBV with ECX = 1.
bool UpperHalvesInUse() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  constexpr uint32_t kAvx = 1u << 2;
  return (low & kAvx) != 0;
}

bool SaysWhatIsInUse() {
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  constexpr uint32_t kXgetbvOfInUse = 1u << 2;
  return __builtin_cpu_supports("avx") != 0 && __get_cpuid_count(0xD, 1, &a, &b, &c, &d) != 0 &&
         (a & kXgetbvOfInUse) != 0;
}

TEST(Digest, LeavesNoUpperHalfInUse) {
  if (!SaysWhatIsInUse()) GTEST_SKIP() << "this processor does not tell";
  const std::vector<std::byte> bytes(1 << 20);
  asm volatile("vzeroupper");
  ASSERT_FALSE(UpperHalvesInUse());
  (void)DigestOf(bytes);
  EXPECT_FALSE(UpperHalvesInUse()) << "each SSE instruction of this thread is slow from here on";
  DigestStream stream;
  stream.Add(bytes);
  EXPECT_FALSE(UpperHalvesInUse());
  (void)stream.End();
  EXPECT_FALSE(UpperHalvesInUse());
}
#endif

}  // namespace
}  // namespace meshwright::checkpoint
