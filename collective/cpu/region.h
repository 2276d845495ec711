// A mapped block of zeroed, 64-byte aligned memory: private to this process, or shared with another
// process of the host.
//
// A shared region is an unnamed memfd. Its creator tells the peer (process id, descriptor, token);
// the peer opens /proc/<pid>/fd/<fd> and checks the token at the start of the region, so that a
// reused id or another process-id namespace is found out. There is no name to leave behind: the
// kernel frees it with its last mapping, also after kill -9. The size is sealed: no peer can shrink
// it under a reader.
//
// Thread rule: none of its own. Ownership: unmaps and closes in its destructor; movable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace meshwright::collective {

// Where a peer finds a shared region.
struct RegionHandle {
  int64_t process_id = 0;  // of the operating system
  int32_t descriptor = -1;
  int64_t bytes = 0;
  std::array<uint64_t, 2> token{};
};

class Region {
 public:
  // The first bytes of a shared region hold the token; users start behind it.
  static constexpr int64_t kSharedHeaderBytes = 64;

  Region() = default;
  Region(Region&& other) noexcept { *this = std::move(other); }
  Region& operator=(Region&& other) noexcept;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  // Errors: kResourceExhausted with the bytes asked for.
  static Result<Region> Private(int64_t bytes);
  static Result<Region> CreateShared(int64_t bytes);
  // Errors: kUnavailable when the region cannot be opened or is not the announced one.
  static Result<Region> OpenShared(const RegionHandle& handle);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // What to tell the peer. REQUIRES CreateShared and no CloseDescriptor() yet.
  const RegionHandle& handle() const { return handle_; }
  // The mapping stays; nobody can open the region any more.
  void CloseDescriptor();

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  RegionHandle handle_;
};

}  // namespace meshwright::collective
