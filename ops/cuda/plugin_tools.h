// What the plugin's libraries offer, one maker per library; implemented in *.cu. Our own kernels
// have makers beside their interfaces.
//
// Thread rule: as each part says. None needs a GPU to be made.
#pragma once

#include <memory>

#include "ops/cuda/blas.h"
#include "ops/cuda/compiler.h"
#include "ops/cuda/sdpa.h"

namespace meshwright::ops::cuda {

std::unique_ptr<Blas> MakeCublasLt();
std::unique_ptr<Compiler> MakeNvrtcCompiler();
std::unique_ptr<Sdpa> MakeCudnnSdpa();

}  // namespace meshwright::ops::cuda
