// Frame: what one place says to another, as bytes.
//
// On the wire, integers little-endian:
//   u8 kind, u8 event, u16 code, u64 message, u64 place, u64 id, u64 generation, u64 deadline_ms,
//   u32 length and bytes of `text`, then the rest is `bytes`.
//
// kSpawn, kTell and kAsk carry a number (`message`) that the receiver's one kReply repeats: it is
// the answer, and it gives the sender its credit back. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "actor/address.h"
#include "base/result.h"

namespace meshwright::actor {

enum class FrameKind : uint8_t {
  kSpawn = 1,  // text: the type; bytes: its arguments; to: the id and generation, or 0 for any
  kTell = 2,
  kAsk = 3,
  kReply = 4,  // code, text: the Status; bytes: the answer; to: of a kSpawn, who was made
  kStop = 5,
  kWatch = 6,  // message: repeated by each kEvent
  kEvent = 7,  // to: about whom; code, text: why
  kPing = 8,
  kPong = 9,
};

// What becomes of an actor. All but kRestarted are its end.
enum class EventKind : uint8_t { kRestarted = 1, kStopped = 2, kGaveUp = 3, kLost = 4 };
const char* Name(EventKind kind);  // "restarted"

struct Frame {
  FrameKind kind = FrameKind::kPing;
  EventKind event = EventKind::kRestarted;
  StatusCode code = StatusCode::kOk;
  uint64_t message = 0;
  Address to = {};
  int64_t deadline_ms = 0;
  std::string text = {};
  std::string bytes = {};

  Status status() const { return code == StatusCode::kOk ? OkStatus() : Status(code, text); }
  friend bool operator==(const Frame&, const Frame&) = default;
};

// REQUIRES text of less than 4 GiB.
std::string EncodeFrame(const Frame& frame);
// Safe on any input. Errors: kInvalidArgument.
Result<Frame> DecodeFrame(std::string_view bytes);

}  // namespace meshwright::actor
