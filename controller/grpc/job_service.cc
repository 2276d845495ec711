#include "controller/grpc/job_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "controller/grpc/call_guard.h"
#include "controller/grpc/listing.h"
#include "controller/grpc/watch_reactor.h"
#include "proto/convert.h"

namespace meshwright::controller {
namespace {

// The token, then the body; a refused call is finished here.
template <typename Body>
grpc::ServerUnaryReactor* Guarded(grpc::CallbackServerContext* context, const CallParts& parts,
                                  CallTimer timer, Body body) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const Status status = CheckCall(*context, parts.token); !status.ok()) {
    reactor->Finish(timer.Done(status));
    return reactor;
  }
  body(reactor, timer);
  return reactor;
}

template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const Status& status) { this->Finish(proto::ToGrpc(status)); }
  void OnDone() override { delete this; }
};

template <typename Message, typename Convert>
grpc::ServerWriteReactor<Message>* MakeWatch(ControlLoop* loop, WatchCursor cursor, bool follow,
                                             Convert convert) {
  return new WatchReactor<Message, Convert>(loop, cursor, follow, std::move(convert));
}

// A file is a blob or below a root, else nobody could read it.
Status CheckFilesAreSomewhere(const ir::JobRequest& job) {
  for (const ir::DataStream& stream : job.data.streams) {
    for (const ir::FileRef& file : stream.files) {
      if (!file.empty()) continue;
      return InvalidArgument(
          fmt::format("the file '{}' of stream '{}' is neither uploaded nor below a data root",
                      file.blob.name, stream.name));
    }
  }
  return OkStatus();
}

