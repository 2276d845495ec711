// What a program over pages knows of its tokens: of which texts they are, where in them, and which
// of them logits are wanted of. Attention's keys and values of the texts lie in pages that the job
// keeps between calls.
//
// Thread rule: values.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ir/dtype.h"

namespace meshwright::client {

// What is the same in all programs of a job.
struct PageShape {
  int64_t groups = 1;        // of texts, which share no pages: one per replica
  int64_t pages = 0;         // of a group
  int64_t page_tokens = 16;  // positions in a page
  int64_t texts = 1;         // of a group, that are in a batch at once
  int64_t positions = 0;     // of the longest text
  ir::DType dtype = ir::DType::kF32;

  int64_t text_pages() const { return (positions + page_tokens - 1) / page_tokens; }
};

struct PagedRows {
  PageShape shape;
  ValueId table;     // i32[groups, texts, text_pages]
  ValueId row;       // i32[groups, tokens]; -1: no token
  ValueId position;  // i32[groups, tokens]
  ValueId wanted;    // i32[groups, rows]: places of tokens
};

}  // namespace meshwright::client
