// WorkerService: one reactor per worker session.
#pragma once

#include <string>

#include "controller/control_loop.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::controller {

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  WorkerServiceImpl(ControlLoop* loop, std::string token);
  grpc::ServerBidiReactor<v1::Up, v1::Down>* Session(grpc::CallbackServerContext* context) override;

 private:
  ControlLoop* loop_;
  std::string token_;
};

}  // namespace meshwright::controller
