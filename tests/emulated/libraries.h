// EmulatedLibraries: the parts of a toolkit that a GPU's libraries are, on the host.
//
// Thread rule: as each part says. Ownership: outlives the kernels.
#pragma once

#include <cstdlib>
#include <memory>

#include "ops/cuda/toolkit.h"
#include "tests/emulated/blas.h"
#include "tests/emulated/compiler.h"

namespace meshwright::emulated {

struct EmulatedLibraries {
  explicit EmulatedLibraries(const ops::cuda::CodeCacheOptions& options = CacheOptions())
      : code(compiler, options) {}

  EmulatedCompiler compiler;
  ops::cuda::CodeCache code;
  EmulatedBlas blas;
  // The kernels of head_rows.cu behind tests/emulated/cuda_language.h.
  std::unique_ptr<ops::cuda::HeadRows> head_rows = ops::cuda::MakeHeadRows();

  // Where many processes run one test each, they share what the host's compiler made.
  static ops::cuda::CodeCacheOptions CacheOptions() {
    const char* folder = std::getenv("MESHWRIGHT_TEST_CODE_CACHE");
    if (folder == nullptr || *folder == 0) return {.use_disk = false};
    return {.directory = folder};
  }

  void AddTo(ops::cuda::Toolkit& toolkit) {
    toolkit.kernels = &ops::cuda::OwnKernels();
    toolkit.blas = &blas;
    toolkit.code = &code;
    toolkit.head_rows = head_rows.get();
  }
};

}  // namespace meshwright::emulated
