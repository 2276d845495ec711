// A block of memory that processes of one host map together: an unnamed file (memfd).
//
// Its creator tells a peer the handle over a connection that both authenticated; the peer opens
// /proc/<pid>/fd/<fd>, which the kernel allows only to who may trace the creator, and checks size,
// seals and the token behind the data, so that a reused id or another process-id namespace is found
// out. There is no name to leave behind: the kernel frees the memory with its last mapping, also
// after kill -9. The size is sealed: nobody can shrink it under a reader.
//
// Thread rule: none of its own. Ownership: closes the descriptor, not the mappings made from it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "device/device.h"

namespace meshwright::device {

inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

class SharedFile {
 public:
  SharedFile() = default;

  // Zeroed room for `bytes`. Errors: kResourceExhausted with the bytes asked for.
  static Result<SharedFile> Create(int64_t bytes);
  // Errors: kUnavailable when there is no such file or it is not the announced one.
  static Result<SharedFile> Open(const SharedHandle& handle);

  // What to tell a peer. REQUIRES valid().
  const SharedHandle& handle() const { return handle_; }
  bool valid() const { return fd_.valid(); }

  // The first handle().bytes rounded up to whole pages, nothing present yet; large blocks start at
  // a 2 MiB boundary. The caller unmaps. Errors: kResourceExhausted.
  Result<std::byte*> Map() const;
  // What Map() maps for `bytes`.
  static int64_t MappedBytes(int64_t bytes);

  // Mappings stay; nobody can open the file any more.
  void Close();

 private:
  UniqueFd fd_;
  SharedHandle handle_;
};

}  // namespace meshwright::device
