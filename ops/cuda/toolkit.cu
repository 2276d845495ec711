// What the plugin has of a toolkit.
#include "ops/cuda/toolkit.h"

#include "ops/cuda/plugin_tools.h"

namespace cuda = meshwright::ops::cuda;

extern "C" __attribute__((visibility("default"))) cuda::Parts meshwright_cuda_parts() {
  // Never destroyed: at the end of a process CUDA's runtime may be gone before them.
  static cuda::Blas* const blas = cuda::MakeCublasLt().release();
  static cuda::Compiler* const compiler = cuda::MakeNvrtcCompiler().release();
  static cuda::HeadRows* const head_rows = cuda::MakeHeadRows().release();
#ifdef MESHWRIGHT_CUDNN
  static cuda::Sdpa* const sdpa = cuda::MakeCudnnSdpa().release();
#else
  static cuda::Sdpa* const sdpa = nullptr;
#endif
  return {&cuda::OwnKernels(), blas, compiler, head_rows, sdpa};
}
