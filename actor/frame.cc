#include "actor/frame.h"

#include <fmt/format.h>

#include "base/check.h"

namespace meshwright::actor {
namespace {

constexpr size_t kHeadBytes = 1 + 1 + 2 + 5 * 8 + 4;

void PutInteger(std::string& out, uint64_t value, int bytes) {
  MW_CHECK(bytes == 8 || value >> (8 * bytes) == 0) << value << " in " << bytes << " bytes";
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t TakeInteger(std::string_view& in, int bytes) {
  MW_CHECK(in.size() >= static_cast<size_t>(bytes)) << in.size() << " bytes are left of " << bytes;
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(in[static_cast<size_t>(i)])) << (8 * i);
  }
  in.remove_prefix(static_cast<size_t>(bytes));
  return value;
}

}  // namespace

const char* Name(EventKind kind) {
  switch (kind) {
    case EventKind::kRestarted:
      return "restarted";
    case EventKind::kStopped:
      return "stopped";
    case EventKind::kGaveUp:
      return "given up";
    case EventKind::kLost:
      return "lost";
  }
  return "unknown";
}

std::string EncodeFrame(const Frame& frame) {
  std::string out;
  out.reserve(kHeadBytes + frame.text.size() + frame.bytes.size());
  PutInteger(out, static_cast<uint64_t>(frame.kind), 1);
  PutInteger(out, static_cast<uint64_t>(frame.event), 1);
  PutInteger(out, static_cast<uint64_t>(frame.code), 2);
  PutInteger(out, frame.message, 8);
  PutInteger(out, frame.to.place.value(), 8);
  PutInteger(out, frame.to.id.value(), 8);
  PutInteger(out, frame.to.generation.value(), 8);
  PutInteger(out, static_cast<uint64_t>(frame.deadline_ms), 8);
  MW_CHECK(out.size() + 4 == kHeadBytes)
      << "the head of a frame has " << out.size() + 4 << " bytes";
  PutInteger(out, frame.text.size(), 4);
  out += frame.text;
  out += frame.bytes;
  return out;
}

Result<Frame> DecodeFrame(std::string_view bytes) {
  if (bytes.size() < kHeadBytes) {
    return Fail(InvalidArgument(
        fmt::format("a frame of {} bytes; it has at least {}", bytes.size(), kHeadBytes)));
  }
  Frame frame;
  const uint64_t kind = TakeInteger(bytes, 1);
  const uint64_t event = TakeInteger(bytes, 1);
  const uint64_t code = TakeInteger(bytes, 2);
  if (kind < 1 || kind > static_cast<uint64_t>(FrameKind::kPong) || event < 1 ||
      event > static_cast<uint64_t>(EventKind::kLost) ||
      code > static_cast<uint64_t>(StatusCode::kUnauthenticated)) {
    return Fail(InvalidArgument(
        fmt::format("a frame of kind {}, event {} and code {}, which this version does not know",
                    kind, event, code)));
  }
  frame.kind = static_cast<FrameKind>(kind);
  frame.event = static_cast<EventKind>(event);
  frame.code = static_cast<StatusCode>(code);
  frame.message = TakeInteger(bytes, 8);
  frame.to.place = PlaceId(TakeInteger(bytes, 8));
  frame.to.id = ActorId(TakeInteger(bytes, 8));
  frame.to.generation = ActorGeneration(TakeInteger(bytes, 8));
  frame.deadline_ms = static_cast<int64_t>(TakeInteger(bytes, 8));
  const uint64_t text_bytes = TakeInteger(bytes, 4);
  if (text_bytes > bytes.size()) {
    return Fail(InvalidArgument(fmt::format("a frame's text of {} bytes in the {} that are left",
                                            text_bytes, bytes.size())));
  }
  frame.text = bytes.substr(0, text_bytes);
  frame.bytes = bytes.substr(text_bytes);
  return frame;
}

}  // namespace meshwright::actor
