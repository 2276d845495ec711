// TokenData: the training and validation rows of a job, read from a mapped token file.
//
// Formats: "bytes" (UTF-8 text, a token is a byte), "uint16", "uint32" (little endian). The last
// validation_fraction of the tokens is never trained on. A row is sequence + 1 tokens: inputs and,
// shifted by one, labels.
//
// Source "tokens" (training): the training part holds W windows of `sequence` tokens. Sample n is
// window P(n % W) of epoch n / W, where P permutes [0, W): a Feistel network keyed by Philox(seed,
// epoch), walked until it lands inside [0, W), so every window comes once per epoch and no table is
// kept. All windows of an epoch are shifted by the same amount, drawn anew per epoch from the
// tokens that W whole windows leave over.
//
// Source "validation": sample n is window n (modulo their number) of the tail, in order, without
// overlap.
//
// A row is a pure function of (file, seed, n): the same on every worker and after every restart.
//
// Thread rule: immutable, thread-safe.
// Source of the permutation: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
// 2002, method 2 (cycle walking).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "ops/kernel.h"

namespace meshwright::worker {

struct DataFile {
  std::string path;
  std::string name = {};  // for messages: what the user calls it; empty: the path
};

class TokenData final : public ops::TokenSource {
 public:
  // Errors: kInvalidArgument for an unknown format, a file that is empty, truncated (its bytes are
  // no whole tokens), too short for one training row, or invalid UTF-8 in "bytes" (names the byte
  // offset); and those of MemoryMappedFile::Open.
  static Result<std::unique_ptr<TokenData>> Open(const DataFile& file, const std::string& format,
                                                 int64_t sequence, double validation_fraction,
                                                 uint64_t seed, int64_t vocab_size);

  // Errors: kInvalidArgument for an unknown source or row length, or a token >= vocab_size (names
  // its position); kFailedPrecondition when the tail has no validation window.
  Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override;

  int64_t tokens() const { return tokens_; }
  int64_t training_tokens() const { return training_tokens_; }
  int64_t training_windows() const { return training_windows_; }  // >= 1
  int64_t validation_windows() const {
    return validation_windows_;
  }  // 0 when the tail is shorter than a row

  // First token of training sample `sample`.
  int64_t TrainingStart(int64_t sample) const;

 private:
  struct Layout {
    std::string name;
    int token_bytes = 1;
    int64_t sequence = 0;
    int64_t vocab_size = 0;
    uint64_t seed = 0;
  };
  TokenData(MemoryMappedFile file, Layout layout, double validation_fraction);
  Status CheckContents() const;
  int64_t TokenAt(int64_t position) const;

  const MemoryMappedFile file_;
  const Layout layout_;
  const int64_t tokens_;
  const int64_t training_tokens_;
  const int64_t training_windows_;
  const int64_t validation_windows_;
};

// Position `index` of a permutation of [0, size) that is chosen by `key`. REQUIRES 0 <= index <
// size.
int64_t PermutedIndex(int64_t index, int64_t size, uint64_t key);

// Offset of the first byte that is not part of well-formed UTF-8 (RFC 3629), or -1.
int64_t FindInvalidUtf8(std::string_view text);

}  // namespace meshwright::worker
