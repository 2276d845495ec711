#include "client/grpc/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "client/ask_table.h"
#include "client/grpc/session_stream.h"
#include "client/tensor_tiles.h"

namespace meshwright::client {
namespace {

constexpr int64_t kFirstPauseMs = 50;
constexpr int64_t kLongestPauseMs = 2000;

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

Status EndOr(const Status& end) {
  return end.ok() ? FailedPrecondition("the session has ended") : end;
}

// Ends that are of the connection, and not of the session.
bool IsOfTheNetwork(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kUnknown ||
         code == StatusCode::kInternal || code == StatusCode::kCancelled;
}

// The reader's thread reads one stream after another; callers write to the one that is live.
class GrpcSession final : public Session {
 public:
  GrpcSession(const std::shared_ptr<grpc::Channel>& channel, SessionStart start)
      : start_(std::move(start)), stub_(v1::JobService::NewStub(channel)) {
    reader_.Post([this] { ReadStreams(); });
  }

  ~GrpcSession() override {
    {
      std::scoped_lock lock(mutex_);
      destroyed_ = true;
      if (stream_) stream_->Cancel();
    }
    changed_.notify_all();
    reader_.Stop();
  }

  Status Open() {
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::milliseconds(start_.options.open_timeout_ms);
    const bool told =
        changed_.wait_for(lock, deadline, [&] { return opened_ || end_.has_value(); });
    if (end_) return EndOr(*end_);
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
    MW_ASSIGN_OR_RETURN(proto::ActorDone done,
                        AwaitActor(proto::SpawnHostActor{type, args, worker}, "spawn " + type));
    return std::move(done.ref);
  }

  std::future<Result<std::string>> Ask(const ActorRef& actor, std::string payload,
                                       int64_t deadline_ms) override {
    const auto promise = std::make_shared<std::promise<Result<std::string>>>();
    AskActor(proto::AskHostActor{actor, std::move(payload), deadline_ms},
             [promise](Result<proto::ActorDone> done) {
               promise->set_value(std::move(done).map(
                   [](proto::ActorDone answer) { return std::move(answer.payload); }));
             });
    return promise->get_future();
  }

  Status Stop(const ActorRef& actor) override {
    return internal::ToStatus(AwaitActor(proto::StopHostActor{actor}, "stop"));
  }

