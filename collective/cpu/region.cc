#include "collective/cpu/region.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace meshwright::collective {

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(file_, other.file_);
  return *this;
}

Region::~Region() {
  if (data_ != nullptr) {
    munmap(data_, static_cast<size_t>(mapped_bytes_));
  }
}

Result<Region> Region::Private(int64_t bytes) {
  void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return Fail(ResourceExhausted(fmt::format(
        "cannot map {} bytes of transfer buffers: {}; lower channel capacities or raise the "
        "memory limit",
        bytes, std::strerror(errno))));
  }
  Region region;
  region.data_ = static_cast<std::byte*>(address);
  region.bytes_ = region.mapped_bytes_ = bytes;
  return region;
}

Result<Region> Region::CreateShared(int64_t bytes) {
  MW_ASSIGN_OR_RETURN(device::SharedFile file, device::SharedFile::Create(bytes));
  return Map(std::move(file));
}

Result<Region> Region::OpenShared(const RegionHandle& handle) {
  MW_ASSIGN_OR_RETURN(device::SharedFile file, device::SharedFile::Open(handle));
  MW_ASSIGN_OR_RETURN(Region region, Map(std::move(file)));
  region.CloseDescriptor();  // the mapping keeps the memory
  return region;
}

Result<Region> Region::Map(device::SharedFile file) {
  Region region;
  MW_ASSIGN_OR_RETURN(region.data_, file.Map());
  region.bytes_ = file.handle().bytes;
  region.mapped_bytes_ = device::SharedFile::MappedBytes(region.bytes_);
  region.file_ = std::move(file);
  return region;
}

}  // namespace meshwright::collective
