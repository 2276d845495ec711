// Copies between memories by a thread of their own: in the order of the list, and stopped with the
// step.
#include "worker/tier_copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace meshwright::worker {
namespace {

constexpr int64_t kTierBytes = 1 << 16;
using Bytes = std::vector<std::byte>;

Access Of(const Bytes& bytes, bool writes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  return {begin, begin + bytes.size(), writes};
}

TierItem CopyItem(const Bytes& from, Bytes& to) {
  TierItem item;
  item.copies = true;
  item.accesses = {Of(from, false), Of(to, true)};
  item.from = from.data();
  item.to = to.data();
  item.bytes = static_cast<int64_t>(from.size());
  return item;
}

TierItem ComputeItem(const Bytes& bytes, bool writes) {
  TierItem item;
  item.accesses = {Of(bytes, writes)};
  return item;
}

TEST(TierCopies, KeepTheOrderOfTheList) {
  Bytes arena(kTierBytes), host(kTierBytes), other(kTierBytes);
  // arena is written, given back, written again; what was given back comes to another place.
  const std::vector<TierItem> items = {ComputeItem(arena, true), CopyItem(arena, host),
                                       ComputeItem(arena, true), CopyItem(host, other),
                                       ComputeItem(other, false)};
  TierCopies copies(items, 0);
  EXPECT_EQ(copies.bytes_per_step(), 2 * kTierBytes);
  for (int step = 1; step <= 50; ++step) {
    copies.Begin();
    copies.Await(0);
    std::memset(arena.data(), step, arena.size());
    copies.Passed(0);
    copies.Await(2);
    std::memset(arena.data(), 0x7f, arena.size());
    copies.Passed(2);
    copies.Await(4);
    EXPECT_EQ(other, Bytes(kTierBytes, std::byte(step))) << "step " << step;
    copies.Passed(4);
    copies.End();
  }
}

// A link of a byte per second would need hours.
TEST(TierCopies, StopWithTheStep) {
  Bytes host(kTierBytes, std::byte{1}), arena(kTierBytes);
  const std::vector<TierItem> items = {CopyItem(host, arena), ComputeItem(arena, false)};
  TierCopies copies(items, 1);
  copies.Begin();
  copies.Stop();
  copies.Begin();
  copies.Stop();
}

}  // namespace
}  // namespace meshwright::worker
