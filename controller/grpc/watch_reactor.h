// A server stream fed from ControlLoop::Watch: one write in flight, the next news asked for when it is out, so that a slow
// reader costs nothing.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "controller/control_loop.h"
#include "proto/grpc_status.h"

namespace meshwright::controller {

// Convert: News -> optional message; nothing when this news has no message for the stream.
template <typename Message, typename Convert>
class WatchReactor final : public grpc::ServerWriteReactor<Message> {
 public:
  WatchReactor(ControlLoop* loop, WatchCursor cursor, bool follow, Convert convert)
      : loop_(loop), cursor_(cursor), follow_(follow), convert_(std::move(convert)) {
    Ask();
  }

  void OnWriteDone(bool ok) override {
    if (!ok || last_) return End(OkStatus());
    Ask();
  }

  void OnCancel() override {
    std::scoped_lock lock(mutex_);
    cancelled_ = true;
    if (asked_) loop_->Unwatch(*asked_);
  }

  void OnDone() override { delete this; }

 private:
  void Ask() {
    // The answer may come, and this object be gone, before Watch returns: what comes after needs only `alive`.
    auto alive = alive_;
    const ControlLoop::WatchId id =
        loop_->Watch(cursor_, [this](Result<ControlLoop::News> news) { Answer(std::move(news)); });
    std::scoped_lock lock(*alive);
    if (!alive->reactor) return;
    std::scoped_lock own(mutex_);
    asked_ = id;
    if (cancelled_) loop_->Unwatch(id);
  }

  void Answer(Result<ControlLoop::News> news) {
    if (!news.has_value()) return End(news.error());
    cursor_ = news->cursor;
    last_ = news->last || !follow_;
    std::optional<Message> message = convert_(*news);
    if (!message) return last_ ? End(OkStatus()) : Ask();
    message_ = std::move(*message);
    this->StartWrite(&message_);
  }

  void End(const Status& status) { this->Finish(proto::ToGrpc(status)); }

  struct Alive : std::mutex {
    bool reactor = true;
  };

  ControlLoop* loop_;
  WatchCursor cursor_;
  const bool follow_;
  Convert convert_;
  std::shared_ptr<Alive> alive_ = std::make_shared<Alive>();
  Message message_;
  bool last_ = false;
  std::mutex mutex_;
  bool cancelled_ = false;                      // guarded by mutex_
  std::optional<ControlLoop::WatchId> asked_;  // guarded by mutex_
};

}  // namespace meshwright::controller
