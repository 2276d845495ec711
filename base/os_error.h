// OsError: the one conversion from errno to Status.
#pragma once

#include <string_view>

#include "base/status.h"

namespace meshwright {

// "<what>: <strerror>", with the code that tells the caller what to do:
// kNotFound ENOENT ENOTDIR · kPermissionDenied EACCES EPERM EROFS · kAlreadyExists EEXIST
// EADDRINUSE · kResourceExhausted ENOSPC EDQUOT ENOMEM EMFILE ENFILE EFBIG · kDeadlineExceeded
// ETIMEDOUT · kInvalidArgument EINVAL EISDIR ENAMETOOLONG EADDRNOTAVAIL ENOEXEC · kUnavailable
// ECONN* EAGAIN EHOSTUNREACH EPIPE · kDataLoss EIO · kInternal otherwise.
Status OsError(int error_number, std::string_view what, const char* file = __builtin_FILE(),
               int line = __builtin_LINE());

}  // namespace meshwright
