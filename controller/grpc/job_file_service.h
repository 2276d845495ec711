// JobFileService: job files of clients that cannot resolve them, by a function that the process of
// the controller brings along (ServerOptions::resolve).
//
// Thread rule: calls come on gRPC's threads and are carried out one after the other on a thread of
// this service, so that a model that takes long to build holds nobody else up. Ownership: as
// LateService.
#pragma once

#include <atomic>

#include "base/executor.h"
#include "controller/grpc/late_service.h"
#include "proto/job_file.h"

namespace meshwright::controller {

class JobFileServiceImpl final : public LateService {
 public:
  // `resolve` may be null: then every call is refused.
  JobFileServiceImpl(CallParts parts, proto::ResolveFile resolve);

 private:
  // So many wait at most; who comes then is told to come again.
  static constexpr int kMostWaiting = 16;

  Result<proto::ResolvedFile> Resolve(proto::JobFile file) const;

  const proto::ResolveFile resolve_;
  std::atomic<int> waiting_ = 0;
  Executor thread_{"mw-job-files"};  // last: it ends before what it uses
};

}  // namespace meshwright::controller
