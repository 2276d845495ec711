#include "device/cpu/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace meshwright::device {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A page behind the data holds the token.
int64_t FileBytes(int64_t bytes) { return SharedFile::MappedBytes(bytes) + sysconf(_SC_PAGESIZE); }

Status NoRoom(int64_t bytes) {
  return ResourceExhausted(
      fmt::format("sharing {} bytes of host memory: {}", bytes, std::strerror(errno)));
}

}  // namespace

int64_t SharedFile::MappedBytes(int64_t bytes) {
  return AlignUp(std::max<int64_t>(bytes, 1), sysconf(_SC_PAGESIZE));
}

Result<SharedFile> SharedFile::Create(int64_t bytes) {
  SharedFile file;
  file.fd_ = UniqueFd(memfd_create("meshwright", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.fd_.valid()) return Fail(NoRoom(bytes));
  file.handle_ = {getpid(), file.fd_.get(), bytes, {}};
  auto& token = file.handle_.token;
  if (getrandom(token.data(), sizeof(token), 0) != static_cast<ssize_t>(sizeof(token))) {
    return Fail(Unavailable(fmt::format("no random bytes: {}", std::strerror(errno))));
  }
  const bool made = ftruncate(file.fd_.get(), FileBytes(bytes)) == 0 &&
                    pwrite(file.fd_.get(), token.data(), sizeof(token), MappedBytes(bytes)) ==
                        static_cast<ssize_t>(sizeof(token)) &&
                    fcntl(file.fd_.get(), F_ADD_SEALS, kSeals) == 0;
  if (!made) return Fail(NoRoom(bytes));
  return file;
}

Result<SharedFile> SharedFile::Open(const SharedHandle& handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process_id, handle.descriptor);
  SharedFile file;
  file.fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.fd_.valid()) {
    return Fail(Unavailable(fmt::format("cannot open {}: {}", path, std::strerror(errno))));
  }
  file.handle_ = handle;
  struct stat info {};
  const int fd = file.fd_.get();
  const bool usable = handle.bytes > 0 && fstat(fd, &info) == 0 &&
                      info.st_size == FileBytes(handle.bytes) && fcntl(fd, F_GET_SEALS) == kSeals;
  if (!usable) {
    return Fail(
        Unavailable(fmt::format("{} is not the announced block of {} bytes", path, handle.bytes)));
  }
  auto token = handle.token;
  if (pread(fd, token.data(), sizeof(token), MappedBytes(handle.bytes)) !=
          static_cast<ssize_t>(sizeof(token)) ||
      token != handle.token) {
    return Fail(Unavailable(fmt::format("{} holds another block: token mismatch", path)));
  }
  return file;
}

Result<std::byte*> SharedFile::Map() const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const auto bytes = static_cast<size_t>(MappedBytes(handle_.bytes));
  const auto alignment =
      static_cast<size_t>(handle_.bytes >= kHugePageBytes ? kHugePageBytes : page);
  const size_t reserved = bytes + alignment;
  void* base =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return Fail(NoRoom(handle_.bytes));
  auto* begin = static_cast<std::byte*>(base);
  const size_t past = reinterpret_cast<uintptr_t>(begin) % alignment;
  std::byte* data = begin + (past == 0 ? 0 : alignment - past);
  const void* mapped =
      mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_.get(), 0);
  if (mapped == MAP_FAILED) {
    const Status status = NoRoom(handle_.bytes);
    munmap(base, reserved);
    return Fail(status);
  }
  if (data != begin) munmap(begin, static_cast<size_t>(data - begin));
  if (begin + reserved != data + bytes) {
    munmap(data + bytes, static_cast<size_t>(begin + reserved - (data + bytes)));
  }
  return data;
}

void SharedFile::Close() {
  fd_ = UniqueFd();
  handle_.descriptor = -1;
}

}  // namespace meshwright::device
