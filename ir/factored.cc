#include "ir/factored.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace meshwright::ir {
namespace {

// How many of the ordered dims make `size`; nothing where they do not.
std::optional<size_t> DimsThatMake(const Dims& ordered, size_t first, int64_t size) {
  int64_t made = 1;
  size_t at = first;
  while (at < ordered.size() && made < size) made *= ordered[at++];
  if (made != size) return std::nullopt;
  return at - first;
}

// Whether the places are first, first + 1, ... in any order.
bool AreInARow(const std::vector<size_t>& places, size_t first) {
  return std::all_of(places.begin(), places.end(),
                     [&](size_t place) { return place >= first && place < first + places.size(); });
}

}  // namespace

Dims Factored::RowsOf(const Dims& param) const {
  return Dims(param.begin(), param.begin() + matrix_dims + row_dims);
}

Dims Factored::ColumnsOf(const Dims& param) const {
  Dims columns(param.begin(), param.begin() + matrix_dims);
  columns.insert(columns.end(), param.begin() + matrix_dims + row_dims, param.end());
  return columns;
}

Result<Factored> FactoredOf(const Node& param, const TensorType& type) {
  std::vector<int64_t> perm = param.attrs.Ints("export_perm");
  if (perm.size() != type.dims.size()) {
    perm.resize(type.dims.size());
    std::iota(perm.begin(), perm.end(), 0);
  }
  Dims ordered;
  for (const int64_t dim : perm) ordered.push_back(type.dims.at(static_cast<size_t>(dim)));
  const std::vector<int64_t> shape = param.attrs.Ints("export_shape");
  const Dims file = shape.empty() ? ordered : Dims(shape.begin(), shape.end());
  if (file.size() < 2) return Factored{0, static_cast<int64_t>(type.dims.size())};

  const auto refused = [&] {
    return Fail(Unimplemented(fmt::format(
        "adafactor: the rows and columns that \"{}\" has in files are not dims beside each other "
        "of {}; take another optimizer, or freeze it",
        param.attrs.Str("name"), type.ToString())));
  };
  std::vector<std::vector<size_t>> parts(3);  // matrices, rows, columns: places in the param
  size_t at = 0;
  for (size_t d = 0; d < file.size(); ++d) {
    const size_t part = d + 2 < file.size() ? 0 : d + 3 - file.size();
    const bool last = d + 1 == file.size();
    const auto count =
        last ? std::optional(ordered.size() - at) : DimsThatMake(ordered, at, file[d]);
    if (!count) return refused();
    for (size_t i = 0; i < *count; ++i) {
      parts[part].push_back(static_cast<size_t>(perm[at++]));
    }
  }
  const size_t matrices = parts[0].size();
  if (!AreInARow(parts[0], 0)) return refused();
  for (const size_t first : {1, 2}) {
    const std::vector<size_t>& rows = parts[first];
    if (AreInARow(rows, matrices) && AreInARow(parts[3 - first], matrices + rows.size())) {
      return Factored{static_cast<int64_t>(matrices), static_cast<int64_t>(rows.size())};
    }
  }
  return refused();
}

}  // namespace meshwright::ir