Result<ir::JobRequest> DecodeSubmit(const v1::SubmitRequest& request, const BlobStore& blobs) {
  if (request.op_id().empty() || request.op_id().size() > 128) {
    return Fail(InvalidArgument("op_id must have 1 to 128 characters"));
  }
  MW_ASSIGN_OR_RETURN(ir::JobRequest job, proto::Decode(request.job()));
  MW_TRY(ir::ValidateJob(job));
  for (const ir::BlobRef& blob : ir::BlobsOf(job)) {
    const std::optional<int64_t> size = blobs.Find(blob.sha256);
    if (!size) {
      return Fail(FailedPrecondition(
          fmt::format("'{}' (sha256 {}) is not on the controller; upload it before submitting",
                      blob.name, blob.sha256)));
    }
    if (*size != blob.size_bytes) {
      return Fail(InvalidArgument(
          fmt::format("'{}' (sha256 {}) has {} bytes, the request says {}; submit the size of the "
                      "file that was uploaded",
                      blob.name, blob.sha256, *size, blob.size_bytes)));
    }
  }
  if (job.data.streams.empty() && job.data.blob.sha256.empty() && ir::ReadsData(job)) {
    return Fail(
        InvalidArgument("job.data.blob is empty: the job has no data, but its programs read some"));
  }
  MW_TRY(CheckFilesAreSomewhere(job));
  return job;
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::Submit(grpc::CallbackServerContext* context,
                                                 const v1::SubmitRequest* request,
                                                 v1::SubmitReply* reply) {
  const CallTimer timer(parts_.metrics, "job", "submit");
  return Guarded(context, parts_, timer, [&](auto* reactor, const CallTimer& t) {
    auto job = DecodeSubmit(*request, *parts_.blobs);
    if (!job.has_value()) return reactor->Finish(t.Done(job.error()));
    parts_.loop->Submit(request->op_id(), std::move(*job), [reactor, reply, t](Result<int64_t> id) {
      if (id.has_value()) reply->set_job_id(*id);
      reactor->Finish(t.Done(internal::ToStatus(id)));
    });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::Get(grpc::CallbackServerContext* context,
                                              const v1::JobIdRequest* request, v1::JobInfo* reply) {
  const CallTimer timer(parts_.metrics, "job", "get");
  return Guarded(context, parts_, timer, [&](auto* reactor, const CallTimer& t) {
    parts_.loop->Get(request->job_id(), [reactor, reply, t](Result<proto::JobInfo> info) {
      if (info.has_value()) *reply = proto::Encode(*info);
      reactor->Finish(t.Done(internal::ToStatus(info)));
    });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::List(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsReply* reply) {
  const CallTimer timer(parts_.metrics, "job", "list");
  return Guarded(context, parts_, timer, [&](auto* reactor, const CallTimer& t) {
    parts_.loop->List([request, reply, reactor, t](Result<std::vector<proto::JobInfo>> jobs) {
      if (jobs.has_value()) FillJobs(*jobs, *request, *reply);
      reactor->Finish(t.Done(internal::ToStatus(jobs)));
    });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::Cancel(grpc::CallbackServerContext* context,
                                                 const v1::JobIdRequest* request,
                                                 v1::CancelReply*) {
  const CallTimer timer(parts_.metrics, "job", "cancel");
  return Guarded(context, parts_, timer, [&](auto* reactor, const CallTimer& t) {
    parts_.loop->Cancel(request->job_id(),
                        [reactor, t](const Status& status) { reactor->Finish(t.Done(status)); });
  });
}

grpc::ServerWriteReactor<v1::JobUpdate>* JobServiceImpl::Watch(grpc::CallbackServerContext* context,
                                                               const v1::WatchRequest* request) {
  if (const Status status = CheckCall(*context, parts_.token); !status.ok()) {
    return new RefusedStream<v1::JobUpdate>(status);
  }
  const WatchCursor cursor{request->job_id(), std::max<int64_t>(0, request->from_step_record()),
                           std::max<int64_t>(0, request->from_log_line()), -1};
  const auto convert = [](const ControlLoop::News& news) -> std::optional<v1::JobUpdate> {
    return proto::Encode(news.update);
  };
  return MakeWatch<v1::JobUpdate>(parts_.loop, cursor, true, convert);
}

grpc::ServerWriteReactor<v1::LogChunk>* LogServiceImpl::Tail(grpc::CallbackServerContext* context,
                                                             const v1::TailRequest* request) {
  if (const Status status = CheckCall(*context, parts_.token); !status.ok()) {
    return new RefusedStream<v1::LogChunk>(status);
  }
  constexpr int64_t kNoSteps = INT64_MAX / 2;
  const WatchCursor cursor{request->job_id(), kNoSteps, 0, -1};
  const auto convert = [](const ControlLoop::News& news) -> std::optional<v1::LogChunk> {
    if (news.update.log_lines.empty()) return std::nullopt;
    v1::LogChunk chunk;
    for (const std::string& line : news.update.log_lines) chunk.add_lines(line);
    return chunk;
  };
  return MakeWatch<v1::LogChunk>(parts_.loop, cursor, request->follow(), convert);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Workers(grpc::CallbackServerContext* context,
                                                    const v1::WorkersRequest* request,
                                                    v1::WorkersReply* reply) {
  const CallTimer timer(parts_.metrics, "admin", "workers");
  return Guarded(context, parts_, timer, [&](auto* reactor, const CallTimer& t) {
    parts_.loop->Workers(
        [request, reactor, reply, t](Result<std::vector<proto::WorkerInfo>> workers) {
          if (workers.has_value()) FillWorkers(*workers, *request, *reply);
          reactor->Finish(t.Done(internal::ToStatus(workers)));
        });
  });
}

grpc::ServerUnaryReactor* AdminServiceImpl::State(grpc::CallbackServerContext* context,
                                                  const v1::StateRequest*, v1::StateReply* reply) {
  const CallTimer timer(parts_.metrics, "admin", "state");
  return Guarded(context, parts_, timer, [&](auto* reactor, const CallTimer& t) {
    parts_.loop->Summarise([reactor, reply, t](Result<ControlLoop::Summary> summary) {
      if (summary.has_value()) {
        reply->set_cluster_id(summary->cluster_id);
        reply->set_term(summary->term);
        reply->set_version(proto::kVersion);
        reply->mutable_jobs()->insert(summary->jobs.begin(), summary->jobs.end());
        reply->mutable_workers()->insert(summary->workers.begin(), summary->workers.end());
      }
      reactor->Finish(t.Done(internal::ToStatus(summary)));
    });
  });
}

}  // namespace meshwright::controller
