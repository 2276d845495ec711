#include "client/grpc/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/executor.h"
#include "client/grpc/actor_asks.h"
#include "client/tensor_tiles.h"
#include "proto/convert.h"
#include "proto/frames.h"

namespace meshwright::client {
namespace {

std::string BytesOf(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()};
}

std::vector<proto::NamedTensor> ToWire(const std::map<std::string, Tensor>& tensors) {
  std::vector<proto::NamedTensor> wire;
  for (const auto& [name, tensor] : tensors) wire.push_back({name, tensor.type, BytesOf(tensor)});
  return wire;
}

class GrpcSession final : public Session {
 public:
  GrpcSession(const std::shared_ptr<grpc::Channel>& channel, SessionStart start)
      : start_(std::move(start)),
        stub_(v1::JobService::NewStub(channel)),
        actor_asks_([this](const proto::ClientUp& message) { return Write(message); },
                    start_.options.timeout_ms) {
    start_.prepare(context_);
    stream_ = stub_->Interact(&context_);
    reader_.Post([this] { ReadLoop(); });
  }

  ~GrpcSession() override {
    context_.TryCancel();
    reader_.Stop();
  }

  Status Open() {
    MW_TRY(Write(std::move(start_.open)));
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::milliseconds(start_.options.open_timeout_ms);
    const bool told =
        changed_.wait_for(lock, deadline, [&] { return opened_ || end_.has_value(); });
    if (end_) return *end_;
    if (told) return OkStatus();
    return DeadlineExceeded(fmt::format(
        "the job did not run within {} s; see why with 'meshwright jobs', or give it more time",
        start_.options.open_timeout_ms / 1000));
  }

  int64_t job_id() const override {
    std::scoped_lock lock(mutex_);
    return opened_ ? opened_->job_id : 0;
  }

  std::map<std::string, std::map<std::string, ir::TensorType>> programs() const override {
    std::scoped_lock lock(mutex_);
    std::map<std::string, std::map<std::string, ir::TensorType>> all;
    if (!opened_) return all;
    for (const proto::ProgramSignature& program : opened_->programs) {
      for (const proto::NamedTensor& input : program.inputs) {
        all[program.name][input.name] = input.type;
      }
      all.try_emplace(program.name);
    }
    return all;
  }

  std::future<Result<Answer>> Call(const std::string& program, const Feeds& feeds,
                                   CallOptions options) override {
    return Ask(proto::CallProgram{program, ToWire(feeds), options.fetch, options.step});
  }

  Result<Answer> Run(const std::string& program, const Feeds& feeds, CallOptions options) override {
    return Await(Call(program, feeds, options), program);
  }

  Result<std::map<std::string, Tensor>> ReadState(const std::vector<std::string>& names) override {
    MW_ASSIGN_OR_RETURN(Answer answer, Await(Ask(proto::ReadState{names}), "reading the state"));
    return std::move(answer.tensors);
  }

  Status WriteState(const std::map<std::string, Tensor>& tensors) override {
    return internal::ToStatus(Await(Ask(proto::WriteState{ToWire(tensors)}), "writing the state"));
  }

  Result<ActorRef> Spawn(const std::string& type, const std::string& args,
                         const std::string& worker) override {
    MW_ASSIGN_OR_RETURN(
        proto::ActorDone done,
        actor_asks_.Await(next_id_++, proto::SpawnHostActor{type, args, worker}, "spawn"));
    return std::move(done.ref);
  }

  std::future<Result<std::string>> Ask(const ActorRef& actor, std::string payload,
                                       int64_t deadline_ms) override {
    const auto promise = std::make_shared<std::promise<Result<std::string>>>();
    actor_asks_.Ask(next_id_++, proto::AskHostActor{actor, std::move(payload), deadline_ms},
                    [promise](Result<proto::ActorDone> done) {
                      promise->set_value(std::move(done).map(
                          [](proto::ActorDone answer) { return std::move(answer.payload); }));
                    });
    return promise->get_future();
  }

  std::future<Status> Tell(const ActorRef& actor, std::string payload,
                           int64_t deadline_ms) override {
    const auto promise = std::make_shared<std::promise<Status>>();
    actor_asks_.Ask(next_id_++, proto::AskHostActor{actor, std::move(payload), deadline_ms, true},
                    [promise](Result<proto::ActorDone> done) {
                      promise->set_value(internal::ToStatus(std::move(done)));
                    });
    return promise->get_future();
  }

  std::future<Result<ActorNews>> Watch(const ActorRef& actor) override {
    const auto promise = std::make_shared<std::promise<Result<ActorNews>>>();
    actor_asks_.Ask(next_id_++, proto::WatchHostActor{actor},
                    [promise](Result<proto::ActorDone> done) {
                      promise->set_value(std::move(done).map([](proto::ActorDone news) {
                        return ActorNews{news.fate, std::move(news.ref), news.why.ToStatus()};
                      }));
                    });
    return promise->get_future();
  }

  Status Stop(const ActorRef& actor) override {
    return internal::ToStatus(actor_asks_.Await(next_id_++, proto::StopHostActor{actor}, "stop"));
  }

  Status Close() override {
    MW_TRY(Write(proto::SessionClose{}));
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::milliseconds(start_.options.timeout_ms);
    if (changed_.wait_for(lock, deadline, [&] { return end_.has_value(); })) {
      return end_->code() == StatusCode::kUnavailable ? *end_ : OkStatus();
    }
    return DeadlineExceeded(fmt::format("the controller did not end the session within {} ms",
                                        start_.options.timeout_ms));
  }

