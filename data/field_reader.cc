#include "data/field_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace meshwright::data {
namespace {

std::vector<ir::DataSlice> WithItems(const std::vector<ir::DataSlice>& slices) {
  std::vector<ir::DataSlice> kept;
  std::copy_if(slices.begin(), slices.end(), std::back_inserter(kept),
               [](const ir::DataSlice& slice) { return slice.items > 0; });
  return kept;
}

}  // namespace

FieldReader::FieldReader(FileSet& files, const ir::DataField& field,
                         const std::vector<ir::DataSlice>& slices)
    : files_(files), field_(field), slices_(WithItems(slices)) {
  int64_t end = 0;
  for (const ir::DataSlice& slice : slices_) ends_.push_back(end += slice.items);
}

size_t FieldReader::SliceOf(int64_t item) const {
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), item) - ends_.begin());
}

Status FieldReader::Visit(int64_t first, int64_t count, Visitor visit) const {
  MW_CHECK(first >= 0 && count >= 0 && first <= items() - count)
      << "items " << first << "+" << count << " of " << items();
  const int64_t item_bytes = field_.item_bytes();
  for (size_t at = SliceOf(first); count > 0; ++at) {
    const ir::DataSlice& slice = slices_[at];
    MW_CHECK(at < slices_.size()) << "item " << first << " lies behind all slices";
    const int64_t skipped = first - BeginOf(at);
    const int64_t here = std::min(count, slice.items - skipped);
    MW_ASSIGN_OR_RETURN(const auto map, files_.Get(static_cast<size_t>(slice.file)));
    const auto offset = static_cast<size_t>(slice.begin_bytes + skipped * item_bytes);
    MW_TRY(visit(map->bytes().subspan(offset, static_cast<size_t>(here * item_bytes)), first));
    first += here;
    count -= here;
  }
  return OkStatus();
}

std::string FieldReader::Place(int64_t item, const char* noun) const {
  const size_t at = SliceOf(item);
  if (at == slices_.size()) return fmt::format("{} {}", noun, item);
  return fmt::format("{} {} of {}", noun, item - BeginOf(at),
                     files_.ref(static_cast<size_t>(slices_[at].file)).blob.name);
}

}  // namespace meshwright::data
