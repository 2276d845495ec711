// Shapes of paged_attention, and where a token's keys and values are: as ir/op.h and
// ir/schema_paged.cc say.
//
// Thread rule: values.
#pragma once

#include <cstdint>

#include "ops/kernel_spec.h"

namespace meshwright::ops {

// The operands by their places.
enum PagedOperand : size_t {
  kPagedQ,
  kPagedK,
  kPagedV,
  kPagedPages,
  kPagedTable,
  kPagedRow,
  kPagedPosition,
  kPagedKeyRow,  // these two: only where keys have places of their own
  kPagedKeyPosition
};

struct PagedShape {
  int64_t b = 0;
  int64_t n = 0;     // tokens
  int64_t keys = 0;  // that are written
  int64_t h = 0;
  int64_t g = 0;
  int64_t e = 0;
  int64_t pages = 0;
  int64_t page_tokens = 0;
  int64_t texts = 0;        // rows of the table
  int64_t text_pages = 0;   // of a row of the table
  int64_t window = 0;       // 0: none
  double score_cap = 0;     // of scaled scores; 0: none
  bool own_places = false;  // of keys
  int64_t distances = 0;    // that have a bias; 0: there is none

  size_t bias() const { return own_places ? kPagedKeyPosition + 1 : kPagedKeyRow; }
  // The place in a head's bias of a key that is so far before its query.
  int64_t BiasAt(int64_t distance) const { return distance < distances ? distance : distances - 1; }

  int64_t heads_per_group() const { return h / g; }
  double scale() const;
  // The first position that a token at `position` sees.
  int64_t First(int64_t position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  // In elements, from the start of the pages: the keys [e, t] of a head in a page, or its values.
  int64_t KeysOf(int64_t batch, int64_t page, int64_t group) const {
    return ((batch * pages + page) * 2 * g + group) * page_tokens * e;
  }
  int64_t ValuesOf(int64_t batch, int64_t page, int64_t group) const {
    return KeysOf(batch, page, group) + g * page_tokens * e;
  }
};

PagedShape PagedShapeOf(const KernelSpec& spec);

// A token of a text, or none: as the indices of one run say.
struct PagedToken {
  int64_t batch = 0;
  int64_t position = 0;
  const int32_t* pages = nullptr;  // of its text, by position / page_tokens; null: no token
};
PagedToken PagedTokenAt(const PagedShape& shape, Inputs inputs, int64_t token);
// The same of keys and values: that of token `key` where they have no places of their own.
PagedToken PagedKeyAt(const PagedShape& shape, Inputs inputs, int64_t key);

// Errors: kInvalidArgument naming the token: a row that the table does not have, a position beyond
// its pages, or a page that there is not.
Status CheckPagedTokens(const PagedShape& shape, Inputs inputs);

}  // namespace meshwright::ops
