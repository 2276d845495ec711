// Upon what a call acts, for the audit log: "job 12", "worker w0".
//
// Thread rule: pure.
#pragma once

#include <fmt/format.h>

#include <string>

namespace meshwright::controller {

// Of a request that names a job or a worker, else of a reply that names the job that was made.
template <typename Request, typename Reply>
std::string AuditDetail(const Request& request, const Reply& reply) {
  if constexpr (requires { request.job_id(); }) {
    return fmt::format("job {}", request.job_id());
  } else if constexpr (requires { reply.job_id(); }) {
    return reply.job_id() == 0 ? "" : fmt::format("job {}", reply.job_id());
  } else if constexpr (requires {
                         request.name();
                         request.order();
                       }) {
    return fmt::format("worker {}: order {}", request.name(), static_cast<int>(request.order()));
  } else if constexpr (requires { request.name(); }) {
    return fmt::format("worker {}", request.name());
  } else {
    return "";
  }
}

}  // namespace meshwright::controller
