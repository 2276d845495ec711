// JobService, LogService and AdminService: what users ask. Handlers hand over to the loop and
// finish when it answers.
#pragma once

#include <functional>

#include "base/executor.h"
#include "controller/grpc/late_service.h"
#include "proto/meshwright.pb.h"

namespace meshwright::controller {

class JobServiceImpl final : public LateService {
 public:
  explicit JobServiceImpl(CallParts parts);

 private:
  void AddReading();
  void AddStories();
  void AddHang();
  void AddSessions();
};

class LogServiceImpl final : public LateService {
 public:
  explicit LogServiceImpl(CallParts parts);
};

class AdminServiceImpl final : public LateService {
 public:
  explicit AdminServiceImpl(CallParts parts);

 private:
  void AddLogs();
  void AddMetrics();
  void AnswerOwnLog(const v1::WorkerLogRequest& request, v1::WorkerLogReply& reply,
                    std::function<void(const Status&)> answer);

  Executor thread_{"mw-operator"};  // for what takes longer than gRPC's threads should
};

}  // namespace meshwright::controller
