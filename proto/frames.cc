#include "proto/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proto/messages.h"

namespace meshwright::proto {

std::vector<v1::Frame> CutToFrames(std::string message) {
  std::vector<v1::Frame> frames;
  constexpr auto kPiece = static_cast<size_t>(kChunkBytes);
  if (message.size() <= kPiece) {
    frames.emplace_back().set_data(std::move(message));
  } else {
    for (size_t at = 0; at < message.size(); at += kPiece) {
      frames.emplace_back().set_data(message.substr(at, kPiece));
    }
  }
  frames.back().set_last(true);
  return frames;
}

Result<std::optional<std::string>> FrameJoiner::Add(const v1::Frame& frame) {
  if (static_cast<int64_t>(so_far_.size() + frame.data().size()) > kMaxSessionMessageBytes) {
    return Fail(ResourceExhausted(
        fmt::format("a message of a session has more than {} bytes", kMaxSessionMessageBytes)));
  }
  so_far_ += frame.data();
  if (!frame.last()) return std::optional<std::string>();
  return std::optional<std::string>(std::exchange(so_far_, {}));
}

}  // namespace meshwright::proto
