// RowFormat: what rows of one stream that a host actor makes look like: its fields, how many bytes
// a row of each has, and how a feed reads them.
//
// Thread rule: immutable, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "actor/rows.h"
#include "base/result.h"
#include "data/stream.h"
#include "ir/data_spec.h"

namespace meshwright::worker {

class RowFormat {
 public:
  // sequence, vocabulary: of a stream of tokens.
  RowFormat(const ir::DataStream& stream, int64_t sequence, int64_t vocabulary);

  // The index of the field. Errors: kInvalidArgument naming those that there are.
  Result<size_t> FieldOf(const ir::FeedName& feed) const;
  // Whether there are as many bytes as `count` rows have. Errors: kInvalidArgument saying both.
  Status Check(int64_t count, const actor::Rows& rows) const;
  // Row `index` of `rows`, as the feed reads it. REQUIRES rows that Check accepts. Errors:
  // kInvalidArgument: another size or a type that does not hold the field, a value that the type
  // does not hold, a token outside of the vocabulary.
  Status Read(const actor::Rows& rows, size_t field, int64_t index,
              const data::RowBuffer& row) const;

 private:
  struct Field {
    ir::DataField field;
    int64_t row_bytes = 0;
  };
  Status CheckTokens(const data::RowBuffer& row) const;

  const ir::DataStream stream_;
  const int64_t vocabulary_;
  std::vector<Field> fields_;
};

}  // namespace meshwright::worker
