// WorkerService: one reactor per worker session.
#pragma once

#include "controller/access.h"
#include "controller/control_loop.h"
#include "controller/worker_logs.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::controller {

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  // logs: null: nobody asks for those of workers.
  WorkerServiceImpl(ControlLoop* loop, WorkerLogs* logs, const Access* access);
  grpc::ServerBidiReactor<v1::Up, v1::Down>* Session(grpc::CallbackServerContext* context) override;

 private:
  ControlLoop* const loop_;
  WorkerLogs* const logs_;
  const Access* const access_;
};

}  // namespace meshwright::controller
