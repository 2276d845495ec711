#include "controller/grpc/story_reactor.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "controller/grpc/call_guard.h"
#include "proto/grpc_status.h"

namespace meshwright::controller {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

StoryForm FormOf(v1::StoryForm form) {
  switch (form) {
    case v1::STORY_FORM_TABLE_JSON:
      return StoryForm::kTableJson;
    case v1::STORY_FORM_TRACE:
      return StoryForm::kTrace;
    case v1::STORY_FORM_WHY:
      return StoryForm::kWhy;
    case v1::STORY_FORM_WHY_JSON:
      return StoryForm::kWhyJson;
    default:
      return StoryForm::kTable;
  }
}

class StoryReactor final : public grpc::ServerBidiReactor<v1::StoryRequest, v1::StoryChunk> {
 public:
  StoryReactor(grpc::CallbackServerContext& context, const CallParts& parts)
      : loop_(parts.loop),
        story_(parts.story),
        access_(parts.access),
        timer_(parts.metrics, "job", "story") {
    admission_ = AdmitCall(context, *access_, kPath);
    if (!admission_.known) {
      End(admission_.refusal);
      return;
    }
    watch_ = parts.deadlines->Begin(&context, parts.limits.request_ms);
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    watch_.reset();
    if (!admission_.refusal.ok()) {
      access_->Refused(kPath, admission_, ok ? AuditDetail(request_) : "");
      return End(admission_.refusal);
    }
    if (!ok) return End(Cancelled("the request did not come whole"));
    if (story_ == nullptr) {
      return End(Unimplemented(
          "this controller was started by a program that keeps no stories; start one with "
          "`meshwright controller`"));
    }
    // The reactor stays until it has finished, which it does not before the answer.
    loop_->Get(request_.job_id(), [this](const auto& job) {
      if (!job.has_value()) return End(job.error());
      Ask();
    });
  }

  void OnWriteDone(bool ok) override { ok ? WriteNext() : End(OkStatus()); }

  // What has not been answered need not be looked for.
  void OnCancel() override { *gone_ = true; }

  void OnDone() override { delete this; }

 private:
  void Ask() {
    story_->Ask({JobId(request_.job_id()),
                 {request_.steps().first(), request_.steps().count()},
                 FormOf(request_.form()),
                 [gone = gone_] { return gone->load(); }},
                [this](Result<std::string> text) {
                  if (!text.has_value()) return End(text.error());
                  text_ = *std::move(text);
                  WriteNext();
                });
  }

  void WriteNext() {
    if (sent_ == text_.size()) return End(OkStatus());
    const size_t bytes = std::min(kChunkBytes, text_.size() - sent_);
    chunk_.set_text(text_.substr(sent_, bytes));
    sent_ += bytes;
    this->StartWrite(&chunk_);
  }

  void End(const Status& status) { this->Finish(timer_.Done(status)); }

  static constexpr const char* kPath = "/meshwright.v1.JobService/Story";

  ControlLoop* const loop_;
  RunStory* const story_;
  const Access* const access_;
  Admission admission_;
  const CallTimer timer_;
  std::unique_ptr<CallDeadlines::Watch> watch_;
  v1::StoryRequest request_;
  v1::StoryChunk chunk_;
  std::string text_;
  size_t sent_ = 0;
  const std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

grpc::ServerBidiReactor<v1::StoryRequest, v1::StoryChunk>* MakeStoryReactor(
    grpc::CallbackServerContext& context, const CallParts& parts) {
  return new StoryReactor(context, parts);
}

}  // namespace meshwright::controller
