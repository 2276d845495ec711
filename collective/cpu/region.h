// A mapped block of zeroed, 64-byte aligned memory: private to this process, or shared with other
// processes of the host (device/cpu/shared_file.h). Pages become present when they are touched.
//
// Thread rule: none of its own. Ownership: unmaps and closes in its destructor; movable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "device/cpu/shared_file.h"

namespace meshwright::collective {

// Where a peer finds a shared region.
using RegionHandle = device::SharedHandle;

class Region {
 public:
  Region() = default;
  Region(Region&& other) noexcept { *this = std::move(other); }
  Region& operator=(Region&& other) noexcept;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  // Errors: kResourceExhausted with the bytes asked for.
  static Result<Region> Private(int64_t bytes);
  static Result<Region> CreateShared(int64_t bytes);
  // A region, or the memory of a device, of another process. Errors: kUnavailable when it cannot be
  // opened or is not the announced one.
  static Result<Region> OpenShared(const RegionHandle& handle);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // What to tell the peer. REQUIRES CreateShared and no CloseDescriptor() yet.
  const RegionHandle& handle() const { return file_.handle(); }
  // The mapping stays; nobody can open the region any more.
  void CloseDescriptor() { file_.Close(); }

 private:
  static Result<Region> Map(device::SharedFile file);

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t mapped_bytes_ = 0;
  device::SharedFile file_;
};

}  // namespace meshwright::collective
