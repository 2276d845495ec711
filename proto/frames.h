// Messages of a client's session as frames: a message of any size up to a limit, cut into pieces
// that a gRPC message holds.
//
// Thread rule: FrameJoiner by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "proto/meshwright.pb.h"

namespace meshwright::proto {

inline constexpr int64_t kMaxSessionMessageBytes = int64_t{64} << 20;

std::vector<v1::Frame> CutToFrames(std::string message);

class FrameJoiner {
 public:
  // The message that this frame completes, or nothing. Errors: kResourceExhausted above
  // kMaxSessionMessageBytes.
  Result<std::optional<std::string>> Add(const v1::Frame& frame);

 private:
  std::string so_far_;
};

}  // namespace meshwright::proto
