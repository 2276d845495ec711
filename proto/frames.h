// Messages of any size up to a limit, cut into pieces that a gRPC message holds: all of a client's
// session, and large ones between controller and worker.
//
// Thread rule: FrameJoiner by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "proto/meshwright.pb.h"

namespace meshwright::proto {

// Of tensors that a call brings or gives out, together each: this is the bound of one transfer, and
// what controller and workers hold of it at a time.
inline constexpr int64_t kMaxTensorBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxSessionMessageBytes = kMaxTensorBytes + (int64_t{1} << 20);

inline constexpr int64_t kMostUncutBytes = int64_t{2} << 20;

std::vector<v1::Frame> CutToFrames(std::string message);

class FrameJoiner {
 public:
  // The message that this frame completes, or nothing. Errors: kResourceExhausted above
  // kMaxSessionMessageBytes.
  Result<std::optional<std::string>> Add(const v1::Frame& frame);

 private:
  std::string so_far_;
};

// An Up or a Down as what is sent: itself, or the pieces of a large one.
template <typename Wire>
std::vector<Wire> CutToPieces(Wire message) {
  std::vector<Wire> pieces;
  if (static_cast<int64_t>(message.ByteSizeLong()) <= kMostUncutBytes) {
    pieces.push_back(std::move(message));
    return pieces;
  }
  for (v1::Frame& frame : CutToFrames(message.SerializeAsString())) {
    Wire& piece = pieces.emplace_back();
    piece.set_term(message.term());
    *piece.mutable_piece() = std::move(frame);
  }
  return pieces;
}

// The message that `piece` is, or completes; nothing: more is to come. Errors: as FrameJoiner;
// kInvalidArgument: the pieces are no message.
template <typename Wire>
Result<std::optional<Wire>> JoinPieces(FrameJoiner& joiner, const Wire& piece) {
  if (!piece.has_piece()) return std::optional<Wire>(piece);
  MW_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, joiner.Add(piece.piece()));
  if (!bytes) return std::optional<Wire>();
  Wire whole;
  if (whole.ParseFromString(*bytes) && !whole.has_piece()) return std::optional(std::move(whole));
  return Fail(InvalidArgument("the pieces of a message do not fit together"));
}

}  // namespace meshwright::proto
