#include "client/grpc/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "client/ask_table.h"
#include "client/grpc/actor_asks.h"
#include "client/grpc/session_streams.h"
#include "client/tensor_tiles.h"

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

int64_t BytesOf(const proto::AskDone& done) {
  int64_t bytes = 0;
  for (const proto::TensorTile& tile : done.tensors) {
    bytes += static_cast<int64_t>(tile.bytes.size());
  }
  return bytes;
}

Result<Answer> ToAnswer(proto::AskDone done) {
  Answer answer;
  answer.step = done.step;
  answer.seconds = done.seconds;
  answer.values = std::move(done.values);
  MW_ASSIGN_OR_RETURN(answer.tensors, AssembleTiles(done.tensors));
  return answer;
}

Status CheckSize(const proto::ClientAsk& ask) {
  const auto bytes_of = [](const std::vector<proto::NamedTensor>& tensors) {
    int64_t bytes = 0;
    for (const proto::NamedTensor& tensor : tensors) {
      bytes += static_cast<int64_t>(tensor.bytes.size());
    }
    return bytes;
  };
  int64_t bytes = 0;
  if (const auto* call = std::get_if<proto::CallProgram>(&ask)) bytes = bytes_of(call->inputs);
  if (const auto* write = std::get_if<proto::WriteState>(&ask)) bytes = bytes_of(write->tensors);
  if (bytes <= proto::kMaxTensorBytes) return OkStatus();
  return ResourceExhausted(
      fmt::format("the tensors have {} bytes, of which one message takes {}: use smaller batches, "
                  "or write fewer tensors at once",
                  bytes, proto::kMaxTensorBytes));
}

using Signatures = std::map<std::string, std::map<std::string, ir::TensorType>>;

Signatures SignaturesOf(const proto::SessionOpened& opened) {
  Signatures all;
  for (const proto::ProgramSignature& program : opened.programs) {
    auto& inputs = all[program.name];
    for (const proto::NamedTensor& input : program.inputs) inputs[input.name] = input.type;
  }
  return all;
}

Status EndOr(const Status& end) {
  return end.ok() ? FailedPrecondition("the session has ended") : end;
}

Status NoCredit(size_t unanswered, int64_t waited_ms) {
  return DeadlineExceeded(
      fmt::format("{} calls are unanswered, the most at once, for {} ms", unanswered, waited_ms));
}

Status StillOpen(size_t unanswered, int64_t waited_ms) {
  return DeadlineExceeded(fmt::format(
      "{} calls are unanswered after {} ms, so that the session did not close; close it again",
      unanswered, waited_ms));
}

Status Broken(int64_t waited_ms) {
  return DeadlineExceeded(
      fmt::format("the connection to the controller is broken for {} ms", waited_ms));
}

template <typename T>
Result<T> Await(std::future<Result<T>> future, int64_t timeout_ms, const std::string& what) {
  if (future.wait_for(std::chrono::milliseconds(timeout_ms)) == std::future_status::ready) {
    return future.get();
  }
  return Fail(DeadlineExceeded(fmt::format("no answer to '{}' within {} ms", what, timeout_ms)));
}

// The reader's thread reads one stream after another; callers write to the one that is live.
class GrpcSession final : public Session {
 public:
  GrpcSession(const std::shared_ptr<grpc::Channel>& channel, SessionStart start)
      : options_(start.options),
        streams_(channel, std::move(start)),
        actor_asks_([this](const proto::ClientUp& message) { return WriteToActors(message); },
                    options_.timeout_ms) {
    reader_.Post([this] {
      Conclude(streams_.Run({[this](const StreamPtr& stream, proto::ClientDown message) {
                               return Take(stream, std::move(message));
                             },
                             [this](const Status& why) { Lose(why); }}));
    });
  }

  ~GrpcSession() override {
    streams_.GiveUp();
    reader_.Stop();
  }

  Status Open() MW_EXCLUDES(mutex_) {
    const auto due = Deadline::After(options_.open_timeout_ms).SteadyTimePoint();
    const MutexLock lock(mutex_);
    while (!end_ && !opened_ && changed_.WaitUntil(mutex_, due)) {
    }
    if (end_) return EndOr(*end_);
    if (opened_) return OkStatus();
    return DeadlineExceeded(fmt::format(
        "the job did not run within {} s; see why with 'meshwright jobs', or give it more time",
        options_.open_timeout_ms / 1000));
  }

