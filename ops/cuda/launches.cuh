// The launches behind OwnKernels(), one function per kernel or chain of kernels, each in the .cu
// file of its family. For .cu files only.
//
// Thread rule: as Kernels.
#pragma once

#include "ops/cuda/kernels.h"

namespace meshwright::ops::cuda::launches {

#define MW_KERNEL_LAUNCH(Name) Code Name(const Name##Args& args, StreamHandle stream);
MW_FOR_EACH_KERNEL(MW_KERNEL_LAUNCH)
#undef MW_KERNEL_LAUNCH

}  // namespace meshwright::ops::cuda::launches
