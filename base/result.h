// Result<T>: a value or the Status that explains why there is none, and the macros that pass
// failures on.
//
// The carrier is tl::expected (same surface as std::expected, which nvcc's C++20 does not have).
#pragma once

#include <tl/expected.hpp>
#include <utility>

#include "base/status.h"

namespace meshwright {

template <typename T>
using Result = tl::expected<T, Status>;

namespace internal {
inline Status ToStatus(Status status) { return status; }
template <typename T>
Status ToStatus(const Result<T>& result) {
  return result.has_value() ? Status() : result.error();
}

// Converts to both Status and Result<T>, so that one macro serves functions of either kind.
struct Failure {
  Status status;
  operator Status() const { return status; }  // NOLINT(google-explicit-constructor)
  template <typename T>
  operator Result<T>() const {  // NOLINT(google-explicit-constructor)
    return tl::unexpected(status);
  }
};
}  // namespace internal

// `return Fail(InvalidArgument("..."))` from a function that returns a Result or a Status.
inline internal::Failure Fail(Status status) { return internal::Failure{std::move(status)}; }

}  // namespace meshwright

#define MW_CONCAT_INNER(a, b) a##b
#define MW_CONCAT(a, b) MW_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status or a Result) failed.
#define MW_TRY(expr)                                                                         \
  do {                                                                                       \
    if (::meshwright::Status mw_status = ::meshwright::internal::ToStatus(expr);             \
        !mw_status.ok()) {                                                                   \
      return ::meshwright::Fail(mw_status.WithLocation(__builtin_FILE(), __builtin_LINE())); \
    }                                                                                        \
  } while (false)

// MW_ASSIGN_OR_RETURN(auto value, Compute()): binds the value or returns the failure.
#define MW_ASSIGN_OR_RETURN(lhs, expr) \
  MW_ASSIGN_OR_RETURN_INNER(MW_CONCAT(mw_result_, __COUNTER__), lhs, expr)
#define MW_ASSIGN_OR_RETURN_INNER(result, lhs, expr)                                            \
  auto result = (expr);                                                                         \
  if (!result.has_value()) {                                                                    \
    return ::meshwright::Fail(result.error().WithLocation(__builtin_FILE(), __builtin_LINE())); \
  }                                                                                             \
  lhs = std::move(*result)
