#include "controller/grpc/job_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "controller/grpc/interact_reactor.h"
#include "controller/grpc/listing.h"
#include "controller/grpc/story_reactor.h"
#include "controller/grpc/submit_check.h"
#include "controller/grpc/watch_reactor.h"
#include "controller/hang_text.h"
#include "mesh/device_profile.h"
#include "proto/convert.h"
#include "proto/convert_logs.h"

namespace meshwright::controller {
namespace {

Result<Submission> DecodeSubmit(const v1::SubmitRequest& request, BlobStore& blobs) {
  Submission submission{request.op_id(), {}, request.tool()};
  MW_ASSIGN_OR_RETURN(submission.job, proto::Decode(request.job()));
  MW_TRY(CheckSubmission(submission, blobs));
  return submission;
}

// What is asked of a worker, by a call that is to come.
OrderWorker DecodeOrder(const v1::OrderWorkerRequest& request) {
  const int order = request.order();
  const bool known = v1::WorkerOrder_IsValid(order);
  return {CallId(0), request.name(), static_cast<proto::WorkerOrder>(known ? order : 0),
          request.deadline_ms()};
}

// The text of a profile, as steps have shown the device: who plans for the cluster plans as the
// controller does.
std::string AsMeasured(const std::string& text, RunStory* story) {
  if (story == nullptr || text.empty()) return text;
  auto profile = mesh::ParseDeviceProfile(text);
  if (!profile.has_value()) return text;
  const auto registered = std::make_shared<const mesh::DeviceProfile>(*std::move(profile));
  const mesh::SharedProfile measured = story->Measured(registered);
  return measured == registered ? text : mesh::FormatDeviceProfile(*measured);
}

}  // namespace

JobServiceImpl::JobServiceImpl(CallParts parts) : LateService(std::move(parts)) {
  AddUnary<v1::SubmitRequest, v1::SubmitReply>(
      "/meshwright.v1.JobService/Submit", "job", "submit",
      [this](const v1::SubmitRequest& request, v1::SubmitReply& reply, auto answer) {
        auto submission = DecodeSubmit(request, *parts_.blobs);
        if (!submission.has_value()) return answer(submission.error());
        parts_.loop->Submit(*std::move(submission), [&reply, answer](const Result<int64_t>& id) {
          if (id.has_value()) reply.set_job_id(*id);
          answer(internal::ToStatus(id));
        });
      });
  AddUnary<v1::JobIdRequest, v1::CancelReply>(
      "/meshwright.v1.JobService/Cancel", "job", "cancel",
      [this](const v1::JobIdRequest& request, v1::CancelReply&, auto answer) {
        parts_.loop->Order(
            [job = JobId(request.job_id())](CallId call) {
              return CancelJob{call, job};
            },
            answer);
      });
  AddUnary<v1::JobIdRequest, v1::PauseReply>(
      "/meshwright.v1.JobService/Pause", "job", "pause",
      [this](const v1::JobIdRequest& request, v1::PauseReply&, auto answer) {
        parts_.loop->Order(
            [job = JobId(request.job_id())](CallId call) {
              return PauseJob{call, job};
            },
            answer);
      });
  AddUnary<v1::JobIdRequest, v1::ResumeReply>(
      "/meshwright.v1.JobService/Resume", "job", "resume",
      [this](const v1::JobIdRequest& request, v1::ResumeReply&, auto answer) {
        parts_.loop->Order(
            [job = JobId(request.job_id())](CallId call) {
              return ResumeJob{call, job};
            },
            answer);
      });
  AddReading();
  AddStories();
  AddHang();
  AddSessions();
}

void JobServiceImpl::AddHang() {
  AddUnary<v1::HangRequest, v1::HangReply>(
      "/meshwright.v1.JobService/Hang", "job", "hang",
      [this](const v1::HangRequest& request, v1::HangReply& reply, auto answer) {
        const Now now{SystemClock().NowMs(), SystemClock().UnixMs()};
        LookAt<HangReport>(
            *parts_.loop,
            [job = JobId(request.job_id()), now](const Core& core) { return core.Hang(job, now); },
            [&request, &reply, answer](const Result<HangReport>& report) {
              if (report.has_value()) {
                reply.set_text(request.json() ? HangJson(*report) : FormatHang(*report));
              }
              answer(internal::ToStatus(report));
            });
      });
}

void JobServiceImpl::AddStories() {
  AddUnary<v1::RecordRequest, v1::RecordReply>(
      "/meshwright.v1.JobService/Record", "job", "record",
      [this](const v1::RecordRequest& request, v1::RecordReply&, auto answer) {
        const ir::StepRange steps{request.steps().first(), request.steps().count()};
        parts_.loop->Order(
            [job = JobId(request.job_id()), steps](CallId call) {
              return RecordSteps{call, job, steps};
            },
            answer);
      });
  AddStream<v1::StoryRequest, v1::StoryChunk>(
      "/meshwright.v1.JobService/Story",
      [this](auto* context) { return MakeStoryReactor(*context, parts_); });
}

void JobServiceImpl::AddReading() {
  AddUnary<v1::JobIdRequest, v1::JobInfo>(
      "/meshwright.v1.JobService/Get", "job", "get",
      [this](const v1::JobIdRequest& request, v1::JobInfo& reply, auto answer) {
        parts_.loop->Get(request.job_id(), [&reply, answer](const Result<proto::JobInfo>& info) {
          if (info.has_value()) reply = proto::Encode(*info);
          answer(internal::ToStatus(info));
        });
      });
  AddUnary<v1::JobIdRequest, v1::JobDescription>(
      "/meshwright.v1.JobService/Describe", "job", "describe",
      [this](const v1::JobIdRequest& request, v1::JobDescription& reply, auto answer) {
        parts_.loop->Describe(request.job_id(), [&reply, answer](const auto& description) {
          if (description.has_value()) {
            *reply.mutable_job() = proto::Encode(description->job);
            *reply.mutable_weights() = proto::Encode(description->weights);
          }
          answer(internal::ToStatus(description));
        });
      });
  AddUnary<v1::ListJobsRequest, v1::ListJobsReply>(
      "/meshwright.v1.JobService/List", "job", "list",
      [this](const v1::ListJobsRequest& request, v1::ListJobsReply& reply, auto answer) {
        parts_.loop->List(
            [&request, &reply, answer](const Result<std::vector<proto::JobInfo>>& jobs) {
              if (jobs.has_value()) FillJobs(*jobs, request, reply);
              answer(internal::ToStatus(jobs));
            });
      });
  AddStream<v1::WatchRequest, v1::JobUpdate>(
      "/meshwright.v1.JobService/Watch", [this](auto* context) {
        using Reactor = WatchReactor<v1::WatchRequest, v1::JobUpdate>;
        const auto open = [](const v1::WatchRequest& request) {
          return WatchPlan{{request.job_id(), std::max<int64_t>(0, request.from_step_record()),
                            std::max<int64_t>(0, request.from_log_line()), -1},
                           true};
        };
        const auto convert = [](const ControlLoop::News& news) -> std::optional<v1::JobUpdate> {
          v1::JobUpdate update = proto::Encode(news.update);
          update.set_next_step_record(news.cursor.steps);
          update.set_next_log_line(news.cursor.lines);
          return update;
        };
        return new Reactor(context, parts_, "/meshwright.v1.JobService/Watch", open, convert);
      });
}

void JobServiceImpl::AddSessions() {
  AddStream<v1::Frame, v1::Frame>("/meshwright.v1.JobService/Interact", [this](auto* context) {
    return MakeInteractReactor(*context, parts_);
  });
}

LogServiceImpl::LogServiceImpl(CallParts parts) : LateService(std::move(parts)) {
  AddStream<v1::TailRequest, v1::LogChunk>("/meshwright.v1.LogService/Tail", [this](auto* context) {
    using Reactor = WatchReactor<v1::TailRequest, v1::LogChunk>;
    constexpr int64_t kNoSteps = INT64_MAX / 2;
    const auto open = [](const v1::TailRequest& request) {
      return WatchPlan{{request.job_id(), kNoSteps, 0, -1}, request.follow()};
    };
    const auto convert = [](const ControlLoop::News& news) -> std::optional<v1::LogChunk> {
      if (news.update.log_lines.empty()) return std::nullopt;
      v1::LogChunk chunk;
      for (const std::string& line : news.update.log_lines) chunk.add_lines(line);
      return chunk;
    };
    return new Reactor(context, parts_, "/meshwright.v1.LogService/Tail", open, convert);
  });
}

namespace {

LogQuestion DecodeQuestion(const v1::WorkerLogRequest& request) {
  return {request.worker(), proto::Decode(request.what()), request.kept()};
}

}  // namespace

void AdminServiceImpl::AddLogs() {
  AddUnary<v1::WorkerLogRequest, v1::WorkerLogReply>(
      "/meshwright.v1.AdminService/WorkerLog", "admin", "worker_log",
      [this](const v1::WorkerLogRequest& request, v1::WorkerLogReply& reply, auto answer) {
        if (request.worker().empty()) return AnswerOwnLog(request, reply, answer);
        if (parts_.logs == nullptr) return answer(Unimplemented("this controller keeps no logs"));
        parts_.logs->Ask(DecodeQuestion(request), [&reply, answer](const Result<LogAnswer>& log) {
          if (log.has_value()) {
            reply.set_text(log->piece.text);
            reply.set_next(log->piece.next);
            reply.set_end(log->piece.end);
            reply.set_live(log->live);
            reply.set_note(log->note);
          }
          answer(internal::ToStatus(log));
        });
      });
}

AdminServiceImpl::AdminServiceImpl(CallParts parts) : LateService(std::move(parts)) {
  AddLogs();
  AddMetrics();
  AddUnary<v1::WorkersRequest, v1::WorkersReply>(
      "/meshwright.v1.AdminService/Workers", "admin", "workers",
      [this](const v1::WorkersRequest& request, v1::WorkersReply& reply, auto answer) {
        parts_.loop->Workers([this, &request, &reply,
                              answer](const Result<std::vector<proto::WorkerInfo>>& workers) {
          if (workers.has_value()) FillWorkers(*workers, request, reply);
          for (v1::WorkerInfo& worker : *reply.mutable_workers()) {
            worker.set_device_profile(AsMeasured(worker.device_profile(), parts_.story));
          }
          answer(internal::ToStatus(workers));
        });
      });
  AddUnary<v1::OrderWorkerRequest, v1::OrderWorkerReply>(
      "/meshwright.v1.AdminService/OrderWorker", "admin", "order_worker",
      [this](const v1::OrderWorkerRequest& request, v1::OrderWorkerReply&, auto answer) {
        parts_.loop->Order(
            [order = DecodeOrder(request)](CallId call) {
              return OrderWorker{call, order.worker, order.order, order.deadline_ms};
            },
            answer);
      });
  AddUnary<v1::StateRequest, v1::StateReply>(
      "/meshwright.v1.AdminService/State", "admin", "state",
      [this](const v1::StateRequest&, v1::StateReply& reply, auto answer) {
        const auto tell = [&reply, answer](const Result<Summary>& summary) {
          if (summary.has_value()) {
            reply.set_cluster_id(summary->cluster_id);
            reply.set_term(summary->term);
            reply.set_version(proto::kVersion);
            reply.set_unix_ms(SystemClock().UnixMs());
            reply.mutable_jobs()->insert(summary->jobs.begin(), summary->jobs.end());
            reply.mutable_workers()->insert(summary->workers.begin(), summary->workers.end());
          }
          answer(internal::ToStatus(summary));
        };
        LookAt<Summary>(*parts_.loop, Summarise, tell);
      });
}

}  // namespace meshwright::controller
