// What every handler does first and last: ask who calls, measure the call.
#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "base/clock.h"
#include "controller/access.h"
#include "controller/metrics.h"
#include "proto/grpc_status.h"
#include "security/grpc/credentials.h"

namespace meshwright::controller {

inline Shown ShownBy(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find("authorization");
  const security::Peer peer = security::PeerOf(context);
  Shown shown;
  if (it != metadata.end()) shown.authorization.assign(it->second.data(), it->second.size());
  shown.over_tls = peer.over_tls;
  shown.certificate = peer.subject;
  shown.from = peer.address;
  return shown;
}

// `method`: "/meshwright.v1.JobService/Submit". Errors: those of Access::Check.
inline Result<Caller> CheckCall(const grpc::ServerContextBase& context, const Access& access,
                                std::string_view method) {
  return access.Check(method, ShownBy(context));
}

// For a call whose request says upon what it acts. One of a caller who is known and may not is read
// all the same, so that the audit log has it; one of a stranger is refused here.
inline Admission AdmitCall(const grpc::ServerContextBase& context, const Access& access,
                           std::string_view method) {
  Admission admission = access.Admit(method, ShownBy(context));
  if (!admission.known) access.Refused(method, admission, "");
  return admission;
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
