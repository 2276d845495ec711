// What says that two files are the same without reading them: size and a hash of samples.
//
// Sampled are blocks of 4 KiB: those at i * (size - 4096) / 63 for i = 0 .. 63, so the first, the
// last and 62 between them. A file of at most 64 blocks is hashed whole. The hash is the SHA-256 of
// the size (8 bytes, little endian) and the blocks in this order. It finds another file, a
// truncated one, one that was written again; it does not find a change of a few bytes between the
// samples.
//
// Thread rule: pure functions of the file.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::data {

inline constexpr int64_t kSampleBytes = 4096;
inline constexpr int64_t kSamples = 64;

// Of an open file of `size` bytes; `name` is for messages.
// Errors: kDataLoss: it is shorter, or cannot be read.
Result<std::string> SampledHash(int fd, int64_t size, const std::string& name);

}  // namespace meshwright::data
