// WorkerService: one reactor per worker session.
#pragma once

#include "controller/access.h"
#include "controller/control_loop.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::controller {

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  WorkerServiceImpl(ControlLoop* loop, const Access* access);
  grpc::ServerBidiReactor<v1::Up, v1::Down>* Session(grpc::CallbackServerContext* context) override;

 private:
  ControlLoop* const loop_;
  const Access* const access_;
};

}  // namespace meshwright::controller
