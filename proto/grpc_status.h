// Status <-> grpc::Status. Codes have the same numbers; the bridge is a cast.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "base/status.h"

namespace meshwright::proto {

inline grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

inline Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known = code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return Status(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
                status.error_message());
}

}  // namespace meshwright::proto
