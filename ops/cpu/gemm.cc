#include "ops/cpu/gemm.h"

#include <dlfcn.h>
#include <dnnl.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::ops::cpu {
namespace {

struct Layout {
  char transposed = 'N';
  int64_t leading = 1;
};

// Row-major view of a [rows, columns] matrix for the BLAS call.
template <typename M>
Layout LayoutOf(const M& x, int64_t rows, int64_t columns) {
  if (x.column_stride == 1 || columns == 1) {
    return {'N', rows == 1 ? columns : std::max(x.row_stride, columns)};
  }
  MW_CHECK(x.row_stride == 1 || rows == 1)
      << "gemm operand [" << rows << "," << columns << "] has strides " << x.row_stride << ","
      << x.column_stride;
  return {'T', columns == 1 ? rows : std::max(x.column_stride, rows)};
}

void Clear(const Matrix& c, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) c.data[i * c.row_stride + j * c.column_stride] = 0;
  }
}

}  // namespace

// The number of OpenMP threads is a setting of the calling thread; libgomp comes with oneDNN and is
// looked up, not linked.
void ForceOneOpenMpThread() {
  using SetThreads = void (*)(int);
  static const SetThreads set_threads =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  thread_local bool done = false;
  if (done) return;
  if (set_threads != nullptr) set_threads(1);
  done = true;
}

void Gemm(GemmSize size, ConstMatrix a, ConstMatrix b, Matrix c, bool accumulate) {
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0) {
    if (!accumulate) Clear(c, size.m, size.n);
    return;
  }
  if (LayoutOf(c, size.m, size.n).transposed == 'T') {
    std::swap(size.m, size.n);
    std::swap(a, b);
    a = Transposed(a);
    b = Transposed(b);
    std::swap(c.row_stride, c.column_stride);
  }
  ForceOneOpenMpThread();
  const Layout la = LayoutOf(a, size.m, size.k);
  const Layout lb = LayoutOf(b, size.k, size.n);
  const Layout lc = LayoutOf(c, size.m, size.n);
  const dnnl_status_t status =
      dnnl_sgemm(la.transposed, lb.transposed, size.m, size.n, size.k, 1.0f, a.data, la.leading,
                 b.data, lb.leading, accumulate ? 1.0f : 0.0f, c.data, lc.leading);
  MW_CHECK(status == dnnl_success) << "dnnl_sgemm " << size.m << "x" << size.n << "x" << size.k
                                   << " returned " << static_cast<int>(status);
}

}  // namespace meshwright::ops::cpu
