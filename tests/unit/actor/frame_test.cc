#include "actor/frame.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace meshwright::actor {
namespace {

TEST(Frame, ComesBackAsItWas) {
  const Frame frame{.kind = FrameKind::kEvent,
                    .event = EventKind::kGaveUp,
                    .code = StatusCode::kAborted,
                    .message = ~uint64_t{0},
                    .to = {PlaceId(1), ActorId(uint64_t{1} << 63), ActorGeneration(3)},
                    .deadline_ms = -1,
                    .text = std::string("\0x", 2),
                    .bytes = std::string("\xff\0\1", 3)};
  EXPECT_EQ(DecodeFrame(EncodeFrame(frame)), frame);
  EXPECT_EQ(DecodeFrame(EncodeFrame(Frame{})), Frame{});
}

TEST(Frame, AnyInputIsAFrameOrAnError) {
  const std::string good = EncodeFrame(Frame{.kind = FrameKind::kTell, .text = "t", .bytes = "b"});
  for (size_t cut = 0; cut < good.size() - 1; ++cut) {
    EXPECT_FALSE(DecodeFrame(std::string_view(good).substr(0, cut)).has_value() &&
                 cut < good.size() - 2)
        << cut;
  }
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string bytes = good;
    const uint32_t bits = PhiloxBits(seed, 1, 2, 3);
    bytes[bits % bytes.size()] = static_cast<char>(bits >> 8);
    const Result<Frame> decoded = DecodeFrame(bytes);
    if (decoded.has_value()) {
      EXPECT_EQ(EncodeFrame(*decoded), bytes);
    } else {
      EXPECT_EQ(decoded.error().code(), StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace meshwright::actor