  int64_t job_id() const override MW_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return opened_ ? opened_->job_id : 0;
  }

  Signatures programs() const override MW_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return opened_ ? SignaturesOf(*opened_) : Signatures();
  }

  std::future<Result<Answer>> Call(const std::string& program, const Feeds& feeds,
                                   CallOptions options) override {
    return Ask(proto::CallProgram{program, ToWire(feeds), options.fetch, options.step});
  }

  Result<Answer> Run(const std::string& program, const Feeds& feeds, CallOptions options) override {
    return Await(Call(program, feeds, options), options_.timeout_ms, program);
  }

  Result<std::map<std::string, Tensor>> ReadState(const std::vector<std::string>& names) override {
    MW_ASSIGN_OR_RETURN(Answer answer, Await(Ask(proto::ReadState{names}), options_.timeout_ms,
                                             "reading the state"));
    return std::move(answer.tensors);
  }

  Status WriteState(const std::map<std::string, Tensor>& tensors) override {
    return internal::ToStatus(
        Await(Ask(proto::WriteState{ToWire(tensors)}), options_.timeout_ms, "writing the state"));
  }

  Result<ActorRef> Spawn(const std::string& type, const std::string& args,
                         const std::string& worker) override {
    MW_ASSIGN_OR_RETURN(
        proto::ActorDone done,
        actor_asks_.Await(NextId(), proto::SpawnHostActor{type, args, worker}, "spawn " + type));
    return std::move(done.ref);
  }

  std::future<Result<std::string>> Ask(const ActorRef& actor, std::string payload,
                                       int64_t deadline_ms) override {
    const auto promise = std::make_shared<std::promise<Result<std::string>>>();
    actor_asks_.Ask(NextId(), proto::AskHostActor{actor, std::move(payload), deadline_ms},
                    [promise](Result<proto::ActorDone> done) {
                      promise->set_value(std::move(done).map(
                          [](proto::ActorDone answer) { return std::move(answer.payload); }));
                    });
    return promise->get_future();
  }

  std::future<Status> Tell(const ActorRef& actor, std::string payload,
                           int64_t deadline_ms) override {
    const auto promise = std::make_shared<std::promise<Status>>();
    actor_asks_.Ask(NextId(), proto::AskHostActor{actor, std::move(payload), deadline_ms, true},
                    [promise](Result<proto::ActorDone> done) {
                      promise->set_value(internal::ToStatus(std::move(done)));
                    });
    return promise->get_future();
  }

  std::future<Result<ActorNews>> Watch(const ActorRef& actor) override {
    const auto promise = std::make_shared<std::promise<Result<ActorNews>>>();
    actor_asks_.Ask(NextId(), proto::WatchHostActor{actor},
                    [promise](Result<proto::ActorDone> done) {
                      promise->set_value(std::move(done).map([](proto::ActorDone news) {
                        return ActorNews{news.fate, std::move(news.ref), news.why.ToStatus()};
                      }));
                    });
    return promise->get_future();
  }

  Status Stop(const ActorRef& actor) override {
    return internal::ToStatus(actor_asks_.Await(NextId(), proto::StopHostActor{actor}, "stop"));
  }

  Status Close(CloseOptions options) override MW_EXCLUDES(order_mutex_, mutex_) {
    const auto due = Deadline::After(options_.timeout_ms).SteadyTimePoint();
    StreamPtr stream;
    {
      const MutexLock lock(mutex_);
      close_ = proto::SessionClose{options.end_job};
      while (!end_ && table_.unanswered() > 0 && changed_.WaitUntil(mutex_, due)) {
      }
      const size_t left = end_ ? 0 : table_.unanswered();
      if (left > 0) return StillOpen(left, options_.timeout_ms);
      stream = live_;
    }
    if (stream) (void)stream->Write(proto::SessionClose{options.end_job});
    const MutexLock lock(mutex_);
    while (!end_ && changed_.WaitUntil(mutex_, due)) {
    }
    if (end_) return end_->code() == StatusCode::kUnavailable ? *end_ : OkStatus();
    return DeadlineExceeded(
        fmt::format("the controller did not end the session within {} ms", options_.timeout_ms));
  }

 private:
  using StreamPtr = SessionStreams::StreamPtr;

  // ---- Asking ----

  std::future<Result<Answer>> Ask(proto::ClientAsk ask) {
    const auto promise = std::make_shared<std::promise<Result<Answer>>>();
    std::future<Result<Answer>> future = promise->get_future();
    // A message that the controller does not take would end the session.
    Status sent = CheckSize(ask);
    if (sent.ok()) {
      sent = Send(std::move(ask), [promise](Result<proto::AskDone> done) {
        promise->set_value(std::move(done).and_then(ToAnswer));
      });
    }
    if (!sent.ok()) promise->set_value(Fail(sent));
    return future;
  }

  // OK: `done` is called exactly once.
  Status Send(proto::ClientAsk ask, AskTable::Done done) MW_EXCLUDES(order_mutex_, mutex_) {
    const auto due = Deadline::After(options_.timeout_ms).SteadyTimePoint();
    while (true) {
      {
        const MutexLock lock(mutex_);
        while (!end_ && !close_ && !MayAsk() && changed_.WaitUntil(mutex_, due)) {
        }
        if (end_ || close_) return EndOr(end_.value_or(OkStatus()));
        if (!MayAsk()) return NoCredit(table_.unanswered(), options_.timeout_ms);
      }
      // In the order of their ids, which is that of the calls.
      const MutexLock order(order_mutex_);
      StreamPtr stream;
      proto::SessionAsk message;
      {
        const MutexLock lock(mutex_);
        if (end_ || close_) return EndOr(end_.value_or(OkStatus()));
        if (!MayAsk()) continue;
        const uint64_t id = table_.Add(std::move(ask), std::move(done));
        stream = live_;
        if (!stream) return OkStatus();  // it goes with what is sent again
        message = table_.MessageOf(id);
      }
      (void)stream->Write(std::move(message));  // where that fails, the stream has ended
      return OkStatus();
    }
  }

  bool MayAsk() const MW_REQUIRES(mutex_) {
    return opened_ && table_.open() < static_cast<size_t>(std::max(1, opened_->credits));
  }

  uint64_t NextId() MW_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return table_.NextId();
  }

  // Where the connection is broken, to the next one.
  Status WriteToActors(const proto::ClientUp& message) MW_EXCLUDES(mutex_) {
    const auto due = Deadline::After(options_.timeout_ms).SteadyTimePoint();
    StreamPtr stream;
    {
      const MutexLock lock(mutex_);
      while (!end_ && !live_ && changed_.WaitUntil(mutex_, due)) {
      }
      if (end_) return EndOr(*end_);
      if (!live_) return Broken(options_.timeout_ms);
      stream = live_;
    }
    if (stream->Write(message)) return OkStatus();
    return Unavailable("the connection broke before the actor was asked");
  }

  // ---- Hearing: on the reader ----

  // Whether an actor got a question cannot be known: it is not asked twice.
  void Lose(const Status& why) MW_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      live_.reset();
    }
    actor_asks_.Lose(Unavailable(
        fmt::format("the connection broke before the actor's answer came: {}", why.message())));
  }

  void Conclude(const Status& end) MW_EXCLUDES(mutex_) {
    std::vector<AskTable::Done> left;
    {
      const MutexLock lock(mutex_);
      end_ = end;
      live_.reset();
      left = table_.TakeAll();
    }
    for (const AskTable::Done& done : left) done(Fail(EndOr(end)));
    actor_asks_.End(EndOr(end));
    changed_.NotifyAll();
  }

  Status Take(const StreamPtr& stream, proto::ClientDown message) {
    if (auto* opened = std::get_if<proto::SessionOpened>(&message)) {
      GoLive(stream, std::move(*opened));
    } else if (auto* done = std::get_if<proto::AskDone>(&message)) {
      const uint64_t id = done->id;
      const int64_t bytes = BytesOf(*done);
      Settle(stream, id, bytes, std::move(*done));
    } else if (auto* actor = std::get_if<proto::ActorDone>(&message)) {
      const uint64_t id = actor->id;
      actor_asks_.Settle(id, std::move(*actor));
    } else if (const auto* failed = std::get_if<proto::AskFailed>(&message)) {
      if (!actor_asks_.Settle(failed->id, Fail(failed->error.ToStatus()))) {
        Settle(stream, failed->id, 0, Fail(failed->error.ToStatus()));
      }
    }
    return OkStatus();
  }

  // What is unanswered and did not arrive is sent again, before anything new.
  void GoLive(const StreamPtr& stream, proto::SessionOpened opened)
      MW_EXCLUDES(order_mutex_, mutex_) {
    streams_.ComeBackTo(opened.job_id);
    const MutexLock order(order_mutex_);
    std::vector<uint64_t> again;
    std::optional<proto::SessionClose> close;
    {
      const MutexLock lock(mutex_);
      again = table_.ToRepeat(opened.held);
      if (table_.unanswered() == 0) close = close_;
      live_ = stream;
      opened_ = std::move(opened);
    }
    for (const uint64_t id : again) {
      proto::SessionAsk message;
      {
        const MutexLock lock(mutex_);
        message = table_.MessageOf(id);
      }
      if (!stream->Write(std::move(message))) break;
    }
    if (close) (void)stream->Write(*close);
    changed_.NotifyAll();
  }

  void Settle(const StreamPtr& stream, uint64_t id, int64_t bytes, Result<proto::AskDone> result)
      MW_EXCLUDES(mutex_) {
    AskTable::Done done;
    std::vector<uint64_t> acks;
    {
      const MutexLock lock(mutex_);
      done = table_.Answered(id, bytes);
      acks = table_.DueAcks();
    }
    if (!acks.empty()) {
      (void)stream->Write(proto::SessionAck{acks});
      const MutexLock lock(mutex_);
      table_.AcksSent(acks.size());
    }
    if (done) done(std::move(result));
    changed_.NotifyAll();
  }

  const SessionOptions options_;
  SessionStreams streams_;
  Mutex order_mutex_ MW_ACQUIRED_BEFORE(mutex_);  // asks are sent in the order of their ids
  mutable Mutex mutex_;
  CondVar changed_;
  StreamPtr live_ MW_GUARDED_BY(mutex_);  // that is open: asks may be written
  std::optional<proto::SessionOpened> opened_ MW_GUARDED_BY(mutex_);
  std::optional<Status> end_ MW_GUARDED_BY(mutex_);
  std::optional<proto::SessionClose> close_ MW_GUARDED_BY(mutex_);  // once nothing is unanswered
  AskTable table_ MW_GUARDED_BY(mutex_);
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