 private:
  using Promise = std::promise<Result<Answer>>;

  Result<Answer> Await(std::future<Result<Answer>> future, const std::string& what) const {
    const auto deadline = std::chrono::milliseconds(start_.options.timeout_ms);
    if (future.wait_for(deadline) == std::future_status::ready) return future.get();
    return Fail(DeadlineExceeded(
        fmt::format("no answer to '{}' within {} ms", what, start_.options.timeout_ms)));
  }

  std::future<Result<Answer>> Ask(proto::ClientAsk ask) {
    Promise promise;
    std::future<Result<Answer>> future = promise.get_future();
    uint64_t id = 0;
    {
      std::unique_lock lock(mutex_);
      const auto deadline = std::chrono::milliseconds(start_.options.timeout_ms);
      const bool may = changed_.wait_for(lock, deadline, [&] {
        return end_.has_value() || (opened_ && unanswered_.size() < Credits());
      });
      if (end_ || !may) {
        promise.set_value(Fail(end_ ? EndOr(*end_)
                                    : DeadlineExceeded(fmt::format(
                                          "{} calls are unanswered, the most at once, for {} ms",
                                          unanswered_.size(), start_.options.timeout_ms))));
        return future;
      }
      id = next_id_++;
      unanswered_.emplace(id, std::move(promise));
    }
    const Status written = Write(proto::SessionAsk{id, std::move(ask)});
    if (!written.ok()) Settle(id, Fail(written));
    return future;
  }

  size_t Credits() const { return static_cast<size_t>(std::max(1, opened_->credits)); }

  static Status EndOr(const Status& end) {
    return end.ok() ? FailedPrecondition("the session has ended") : end;
  }

  Status Write(const proto::ClientUp& message) {
    std::scoped_lock lock(write_mutex_);
    for (const v1::Frame& frame : proto::CutToFrames(proto::Encode(message).SerializeAsString())) {
      if (stream_->Write(frame)) continue;
      return Unavailable("the session's connection to the controller is closed");
    }
    return OkStatus();
  }

  void ReadLoop() {
    v1::Frame frame;
    proto::FrameJoiner joiner;
    Status damage;
    while (damage.ok() && stream_->Read(&frame)) damage = Take(joiner, frame);
    if (!damage.ok()) context_.TryCancel();
    const Status end = start_.explain(stream_->Finish());
    std::map<uint64_t, Promise> left;
    {
      std::scoped_lock lock(mutex_);
      end_ = damage.ok() ? end : damage;
      left = std::exchange(unanswered_, {});
    }
    for (auto& [id, promise] : left) promise.set_value(Fail(EndOr(*end_)));
    actor_asks_.End(EndOr(*end_));
    changed_.notify_all();
  }

  Status Take(proto::FrameJoiner& joiner, const v1::Frame& frame) {
    MW_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, joiner.Add(frame));
    if (!bytes) return OkStatus();
    v1::ClientDown wire;
    if (!wire.ParseFromString(*bytes)) return DataLoss("a message of the session is damaged");
    MW_ASSIGN_OR_RETURN(proto::ClientDown message, proto::Decode(wire));
    if (auto* opened = std::get_if<proto::SessionOpened>(&message)) {
      std::scoped_lock lock(mutex_);
      opened_ = std::move(*opened);
      changed_.notify_all();
    } else if (auto* done = std::get_if<proto::AskDone>(&message)) {
      Settle(done->id, ToAnswer(std::move(*done)));
    } else if (auto* actor = std::get_if<proto::ActorDone>(&message)) {
      const uint64_t id = actor->id;
      actor_asks_.Settle(id, std::move(*actor));
    } else {
      const auto& failed = std::get<proto::AskFailed>(message);
      Settle(failed.id, Fail(failed.error.ToStatus()));
      actor_asks_.Settle(failed.id, Fail(failed.error.ToStatus()));
    }
    return OkStatus();
  }

  static Result<Answer> ToAnswer(proto::AskDone done) {
    Answer answer;
    answer.step = done.step;
    answer.seconds = done.seconds;
    answer.values = std::move(done.values);
    MW_ASSIGN_OR_RETURN(answer.tensors, AssembleTiles(done.tensors));
    return answer;
  }

  void Settle(uint64_t id, Result<Answer> result) {
    std::optional<Promise> promise;
    {
      std::scoped_lock lock(mutex_);
      const auto it = unanswered_.find(id);
      if (it == unanswered_.end()) return;
      promise = std::move(it->second);
      unanswered_.erase(it);
    }
    promise->set_value(std::move(result));
    changed_.notify_all();
  }

  SessionStart start_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::Frame, v1::Frame>> stream_;
  std::mutex write_mutex_;    // one message at a time
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::optional<proto::SessionOpened> opened_;
  std::optional<Status> end_;  // of the stream
  std::map<uint64_t, Promise> unanswered_;
  std::atomic<uint64_t> next_id_{1};  // of calls and of what is asked of actors
  ActorAsks actor_asks_;
  Executor reader_{"mw-session"};  // last: it ends before what it uses
};

}  // namespace

Result<std::unique_ptr<Session>> StartSession(const std::shared_ptr<grpc::Channel>& channel,
                                              SessionStart start) {
  auto session = std::make_unique<GrpcSession>(channel, std::move(start));
  MW_TRY(session->Open());
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace meshwright::client
