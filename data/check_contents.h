// What is wrong with data that has the right headers: found by the client, before a cluster is
// asked.
//
// Data of up to kWholeCheckBytes is read whole. Of more, as much is read in blocks that lie evenly
// over each file; workers check every token that they read anyway.
//
// Thread rule: reads files.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "ir/data_spec.h"

namespace meshwright::data {

inline constexpr int64_t kWholeCheckBytes = 256 << 20;

struct ContentRules {
  int64_t sequence = 1;
  int64_t vocabulary = 0;  // tokens are below it; 0: not checked
  bool text = false;       // bytes are UTF-8
  int64_t limit_bytes = kWholeCheckBytes;
};

// Of a stream that DescribeFiles made. Errors: those of CheckEnough; kInvalidArgument naming file
// and place: text that is not UTF-8, a token that is negative or not below the vocabulary.
Status CheckContents(const ir::DataStream& stream, const ContentRules& rules);

// Offset of the first byte of `text` that is not part of well-formed UTF-8 (RFC 3629), or -1.
int64_t FindInvalidUtf8(std::string_view text);

}  // namespace meshwright::data