  Status Close() override {
    std::shared_ptr<SessionStream> stream;
    std::scoped_lock order(order_mutex_);
    {
      std::scoped_lock lock(mutex_);
      close_wanted_ = true;
      stream = live_;
    }
    if (stream) (void)stream->Write(proto::SessionClose{});
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
  using ActorCallback = std::function<void(Result<proto::ActorDone>)>;

  // ---- Asking ----

  Result<Answer> Await(std::future<Result<Answer>> future, const std::string& what) const {
    const auto deadline = std::chrono::milliseconds(start_.options.timeout_ms);
    if (future.wait_for(deadline) == std::future_status::ready) return future.get();
    return Fail(DeadlineExceeded(
        fmt::format("no answer to '{}' within {} ms", what, start_.options.timeout_ms)));
  }

  std::future<Result<Answer>> Ask(proto::ClientAsk ask) {
    const auto promise = std::make_shared<Promise>();
    std::future<Result<Answer>> future = promise->get_future();
    // A message that the controller does not take would end the session.
    if (const Status fits = CheckSize(ask); !fits.ok()) {
      promise->set_value(Fail(fits));
      return future;
    }
    const Status sent = Send(std::move(ask), [promise](Result<proto::AskDone> done) {
      promise->set_value(std::move(done).and_then(ToAnswer));
    });
    if (!sent.ok()) promise->set_value(Fail(sent));
    return future;
  }

  // OK: `done` is called exactly once.
  Status Send(proto::ClientAsk ask, AskTable::Done done) {
    const Deadline deadline = Deadline::After(start_.options.timeout_ms);
    while (true) {
      MW_TRY(WaitForCredit(deadline));
      // In the order of their ids, which is that of the calls.
      std::scoped_lock order(order_mutex_);
      std::unique_lock lock(mutex_);
      if (!end_ && !MayAsk()) continue;
      if (end_) return EndOr(*end_);
      const uint64_t id = table_.Add(std::move(ask), std::move(done));
      const std::shared_ptr<SessionStream> stream = live_;
      if (!stream) return OkStatus();  // it goes with what is sent again
      const proto::SessionAsk message = table_.MessageOf(id);
      lock.unlock();
      (void)stream->Write(message);  // where that fails, the stream has ended
      return OkStatus();
    }
  }

  // REQUIRES: mutex_ held.
  bool MayAsk() const {
    return opened_ && table_.unanswered() < static_cast<size_t>(std::max(1, opened_->credits));
  }

  Status WaitForCredit(const Deadline& deadline) {
    std::unique_lock lock(mutex_);
    const auto wait = std::chrono::milliseconds(deadline.remaining_ms());
    const bool may = changed_.wait_for(lock, wait, [&] { return end_.has_value() || MayAsk(); });
    if (end_) return EndOr(*end_);
    if (may) return OkStatus();
    return DeadlineExceeded(fmt::format("{} calls are unanswered, the most at once, for {} ms",
                                        table_.unanswered(), start_.options.timeout_ms));
  }

  // `done` is called exactly once, from here or from the reader.
  void AskActor(proto::ActorAsk ask, ActorCallback done) {
    std::unique_lock lock(mutex_);
    const auto wait = std::chrono::milliseconds(start_.options.timeout_ms);
    const bool may = changed_.wait_for(lock, wait, [&] { return end_.has_value() || live_; });
    if (end_ || !may) {
      const Status why =
          end_ ? EndOr(*end_)
               : DeadlineExceeded(fmt::format("the connection to the controller is broken for {} "
                                              "ms",
                                              start_.options.timeout_ms));
      lock.unlock();
      return done(Fail(why));
    }
    const uint64_t id = table_.NextId();
    actor_asks_.emplace(id, std::move(done));
    const std::shared_ptr<SessionStream> stream = live_;
    lock.unlock();
    (void)stream->Write(proto::SessionActorAsk{id, std::move(ask)});
  }

  Result<proto::ActorDone> AwaitActor(proto::ActorAsk ask, const std::string& what) {
    const auto promise = std::make_shared<std::promise<Result<proto::ActorDone>>>();
    std::future<Result<proto::ActorDone>> future = promise->get_future();
    AskActor(std::move(ask),
             [promise](Result<proto::ActorDone> done) { promise->set_value(std::move(done)); });
    const auto deadline = std::chrono::milliseconds(start_.options.timeout_ms);
    if (future.wait_for(deadline) == std::future_status::ready) return future.get();
    return Fail(DeadlineExceeded(
        fmt::format("no answer to '{}' within {} ms", what, start_.options.timeout_ms)));
  }

  // ---- Hearing: on the reader ----

  void ReadStreams() {
    int64_t pause_ms = 0;
    Deadline given_up = Deadline::After(start_.options.reconnect_ms);
    while (const std::shared_ptr<SessionStream> stream = NextStream(pause_ms)) {
      bool told = false;
      const SessionStream::End end = stream->Read([&](proto::ClientDown message) {
        told = true;
        return Take(stream, std::move(message));
      });
      Status status = end.damage.ok() ? start_.explain(end.status) : end.damage;
      const bool broken = !end.final && end.damage.ok() && IsOfTheNetwork(status.code());
      if (!broken || start_.options.reconnect_ms <= 0) return Conclude(std::move(status));
      // A stream on which nothing came is one more attempt.
      if (told) given_up = Deadline::After(start_.options.reconnect_ms);
      pause_ms = told ? 0 : std::clamp(2 * pause_ms, kFirstPauseMs, kLongestPauseMs);
      if (given_up.expired()) {
        return Conclude(Unavailable(fmt::format("{}; the connection was tried again for {} ms",
                                                status.message(), start_.options.reconnect_ms)));
      }
      Lose(status);
    }
    Conclude(Cancelled("the session was given up"));
  }

  // Null: the session is given up.
  std::shared_ptr<SessionStream> NextStream(int64_t pause_ms) {
    std::unique_lock lock(mutex_);
    const auto pause = std::chrono::milliseconds(pause_ms);
    if (changed_.wait_for(lock, pause, [&] { return destroyed_; })) return nullptr;
    stream_ = std::make_shared<SessionStream>(*stub_, start_.prepare);
    const std::shared_ptr<SessionStream> stream = stream_;
    lock.unlock();
    (void)stream->Write(start_.open);  // where that fails, Read says why
    return stream;
  }

  // Whether an actor got a question cannot be known: it is not asked twice.
  void Lose(const Status& why) {
    std::map<uint64_t, ActorCallback> lost;
    {
      std::scoped_lock lock(mutex_);
      live_.reset();
      lost = std::exchange(actor_asks_, {});
    }
    for (const auto& [id, done] : lost) {
      done(Fail(Unavailable(
          fmt::format("the connection broke before the actor's answer came: {}", why.message()))));
    }
  }

  void Conclude(Status end) {
    std::vector<AskTable::Done> left;
    std::map<uint64_t, ActorCallback> left_actors;
    {
      std::scoped_lock lock(mutex_);
      end_ = end;
      live_.reset();
      left = table_.TakeAll();
      left_actors = std::exchange(actor_asks_, {});
    }
    for (const AskTable::Done& done : left) done(Fail(EndOr(end)));
    for (const auto& [id, done] : left_actors) done(Fail(EndOr(end)));
    changed_.notify_all();
  }

  Status Take(const std::shared_ptr<SessionStream>& stream, proto::ClientDown message) {
    if (auto* opened = std::get_if<proto::SessionOpened>(&message)) {
      GoLive(stream, std::move(*opened));
    } else if (auto* done = std::get_if<proto::AskDone>(&message)) {
      const uint64_t id = done->id;
      const int64_t bytes = BytesOf(*done);
      Settle(stream, id, bytes, std::move(*done));
    } else if (auto* actor = std::get_if<proto::ActorDone>(&message)) {
      SettleActor(actor->id, std::move(*actor));
    } else if (const auto* failed = std::get_if<proto::AskFailed>(&message)) {
      if (!SettleActor(failed->id, Fail(failed->error.ToStatus()))) {
        Settle(stream, failed->id, 0, Fail(failed->error.ToStatus()));
      }
    }
    return OkStatus();
  }

  // What is unanswered and did not arrive is sent again, before anything new.
  void GoLive(const std::shared_ptr<SessionStream>& stream, proto::SessionOpened opened) {
    std::scoped_lock order(order_mutex_);
    std::vector<uint64_t> again;
    bool close = false;
    {
      std::scoped_lock lock(mutex_);
      again = table_.ToRepeat(opened.held);
      close = close_wanted_;
      live_ = stream;
      // From now on it is a session that somebody knows.
      start_.open = {"", std::nullopt, opened.job_id, start_.open.session, true};
      opened_ = std::move(opened);
    }
    for (const uint64_t id : again) {
      std::unique_lock lock(mutex_);
      const proto::SessionAsk message = table_.MessageOf(id);
      lock.unlock();
      if (!stream->Write(message)) break;
    }
    if (close) (void)stream->Write(proto::SessionClose{});
    changed_.notify_all();
  }

  void Settle(const std::shared_ptr<SessionStream>& stream, uint64_t id, int64_t bytes,
              Result<proto::AskDone> result) {
    AskTable::Done done;
    std::vector<uint64_t> acks;
    {
      std::scoped_lock lock(mutex_);
      done = table_.Answered(id, bytes);
      acks = table_.DueAcks();
    }
    if (!acks.empty()) (void)stream->Write(proto::SessionAck{std::move(acks)});
    if (done) done(std::move(result));
    changed_.notify_all();
  }

  // False: no question to an actor has this id.
  bool SettleActor(uint64_t id, Result<proto::ActorDone> result) {
    ActorCallback done;
    {
      std::scoped_lock lock(mutex_);
      const auto it = actor_asks_.find(id);
      if (it == actor_asks_.end()) return false;
      done = std::move(it->second);
      actor_asks_.erase(it);
    }
    done(std::move(result));
    return true;
  }

  SessionStart start_;  // `open`: by the reader
  const std::unique_ptr<v1::JobService::Stub> stub_;
  std::mutex order_mutex_;    // before mutex_: asks are sent in the order of their ids
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::shared_ptr<SessionStream> stream_;  // the newest
  std::shared_ptr<SessionStream> live_;    // where it is open: asks may be written
  std::optional<proto::SessionOpened> opened_;
  std::optional<Status> end_;
  bool close_wanted_ = false;
  bool destroyed_ = false;
  AskTable table_;
  std::map<uint64_t, ActorCallback> actor_asks_;
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
