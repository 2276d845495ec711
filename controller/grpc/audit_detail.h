// Upon what a call acts, for the audit log: "job 12", "worker w0".
//
// Thread rule: pure.
#pragma once

#include <fmt/format.h>

#include <string>

namespace meshwright::controller {

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
    return fmt::format("worker {}: order {}", request.name(), static_cast<int>(request.order()));
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
