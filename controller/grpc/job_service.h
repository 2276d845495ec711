// JobService, LogService and AdminService: what users ask. Handlers hand over to the loop and
// finish when it answers.
#pragma once

#include "controller/grpc/late_service.h"

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
};

}  // namespace meshwright::controller
