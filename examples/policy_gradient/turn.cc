#include "turn.h"

#include <charconv>
#include <cstring>
#include <string>

namespace policy_gradient {
namespace {

using meshwright::Result;

constexpr std::string_view kReset = "reset ";
constexpr std::string_view kPush = "push ";

Result<Turn> ReadTurn(std::string_view text) {
  Turn turn;
  std::string_view number = text;
  if (text.starts_with(kReset)) {
    number.remove_prefix(kReset.size());
  } else if (text.starts_with(kPush)) {
    turn.kind = Turn::Kind::kPush;
    number.remove_prefix(kPush.size());
  }
  const char* end = number.data() + number.size();
  const auto read = std::from_chars(number.data(), end, turn.number);
  if (read.ec == std::errc() && read.ptr == end && number.size() < text.size()) return turn;
  return meshwright::Fail(meshwright::InvalidArgument(
      "'" + std::string(text) + "' is no turn; write 'reset SEED' or 'push ACTION'"));
}

std::string WriteTurn(const Turn& turn) {
  return std::string(turn.kind == Turn::Kind::kReset ? kReset : kPush) +
         std::to_string(turn.number);
}

std::string WriteSeen(const Seen& seen) {
  std::string bytes(sizeof(State) + 1, seen.stands ? '\1' : '\0');
  std::memcpy(bytes.data(), seen.state.data(), sizeof(State));
  return bytes;
}

Result<Seen> ReadSeen(std::string_view bytes) {
  if (bytes.size() != sizeof(State) + 1) {
    return meshwright::Fail(meshwright::InvalidArgument(
        "an environment answered " + std::to_string(bytes.size()) + " bytes instead of " +
        std::to_string(sizeof(State) + 1) + "; build client and worker from the same source"));
  }
  Seen seen;
  std::memcpy(seen.state.data(), bytes.data(), sizeof(State));
  seen.stands = bytes.back() != '\0';
  return seen;
}

}  // namespace

meshwright::actor::MessageCodec<Turn> TurnCodec() {
  return {{WriteTurn, ReadTurn}, {WriteSeen, ReadSeen}};
}

}  // namespace policy_gradient
