// JobService, LogService and AdminService: what users ask. Handlers hand over to the loop and
// finish when it answers.
#pragma once

#include <string>

#include "controller/blob_store.h"
#include "controller/control_loop.h"
#include "controller/metrics.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::controller {

struct CallParts {
  ControlLoop* loop = nullptr;
  BlobStore* blobs = nullptr;
  ControllerMetrics* metrics = nullptr;
  std::string token;
};

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  explicit JobServiceImpl(CallParts parts) : parts_(std::move(parts)) {}
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::SubmitReply* reply) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const v1::JobIdRequest* request, v1::JobInfo* reply) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::JobIdRequest* request,
                                     v1::JobDescription* reply) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListJobsRequest* request,
                                 v1::ListJobsReply* reply) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const v1::JobIdRequest* request,
                                   v1::CancelReply* reply) override;
  grpc::ServerWriteReactor<v1::JobUpdate>* Watch(grpc::CallbackServerContext* context,
                                                 const v1::WatchRequest* request) override;
  grpc::ServerBidiReactor<v1::Frame, v1::Frame>* Interact(
      grpc::CallbackServerContext* context) override;

 private:
  CallParts parts_;
};

class LogServiceImpl final : public v1::LogService::CallbackService {
 public:
  explicit LogServiceImpl(CallParts parts) : parts_(std::move(parts)) {}
  grpc::ServerWriteReactor<v1::LogChunk>* Tail(grpc::CallbackServerContext* context,
                                               const v1::TailRequest* request) override;

 private:
  CallParts parts_;
};

class AdminServiceImpl final : public v1::AdminService::CallbackService {
 public:
  explicit AdminServiceImpl(CallParts parts) : parts_(std::move(parts)) {}
  grpc::ServerUnaryReactor* Workers(grpc::CallbackServerContext* context,
                                    const v1::WorkersRequest* request,
                                    v1::WorkersReply* reply) override;
  grpc::ServerUnaryReactor* State(grpc::CallbackServerContext* context,
                                  const v1::StateRequest* request, v1::StateReply* reply) override;

 private:
  CallParts parts_;
};

}  // namespace meshwright::controller
