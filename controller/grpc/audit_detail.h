// Upon what a call acts, for the audit log: "job 12", "worker w0".
//
// Thread rule: pure.
#pragma once

#include <fmt/format.h>

#include <string>

#include "proto/meshwright.pb.h"

namespace meshwright::controller {

// As `meshwright worker` has it.
inline const char* OrderWord(v1::WorkerOrder order) {
  switch (order) {
    case v1::WORKER_ORDER_CORDON:
      return "cordon";
    case v1::WORKER_ORDER_UNCORDON:
      return "uncordon";
    case v1::WORKER_ORDER_DRAIN:
      return "drain";
    case v1::WORKER_ORDER_EVICT:
      return "evict";
    default:
      return "an order that is none";
  }
}

// What a request names, as far as it does.
template <typename Request>
std::string AuditDetail(const Request& request) {
  if constexpr (requires {
                  request.job_id();
                  request.step();
                }) {
    return fmt::format("job {}, step {}", request.job_id(), request.step());
  } else if constexpr (requires { request.job_id(); }) {
    return request.job_id() == 0 ? "" : fmt::format("job {}", request.job_id());
  } else if constexpr (requires {
                         request.name();
                         request.order();
                       }) {
    return fmt::format("worker {}: {}", request.name(), OrderWord(request.order()));
  } else if constexpr (requires { request.worker(); }) {
    return "worker " + request.worker();
  } else if constexpr (requires { request.name(); }) {
    return "worker " + request.name();
  } else {
    return "";
  }
}

// Of a request, else of a reply that names the job that was made.
template <typename Request, typename Reply>
std::string AuditDetail(const Request& request, const Reply& reply) {
  if constexpr (requires { reply.job_id(); }) {
    if (reply.job_id() != 0) return fmt::format("job {}", reply.job_id());
  }
  return AuditDetail(request);
}

}  // namespace meshwright::controller
