// einsum by offset tables: any equation is a batch of (m x k) by (k x n) products whose row, column
// and depth positions are looked up. Columns are taken 512 at a time, packed as doubles, so that
// the inner loop is contiguous for every layout.
#include <algorithm>
#include <span>
#include <vector>

#include "ops/einsum_plan.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

constexpr int64_t kColumns = 512;
constexpr int64_t kRows = 4;  // rows that share one pass over the packed columns

// Offsets of every combination of a list of loops, major first.
struct OffsetTable {
  std::vector<int64_t> a;
  std::vector<int64_t> b;
  std::vector<int64_t> c;
  size_t size() const { return a.size(); }
};

OffsetTable Expand(const std::vector<EinsumLoop>& loops) {
  OffsetTable table{{0}, {0}, {0}};
  for (const EinsumLoop& loop : loops) {
    OffsetTable next;
    for (size_t i = 0; i < table.size(); ++i) {
      for (int64_t j = 0; j < loop.size; ++j) {
        next.a.push_back(table.a[i] + j * loop.a);
        next.b.push_back(table.b[i] + j * loop.b);
        next.c.push_back(table.c[i] + j * loop.c);
      }
    }
    table = std::move(next);
  }
  return table;
}

template <typename T>
class EinsumKernel final : public Kernel {
 public:
  explicit EinsumKernel(const EinsumLoops& loops)
      : batch_(Expand(loops.batch)),
        m_(Expand(loops.m)),
        n_(Expand(loops.n)),
        k_(Expand(loops.k)),
        packed_(k_.size() * kColumns),
        sums_(kRows * kColumns) {}

  Status Run(const RunContext&, Inputs inputs, Outputs outputs) override {
    for (size_t i = 0; i < batch_.size(); ++i) {
      const T* b = inputs[1].as<T>() + batch_.b[i];
      for (size_t first = 0; first < n_.size(); first += kColumns) {
        const size_t columns = std::min<size_t>(kColumns, n_.size() - first);
        Pack(b, first, columns);
        for (size_t row = 0; row < m_.size(); row += kRows) {
          MultiplyRows(inputs[0].as<T>() + batch_.a[i], row, columns);
          for (size_t r = 0; r < std::min<size_t>(kRows, m_.size() - row); ++r) {
            const int64_t at = batch_.c[i] + m_.c[row + r];
            Store(r, {n_.c.data() + first, columns},
                  inputs.size() > 2 ? inputs[2].as<T>() + at : nullptr, outputs[0].as<T>() + at);
          }
        }
      }
    }
    return {};
  }

 private:
  void Pack(const T* b, size_t first, size_t columns) {
    for (size_t k = 0; k < k_.size(); ++k) {
      const T* source = b + k_.b[k];
      double* target = packed_.data() + k * columns;
      for (size_t j = 0; j < columns; ++j) target[j] = source[n_.b[first + j]];
    }
  }

  // Row r of the sums, added to what `added` has; it may be `c` itself.
  void Store(size_t r, std::span<const int64_t> offsets, const T* added, T* c) const {
    const double* sums = sums_.data() + r * kColumns;
    for (size_t j = 0; j < offsets.size(); ++j) {
      const double start = added == nullptr ? 0 : static_cast<double>(added[offsets[j]]);
      c[offsets[j]] = static_cast<T>(start + sums[j]);
    }
  }

  void MultiplyRows(const T* a, size_t row, size_t columns) {
    const size_t rows = std::min<size_t>(kRows, m_.size() - row);
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (size_t k = 0; k < k_.size(); ++k) {
      const double* packed = packed_.data() + k * columns;
      for (size_t r = 0; r < rows; ++r) {
        const double factor = a[m_.a[row + r] + k_.a[k]];
        double* sums = sums_.data() + r * kColumns;
        for (size_t j = 0; j < columns; ++j) sums[j] += factor * packed[j];
      }
    }
  }

  OffsetTable batch_;
  OffsetTable m_;
  OffsetTable n_;
  OffsetTable k_;
  std::vector<double> packed_;
  std::vector<double> sums_;
};

}  // namespace

KernelResult MakeEinsum(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const EinsumLoops loops,
                      ClassifyEinsum(spec.attrs.Str("equation"), spec.inputs[0].dims,
                                     spec.inputs[1].dims, spec.outputs[0].dims));
  return ForFloatType(spec, spec.outputs[0].dtype, [&](auto zero) -> KernelResult {
    return std::unique_ptr<Kernel>(std::make_unique<EinsumKernel<decltype(zero)>>(loops));
  });
}

}  // namespace meshwright::ops::reference
