// Staging: large copies between any memory of the host and that of a device, through two pinned
// chunks, so that one is filled while the other is on its way.
//
// Thread rule: one thread at a time, and none of the device's computing queue meanwhile. Ownership:
// may not outlive the device.
#pragma once

#include <array>
#include <memory>

#include "device/device.h"

namespace meshwright::device {

class Staging {
 public:
  static Result<std::unique_ptr<Staging>> Make(Device& device);

  // Both return when it is done. Errors: the queue's; kDeadlineExceeded.
  Status Write(void* to, const void* host, int64_t bytes);
  Status Read(void* host, const void* from, int64_t bytes);

 private:
  explicit Staging(Device& device) : device_(device) {}
  Status Finish();

  Device& device_;
  std::array<std::unique_ptr<HostMemory>, 2> chunks_;  // none on a CPU, which needs none
};

}  // namespace meshwright::device
