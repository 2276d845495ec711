// What a model says of places in a text, in all of its programs alike.
//
// Where tokens are whole texts, one in each row, their places are those of the row; over pages
// (client/paged_rows.h) and of documents that share a row they are told. Layers that say it with
// these functions, and with Builder::Rotary and Builder::Attention, train and write by the same
// lines. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "client/layers.h"

namespace meshwright::client {

// The most positions that a token of tokens[b, s] can be at.
int64_t PositionCount(const Builder& builder, ValueId tokens);
// The document of each token, i32[b, s]: that which the rows say, else one more behind each
// `separator`. Invalid where a row is one document: none is said, and the separator is below 0.
ValueId DocumentsOf(Builder& builder, ValueId tokens, int64_t separator);
// The rows of table [positions, d] at which the tokens are: [s, d], or [b, s, d].
ValueId AtPositions(Builder& builder, ValueId table, ValueId tokens);
// x [b, s, d] of the tokens whose logits are wanted, which are all but over pages.
ValueId Wanted(Builder& builder, ValueId x);

// What Builder's attention is over pages: o and lse; nothing after an error. of_distance: [h, d] in
// the type of q, added to the scaled score of a key so many places before its query, of which the
// last is that of all farther ones; invalid: none. REQUIRES pages.
std::vector<ValueId> PagedAttention(Builder& builder, ValueId q, ValueId k, ValueId v,
                                    const AttentionOptions& options, ValueId of_distance = {});
// A param that programs keep between calls: of each group so many pages of keys and values.
ValueId KeptPages(Builder& builder, int64_t pages, int64_t kv_heads, int64_t head_size);
ValueId PagedAttentionQkv(Builder& builder, ValueId qkv);

}  // namespace meshwright::client
