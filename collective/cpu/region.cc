#include "collective/cpu/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace meshwright::collective {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<std::byte*> Map(int64_t bytes, int flags, int fd) {
  void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) {
    return Fail(ResourceExhausted(fmt::format(
        "cannot map {} bytes of transfer buffers: {}; lower channel capacities or raise the "
        "memory limit",
        bytes, std::strerror(errno))));
  }
  return static_cast<std::byte*>(address);
}

}  // namespace

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(handle_, other.handle_);
  return *this;
}

Region::~Region() {
  CloseDescriptor();
  if (data_ != nullptr) {
    munmap(data_, static_cast<size_t>(bytes_));
  }
}

void Region::CloseDescriptor() {
  if (handle_.descriptor >= 0) {
    close(handle_.descriptor);
    handle_.descriptor = -1;
  }
}

Result<Region> Region::Private(int64_t bytes) {
  Region region;
  MW_ASSIGN_OR_RETURN(region.data_, Map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  region.bytes_ = bytes;
  return region;
}

Result<Region> Region::CreateShared(int64_t bytes) {
  Region region;
  const int fd = memfd_create("meshwright-pipes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    return Fail(
        ResourceExhausted(fmt::format("cannot create shared memory: {}", std::strerror(errno))));
  }
  region.handle_ = {getpid(), fd, bytes, {}};
  if (ftruncate(fd, bytes) != 0 || fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    return Fail(ResourceExhausted(
        fmt::format("cannot size shared memory to {} bytes: {}", bytes, std::strerror(errno))));
  }
  auto& token = region.handle_.token;
  if (getrandom(token.data(), sizeof(token), 0) != static_cast<ssize_t>(sizeof(token))) {
    return Fail(Unavailable(fmt::format("no random bytes: {}", std::strerror(errno))));
  }
  MW_ASSIGN_OR_RETURN(region.data_, Map(bytes, MAP_SHARED, fd));
  region.bytes_ = bytes;
  std::memcpy(region.data_, token.data(), sizeof(token));
  return region;
}

Result<Region> Region::OpenShared(const RegionHandle& handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process_id, handle.descriptor);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) {
    return Fail(Unavailable(fmt::format("cannot open {}: {}", path, std::strerror(errno))));
  }
  struct stat info {};
  const bool usable = fstat(fd, &info) == 0 && info.st_size == handle.bytes &&
                      handle.bytes >= kSharedHeaderBytes && fcntl(fd, F_GET_SEALS) == kSeals;
  if (!usable) {
    close(fd);
    return Fail(
        Unavailable(fmt::format("{} is not the announced region of {} bytes", path, handle.bytes)));
  }
  Result<std::byte*> data = Map(handle.bytes, MAP_SHARED, fd);
  close(fd);  // the mapping keeps the memory
  MW_TRY(data);
  Region region;
  region.data_ = *data;
  region.bytes_ = handle.bytes;
  if (std::memcmp(region.data_, handle.token.data(), sizeof(handle.token)) != 0) {
    return Fail(Unavailable(fmt::format("{} holds another region: token mismatch", path)));
  }
  return region;
}

}  // namespace meshwright::collective
