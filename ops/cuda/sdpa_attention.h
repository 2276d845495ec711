// Attention ops by a library's kernels, where it has them.
//
// Thread rule: pure construction. Ownership: device and toolkit outlive the kernel.
#pragma once

#include <optional>

#include "ops/cuda/library_kernels.h"
#include "ops/cuda/sdpa.h"

namespace meshwright::ops::cuda {

// attention, attention_qkv and their gradients. Null when the toolkit has no library, the library
// does not take the shape, or the op has segments or a dropout: our own kernel is then meant.
KernelResult TryMakeSdpa(const KernelSpec& spec, CudaDevice& device, Toolkit& toolkit);

// The most batch rows, or of one row the most kv heads with their query heads, whose scores take at
// most this memory; the op is so many equal parts. A forward is one part. Null when one kv head
// takes more.
std::optional<SdpaShape> PartOf(const SdpaShape& whole, int64_t most_score_bytes);

}  // namespace meshwright::ops::cuda
