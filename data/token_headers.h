// Headers of token files: llm.c's .bin and Megatron's .bin with .idx.
//
//   llm.c     int32 magic, int32 version, int32 tokens, 253 int32 (256 in all), tokens
//             magic 20240520 version 1: uint16; magic 20240801 version 7: uint32
//   Megatron  .bin: tokens of all sequences, one after the other
//             .idx: "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences n, u64 documents m,
//                   int32 lengths[n], int64 offsets[n] in bytes of .bin, int64 ends[m]
//
// All little endian. Documents follow each other in the stream; a model that is to see their
// borders is told by a separator token (model.document_separator).
//
// Thread rule: pure functions, safe on any input.
// Source: the writers of llm.c (dev/data/data_common.py) and Megatron-LM (indexed_dataset.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "ir/element.h"

namespace meshwright::data {

// Where the tokens of a file are.
struct TokenRange {
  ir::Element element = ir::Element::kU16;
  int64_t begin_bytes = 0;
  int64_t tokens = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// `prefix`: the first bytes of a file of `file_bytes` bytes, 1024 of them where it has as many.
// Errors: kInvalidArgument saying what is wrong.
Result<TokenRange> ParseLlmcHeader(std::span<const std::byte> prefix, int64_t file_bytes);

// `index`: all of an .idx file; `bin_bytes`: the size of its .bin. Sequences must lie one behind
// the other in .bin and fill it. Errors: kInvalidArgument saying what is wrong.
Result<TokenRange> ParseMegatronIndex(std::span<const std::byte> index, int64_t bin_bytes);

}  // namespace meshwright::data
