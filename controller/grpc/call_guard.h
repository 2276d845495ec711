// What every handler does first and last: check the token, measure the call.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "base/clock.h"
#include "controller/auth.h"
#include "controller/metrics.h"
#include "proto/grpc_status.h"

namespace meshwright::controller {

inline Status CheckCall(const grpc::ServerContextBase& context, const std::string& token) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find("authorization");
  const std::string value =
      it == metadata.end() ? std::string() : std::string(it->second.data(), it->second.size());
  return CheckAuthorization(token, value);
}

// Measures from its making to Done().
class CallTimer {
 public:
  CallTimer(ControllerMetrics* metrics, const char* service, const char* method)
      : metrics_(metrics), service_(service), method_(method), begin_ns_(SystemClock().NowNs()) {}

  grpc::Status Done(const Status& status) const {
    metrics_->ObserveRpc(service_, method_, status.code(),
                         static_cast<double>(SystemClock().NowNs() - begin_ns_) * 1e-9);
    return proto::ToGrpc(status);
  }

 private:
  ControllerMetrics* metrics_;
  const char* service_;
  const char* method_;
  int64_t begin_ns_;
};

}  // namespace meshwright::controller
