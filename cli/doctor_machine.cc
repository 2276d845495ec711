// The probes of this machine.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/clock.h"
#include "base/file.h"
#include "base/os_error.h"
#include "base/unique_fd.h"
#include "cli/doctor.h"

namespace meshwright::cli {
namespace {

constexpr size_t kProbeBytes = size_t{32} << 20;

// The folder, or the nearest one above it that is there.
std::string NearestFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error);
  while (!std::filesystem::is_directory(at, error) && at.has_parent_path() &&
         at != at.parent_path()) {
    at = at.parent_path();
  }
  return at.string();
}

ProcessLimit LimitOf(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return {};
  const auto number = [](rlim_t value) {
    return value == RLIM_INFINITY ? int64_t{-1} : static_cast<int64_t>(value);
  };
  return {number(limit.rlim_cur), number(limit.rlim_max)};
}

int CoresAllowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

Result<DiskSpace> SpaceOf(const std::string& path) {
  struct statvfs info {};
  const std::string folder = NearestFolder(path);
  if (::statvfs(folder.c_str(), &info) != 0) return Fail(OsError(errno, folder));
  const auto unit = static_cast<int64_t>(info.f_frsize);
  return DiskSpace{static_cast<int64_t>(info.f_bavail) * unit,
                   static_cast<int64_t>(info.f_blocks) * unit};
}

Result<double> WriteSpeed(const std::string& path) {
  const std::string file = fmt::format("{}/.meshwright-doctor-{}", NearestFolder(path), ::getpid());
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return Fail(OsError(errno, file));
  (void)::unlink(file.c_str());
  const std::string block(size_t{1} << 20, 'm');
  const int64_t begin_ns = SystemClock().NowNs();
  for (size_t written = 0; written < kProbeBytes; written += block.size()) {
    if (::write(fd.get(), block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
      return Fail(OsError(errno == 0 ? ENOSPC : errno, "write " + file));
    }
  }
  if (::fsync(fd.get()) != 0) return Fail(OsError(errno, "fsync " + file));
  const auto ns = static_cast<double>(SystemClock().NowNs() - begin_ns);
  return static_cast<double>(kProbeBytes >> 20) * 1e9 / ns;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> AddressesOf(const std::string& host, const char* port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port, &hints, &found);
  if (error != 0) return Fail(NotFound(::gai_strerror(error)));
  return AddressList(found, &::freeaddrinfo);
}

Result<std::string> Resolve(const std::string& host) {
  MW_ASSIGN_OR_RETURN(const AddressList list, AddressesOf(host, nullptr));
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(list->ai_addr, list->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return Fail(NotFound("it has no address that can be written"));
  }
  return std::string(text.data());
}

Status Dial(const std::string& host_port, int64_t timeout_ms) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string::npos) return InvalidArgument("it is no host:port");
  std::string host = host_port.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  MW_ASSIGN_OR_RETURN(const AddressList list,
                      AddressesOf(host, host_port.substr(colon + 1).c_str()));
  const UniqueFd fd(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return OsError(errno, "socket");
  if (::connect(fd.get(), list->ai_addr, list->ai_addrlen) == 0) return OkStatus();
  if (errno != EINPROGRESS) return OsError(errno, "connect");
  pollfd wait{fd.get(), POLLOUT, 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(timeout_ms));
  if (ready == 0) return DeadlineExceeded(fmt::format("no answer within {} ms", timeout_ms));
  int error = 0;
  socklen_t size = sizeof(error);
  (void)::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? OkStatus() : OsError(error, "connect");
}

// What the functions of CUDA, NCCL and cuDNN say of their version.
std::string VersionText(const std::string& function, int64_t number) {
  if (function == "cuDriverGetVersion") {
    return fmt::format("CUDA {}.{}", number / 1000, number % 1000 / 10);
  }
  if (function == "ncclGetVersion") {
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  }
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

LibraryFacts LibraryOf(const std::string& name, const std::string& function) {
  LibraryFacts facts;
  void* const library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = ::dlerror();
    facts.error = error == nullptr ? name : error;
    return facts;
  }
  facts.found = true;
  // Left open: libraries of drivers have threads.
  void* const symbol = function.empty() ? nullptr : ::dlsym(library, function.c_str());
  if (symbol == nullptr) return facts;
  if (function == "cudnnGetVersion") {
    facts.version =
        VersionText(function, static_cast<int64_t>(reinterpret_cast<size_t (*)()>(symbol)()));
    return facts;
  }
  int number = 0;
  if (reinterpret_cast<int (*)(int*)>(symbol)(&number) == 0 && number > 0) {
    facts.version = VersionText(function, number);
  }
  return facts;
}

std::optional<FileFacts> FileOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileFacts{info.st_mode & 07777U, info.st_uid == ::geteuid() || info.st_uid == 0};
}

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace

Machine ThisMachine(int64_t timeout_ms) {
  Machine machine;
  machine.read = [](const std::string& path) -> std::optional<std::string> {
    auto text = ReadFile(path);
    return text.has_value() ? std::optional(*std::move(text)) : std::nullopt;
  };
  machine.cores_online = [] { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); };
  machine.cores_allowed = CoresAllowed;
  machine.open_files = [] { return LimitOf(RLIMIT_NOFILE); };
  machine.locked_memory = [] { return LimitOf(RLIMIT_MEMLOCK); };
  machine.space = SpaceOf;
  machine.write_speed = WriteSpeed;
  machine.resolve = Resolve;
  machine.dial = [timeout_ms](const std::string& host_port) { return Dial(host_port, timeout_ms); };
  machine.library = LibraryOf;
  machine.file = FileOf;
  machine.host_name = HostName;
  return machine;
}

}  // namespace meshwright::cli
