#include "data/identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/os_error.h"
#include "base/sha256.h"

namespace meshwright::data {
namespace {

// Exactly `bytes` from `offset` on.
Status ReadAt(int fd, int64_t offset, char* to, int64_t bytes, const std::string& name) {
  int64_t filled = 0;
  while (filled < bytes) {
    const ssize_t got =
        ::pread(fd, to + filled, static_cast<size_t>(bytes - filled), offset + filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return OsError(errno, "read " + name);
    if (got == 0) {
      return DataLoss(fmt::format("{} ends at byte {}, it had more: it is being changed", name,
                                  offset + filled));
    }
    filled += got;
  }
  return OkStatus();
}

}  // namespace

Result<std::string> SampledHash(int fd, int64_t size, const std::string& name) {
  Sha256 hash;
  std::array<char, 8> length;
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<char>(static_cast<uint64_t>(size) >> (8 * i));
  }
  hash.Update(length.data(), length.size());
  std::array<char, kSampleBytes> block;
  const bool whole = size <= kSampleBytes * kSamples;
  const int64_t blocks = whole ? (size + kSampleBytes - 1) / kSampleBytes : kSamples;
  for (int64_t i = 0; i < blocks; ++i) {
    // As a quotient and a rest: the product would overflow for files of exbibytes only, but cheaply
    // not at all.
    const int64_t span = size - kSampleBytes;
    const int64_t offset =
        whole ? i * kSampleBytes
              : span / (kSamples - 1) * i + span % (kSamples - 1) * i / (kSamples - 1);
    const int64_t bytes = std::min(kSampleBytes, size - offset);
    MW_TRY(ReadAt(fd, offset, block.data(), bytes, name));
    hash.Update(block.data(), static_cast<size_t>(bytes));
  }
  return hash.HexDigest();
}

}  // namespace meshwright::data
