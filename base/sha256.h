// SHA-256: names of contents (program blobs, graphs, datasets).
//
// Thread rule: one Sha256 object is used by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright {

// Incremental hashing: Update any number of times, then HexDigest once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::string_view bytes);
  void Update(const void* data, size_t bytes);
  // 64 lower-case hex digits. REQUIRES: first call; the object is spent afterwards.
  std::string HexDigest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Digest of `bytes`: 64 lower-case hex digits.
std::string Sha256Hex(std::string_view bytes);

// Digest of a file's contents, read in blocks of 1 MiB.
// Errors: kNotFound, kPermissionDenied, kDataLoss (read error), each naming the path.
Result<std::string> Sha256File(const std::string& path);

}  // namespace meshwright
