#include "collective/cpu/pipe.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "collective/cpu/region.h"

namespace meshwright::collective {
namespace {

class PipeTest : public testing::Test {
 protected:
  static constexpr PipeShape kShape{.slots = 3, .slot_bytes = 100};

  PipeTest() : region_(Region::Private(SlotRing::Bytes(kShape)).value()) {
    context_.options.members = {{"worker-0", "", "", 1}, {"worker-1", "", "", 2}};
    context_.operation_timeout_ms = 50;
    const PipeWiring wiring{.ring = SlotRing(region_.data(), kShape), .departed = &departed_};
    sender_.Attach(wiring);
    receiver_.Attach(wiring);
  }
  Deadline Soon() const { return context_.OperationDeadline(); }

  FabricContext context_;
  Region region_;
  std::atomic<bool> departed_{false};
  PipeSender sender_{"test pipe", 1, context_};
  PipeReceiver receiver_{"test pipe", 0, context_};
};

TEST_F(PipeTest, KeepsOrderBytesAndTagsAcrossManyWraps) {
  context_.operation_timeout_ms = 20'000;
  constexpr int kMessages = 20'000;
  std::thread producer([&] {
    for (int i = 0; i < kMessages; ++i) {
      std::byte* slot = sender_.Reserve(Soon()).value();
      std::memcpy(slot, &i, sizeof(i));
      sender_.Commit(4 + i % 90, static_cast<uint64_t>(i) * 3);
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    const PipeReceiver::Message message = receiver_.Front(Soon()).value();
    int value = -1;
    std::memcpy(&value, message.data, sizeof(value));
    ASSERT_EQ(value, i);
    ASSERT_EQ(message.bytes, 4 + i % 90);
    ASSERT_EQ(message.tag, static_cast<uint64_t>(i) * 3);
    receiver_.Pop();
  }
  producer.join();
}

TEST_F(PipeTest, HoldsExactlyItsSlots) {
  for (int i = 0; i < kShape.slots; ++i) {
    ASSERT_TRUE(sender_.Reserve(Soon()).has_value());
    sender_.Commit(1, 0);
  }
  const auto full = sender_.Reserve(Soon());
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(full.error().message().find("rank 1 (worker-1)"), std::string::npos);
  ASSERT_TRUE(receiver_.Front(Soon()).has_value());
  receiver_.Pop();
  EXPECT_TRUE(sender_.Reserve(Soon()).has_value());
}

TEST_F(PipeTest, EmptyPipeIsADeadlineThatNamesTheSender) {
  const auto none = receiver_.Front(Soon());
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(none.error().message().find("rank 0 (worker-0)"), std::string::npos);
}

TEST_F(PipeTest, AbortWakesAWaiterLongBeforeItsDeadline) {
  context_.operation_timeout_ms = 60'000;
  std::thread waiter([&] {
    const auto none = receiver_.Front(Soon());
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error(), Unavailable("lost rank 0"));
  });
  EXPECT_TRUE(context_.latch.Record(Unavailable("lost rank 0")));
  EXPECT_FALSE(context_.latch.Record(Unavailable("a later cause")));
  context_.latch.Publish();
  waiter.join();
}

TEST_F(PipeTest, MessagesBeforeADepartureAreDeliveredAndNothingAfter) {
  ASSERT_TRUE(sender_.Reserve(Soon()).has_value());
  sender_.Commit(5, 9);
  departed_.store(true);
  ASSERT_TRUE(receiver_.Front(Soon()).has_value());
  receiver_.Pop();
  EXPECT_EQ(receiver_.Front(Soon()).error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(sender_.Reserve(Soon()).error().code(), StatusCode::kUnavailable);
}

TEST_F(PipeTest, CorruptLengthIsDataLossAndNotARead) {
  ASSERT_TRUE(sender_.Reserve(Soon()).has_value());
  sender_.Commit(5, 9);
  SlotRing(region_.data(), kShape).header(0)->bytes = 101;
  EXPECT_EQ(receiver_.Front(Soon()).error().code(), StatusCode::kDataLoss);
  SlotRing(region_.data(), kShape).header(0)->bytes = -1;
  EXPECT_EQ(receiver_.Front(Soon()).error().code(), StatusCode::kDataLoss);
}

TEST_F(PipeTest, UnconnectedEndSaysSo) {
  PipeSender loose("loose pipe", 1, context_);
  EXPECT_EQ(loose.Reserve(Soon()).error().code(), StatusCode::kFailedPrecondition);
}

TEST(Region, SharedMemoryIsSeenThroughBothMappings) {
  Region created = Region::CreateShared(10'000).value();
  Region opened = Region::OpenShared(created.handle()).value();
  created.data()[9'999] = std::byte{17};
  EXPECT_EQ(opened.data()[9'999], std::byte{17});
  EXPECT_EQ(opened.data()[5'000], std::byte{0});
}

TEST(Region, WrongTokenSizeOrDescriptorIsRefused) {
  Region created = Region::CreateShared(10'000).value();
  RegionHandle wrong = created.handle();
  wrong.token[0] ^= 1;
  EXPECT_EQ(Region::OpenShared(wrong).error().code(), StatusCode::kUnavailable);
  wrong = created.handle();
  wrong.bytes = 20'000;
  EXPECT_EQ(Region::OpenShared(wrong).error().code(), StatusCode::kUnavailable);
  wrong = created.handle();
  wrong.descriptor = 0;
  EXPECT_EQ(Region::OpenShared(wrong).error().code(), StatusCode::kUnavailable);
  const RegionHandle handle = created.handle();
  created.CloseDescriptor();
  EXPECT_EQ(Region::OpenShared(handle).error().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace meshwright::collective
