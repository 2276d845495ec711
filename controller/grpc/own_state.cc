// AdminServiceImpl, what the controller says of its own process: its log and its metrics.
#include <algorithm>
#include <string>
#include <utility>

#include "base/line_log.h"
#include "base/metrics.h"
#include "controller/grpc/job_service.h"
#include "proto/convert_logs.h"

namespace meshwright::controller {
namespace {

// Of an answer, which a message has room for.
constexpr size_t kMostMetricsBytes = size_t{3} << 20;

Status ReadOwnLog(const LineLog* log, const v1::WorkerLogRequest& request,
                  v1::WorkerLogReply& reply) {
  if (log == nullptr) {
    return NotFound("this controller was started by a program and keeps no log of its own");
  }
  MW_ASSIGN_OR_RETURN(const LinePiece piece,
                      log->Read(proto::QueryOf(proto::Decode(request.what()))));
  reply.set_text(piece.text);
  reply.set_next(piece.next);
  reply.set_end(piece.end);
  reply.set_live(true);
  return OkStatus();
}

void FillMetrics(std::string text, v1::MetricsReply& reply) {
  if (text.size() > kMostMetricsBytes) {
    reply.set_truncated(true);
    text.resize(text.rfind('\n', kMostMetricsBytes) + 1);  // whole lines; one is never so long
  }
  reply.set_text(std::move(text));
}

}  // namespace

void AdminServiceImpl::AnswerOwnLog(const v1::WorkerLogRequest& request, v1::WorkerLogReply& reply,
                                    std::function<void(const Status&)> answer) {
  const bool posted = thread_.Post(
      [this, &request, &reply, answer] { answer(ReadOwnLog(parts_.own_log, request, reply)); });
  if (!posted) answer(Unavailable("the controller is stopping"));
}

void AdminServiceImpl::AddMetrics() {
  AddUnary<v1::MetricsRequest, v1::MetricsReply>(
      "/meshwright.v1.AdminService/Metrics", "admin", "metrics",
      [this](const v1::MetricsRequest&, v1::MetricsReply& reply, auto answer) {
        if (parts_.registry == nullptr) {
          return answer(Unimplemented("this controller has no metrics"));
        }
        // Gauges are brought up to date by asking the loop, which answers on its own thread.
        const bool posted = thread_.Post([this, &reply, answer] {
          FillMetrics(parts_.registry->Serialize(), reply);
          answer(OkStatus());
        });
        if (!posted) answer(Unavailable("the controller is stopping"));
      });
}

}  // namespace meshwright::controller
