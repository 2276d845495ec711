// The items of a field, numbered through over all its slices.
//
// Thread rule: thread-safe. Ownership: the file set outlives the reader.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "data/file_set.h"
#include "ir/data_spec.h"

namespace meshwright::data {

class FieldReader {
 public:
  // slices: those of the field that are numbered, training or validation.
  FieldReader(FileSet& files, const ir::DataField& field, const std::vector<ir::DataSlice>& slices);

  int64_t items() const { return ends_.empty() ? 0 : ends_.back(); }
  const ir::DataField& field() const { return field_; }

  // Calls visit(bytes, first) for runs of items that lie together: bytes of the items from number
  // `first` on. Ends at the first error. REQUIRES: 0 <= first, first + count <= items().
  // Errors: kDataLoss: a file was changed; those of the visitor and the opener.
  using Visitor = FunctionRef<Status(std::span<const std::byte> bytes, int64_t first)>;
  Status Visit(int64_t first, int64_t count, Visitor visit) const;

  // Where an item is: "item 7 of a.bin", for messages.
  std::string Place(int64_t item, const char* noun) const;

 private:
  size_t SliceOf(int64_t item) const;
  int64_t BeginOf(size_t slice) const { return slice == 0 ? 0 : ends_[slice - 1]; }

  FileSet& files_;
  const ir::DataField field_;
  const std::vector<ir::DataSlice> slices_;  // those with items
  std::vector<int64_t> ends_;                // items up to the end of each
};

}  // namespace meshwright::data
