// Digests of boxes: 128-bit XXH3 of every mebibyte of a box's bytes in row-major order.
//
// A digest says that bytes are those that were written, against disks and networks, not against an
// adversary. It belongs to a box of a logical tensor, not to a file, so that whoever holds the box
// can check it; by pieces, so that who needs a part reads little more than that part.
//
// Thread rule: pure functions; a DigestStream is one thread's. Source: XXH3 of xxHash 0.8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct XXH3_state_s;

namespace meshwright::checkpoint {

inline constexpr int64_t kPieceBytes = int64_t{1} << 20;

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

Digest DigestOf(std::span<const std::byte> bytes);
Digest DigestOf(std::string_view text);

// The digest of bytes that come one part after the other.
class DigestStream {
 public:
  DigestStream();
  void Add(std::span<const std::byte> part);
  Digest End() const;

 private:
  const std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

std::string ToText(const Digest& digest);  // 32 hex digits
// Errors: kInvalidArgument: no 32 hex digits.
Result<Digest> ParseDigest(std::string_view text);

// One digest for every piece that has begun.
std::vector<Digest> PieceDigests(std::span<const std::byte> box);
int64_t PieceCount(int64_t bytes);

}  // namespace meshwright::checkpoint
