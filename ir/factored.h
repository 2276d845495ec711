// Which dims of a param make the rows and which the columns of the matrix whose squared gradients
// Adafactor remembers by sums alone.
//
// It is the matrix that the param is in files (export_perm, export_shape of ir/op.h): heads may be
// dims of their own here, and a matrix may lie transposed, which changes nothing, since rows and
// columns mean the same. Of a file's tensor of more dims the last two make a matrix each, and the
// others count them. What has one dim in files is not factored: each element is a row of its own,
// and there is one column.
//
//   a param       [matrices.., first.., second..]
//   opt.r/NAME    [matrices.., first..]      means over `second`
//   opt.c/NAME    [matrices.., second..]     means over `first`
//
// Thread rule: pure functions.
// Source: Shazeer & Stern, "Adafactor", ICML'18, section 3.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

// Of an op adamw; with them it is Adafactor's, of (p, g, rows, columns, multiplier, lr).
inline constexpr char kMatrixDimsAttr[] = "matrix_dims";  // int: how many dims count matrices
inline constexpr char kRowDimsAttr[] = "row_dims";        // int: how many behind them are rows
inline constexpr char kRowsPrefix[] = "opt.r/";
inline constexpr char kColumnsPrefix[] = "opt.c/";

inline bool IsFactored(const Attrs& attrs) { return attrs.Has(kRowDimsAttr); }

struct Factored {
  int64_t matrix_dims = 0;
  int64_t row_dims = 0;
  friend bool operator==(const Factored&, const Factored&) = default;

  Dims RowsOf(const Dims& param) const;
  Dims ColumnsOf(const Dims& param) const;
};

// Of a param node. Errors: kUnimplemented naming the param: in its file rows and columns mix dims
// that do not stand beside each other here.
Result<Factored> FactoredOf(const Node& param, const TensorType& type);

}  // namespace meshwright::ir
