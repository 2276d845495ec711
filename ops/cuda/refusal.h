// What a library says when a kernel is chosen may be "not that": then our own code does it. Whether
// that is so, or the device is gone.
//
// Thread rule: thread-safe.
#pragma once

#include "base/status.h"
#include "device/cuda/device.h"

namespace meshwright::ops::cuda {

// True: go on without the library; said once per message, as it is slower than planned. Not said
// when `expected`, a refusal that is an answer like any other.
bool MayDoWithout(const Status& refusal, const device::cuda::CudaDevice& device, bool expected);

}  // namespace meshwright::ops::cuda
