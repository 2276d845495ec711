#include "base/os_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace meshwright {
namespace {

StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case EEXIST:
    case EADDRINUSE:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return StatusCode::kResourceExhausted;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
    case EADDRNOTAVAIL:
    case ENOEXEC:
      return StatusCode::kInvalidArgument;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EPIPE:
    case EAGAIN:
      return StatusCode::kUnavailable;
    case EIO:
      return StatusCode::kDataLoss;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

Status OsError(int error_number, std::string_view what, const char* file, int line) {
  // generic_category().message is thread-safe, strerror is not.
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return Status(CodeOf(error_number),
                fmt::format("{}: {}{}", what, std::generic_category().message(error_number),
                            full ? "; free space there or choose another folder" : ""),
                file, line);
}

}  // namespace meshwright
