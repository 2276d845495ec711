#include "worker/link.h"
#include "base/mutex.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "base/failpoint.h"
#include "proto/convert.h"
#include "proto/frames.h"
#include "proto/grpc_status.h"
#include "proto/meshwright.grpc.pb.h"
#include "security/grpc/credentials.h"
#include "security/tls_probe.h"

namespace meshwright::worker {
namespace {

constexpr size_t kMaxQueued = 1024;
// However much there is to send, something of it moves, or the disk of the controller is gone.
constexpr int64_t kBulkIdleMs = 120'000;
constexpr int64_t kBulkLookMs = 5'000;
constexpr int64_t kBulkConnectMs = 10'000;
constexpr int64_t kExplainMs = 3'000;
constexpr int64_t kBulkSliceMs = 50;  // how long a cancelled call may go on waiting

std::chrono::system_clock::time_point In(int64_t ms) {
  return std::chrono::system_clock::now() + std::chrono::milliseconds(ms);
}

void Authorise(grpc::ClientContext& context, const std::string& token) {
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
}

using Stream = grpc::ClientReaderWriter<v1::Up, v1::Down>;

// Reads on the caller's thread; a thread of its own writes what is queued.
class GrpcSession final : public Session {
 public:
  GrpcSession(v1::WorkerService::Stub& stub, const std::string& token) {
    Authorise(context_, token);
    stream_ = stub.Session(&context_);
    writer_ = std::thread([this] { WriteLoop(); });
  }

  ~GrpcSession() override {
    context_.TryCancel();
    EndWriter();
    if (!finished_) {
      v1::Down ignored;
      while (stream_->Read(&ignored)) {
      }
      (void)stream_->Finish();
    }
  }

  bool Send(proto::UpMessage message) override {
    const MutexLock lock(mutex_);
    if (ended_ || closing_) return false;
    queue_.push_back(std::move(message));
    // The controller does not read: it is as good as gone.
    if (queue_.size() > kMaxQueued) context_.TryCancel();
    wake_.NotifyOne();
    return true;
  }

  Result<proto::DownMessage> Receive() override {
    v1::Down wire;
    while (!finished_ && stream_->Read(&wire)) {
      MW_ASSIGN_OR_RETURN(const std::optional<v1::Down> whole, proto::JoinPieces(joiner_, wire));
      if (whole) return proto::Decode(*whole);
    }
    EndWriter();
    if (!finished_) {
      finished_ = true;
      const grpc::Status status = stream_->Finish();
      end_ =
          status.ok() ? Unavailable("the controller ended the session") : proto::FromGrpc(status);
    }
    return Fail(end_);
  }

  void Close(int64_t flush_ms) override {
    {
      const MutexLock lock(mutex_);
      closing_ = true;
      wake_.NotifyOne();
      // The controller answers the half-close by ending the session, which the reader sees.
      const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(flush_ms);
      while (!ended_ && flushed_.WaitUntil(mutex_, due)) {
      }
    }
    context_.TryCancel();
  }

 private:
  void WriteLoop() {
    MutexLock lock(mutex_);
    while (true) {
      while (!ended_ && !closing_ && queue_.empty()) wake_.Wait(mutex_);
      if (ended_) break;
      if (queue_.empty()) break;  // closing, and all is out
      const proto::UpMessage message = std::move(queue_.front());
      queue_.pop_front();
      lock.Unlock();
      const bool ok = Write(message);
      lock.Lock();
      if (!ok) break;
    }
    const bool half_close = closing_ && !ended_;
    lock.Unlock();
    if (half_close) stream_->WritesDone();
  }

  bool Write(const proto::UpMessage& message) {
    for (const v1::Up& piece : proto::CutToPieces(proto::Encode(message))) {
      if (!stream_->Write(piece)) return false;
    }
    return true;
  }

  void EndWriter() {
    {
      const MutexLock lock(mutex_);
      ended_ = true;
      wake_.NotifyOne();
      flushed_.NotifyAll();
    }
    if (writer_.joinable()) writer_.join();
  }

  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  bool finished_ = false;  // by the reader
  Status end_;             // by the reader
  proto::FrameJoiner joiner_;
  Mutex mutex_;
  CondVar wake_;
  CondVar flushed_;
  std::deque<proto::UpMessage> queue_ MW_GUARDED_BY(mutex_);
  bool ended_ MW_GUARDED_BY(mutex_) = false;
  bool closing_ MW_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

class BulkCall;

// Those that are under way: they can be ended together, and each ends when nothing of it moves.
class BulkCalls {
 public:
  BulkCalls() { LookLater(); }
  void Add(BulkCall* call) {
    const MutexLock lock(mutex_);
    calls_.insert(call);
  }
  void Remove(BulkCall* call) {
    const MutexLock lock(mutex_);
    calls_.erase(call);
  }
  void CancelAll();

 private:
  void Look();
  void LookLater() {
    (void)timer_.PostAfter(kBulkLookMs, [this] { Look(); });
  }

  Mutex mutex_;
  std::set<BulkCall*> calls_ MW_GUARDED_BY(mutex_);
  Executor timer_{"mw-transfers"};  // last: it looks at the calls
};

// Among the calls while it lives, so that CancelBulk finds it, also before the first byte.
class BulkCall {
 public:
  using CancelCheck = ControllerLink::CancelCheck;

  BulkCall(BulkCalls& calls, const std::string& token, const CancelCheck& asked)
      : calls_(calls), asked_(asked) {
    Authorise(context_, token);
    calls_.Add(this);
  }
  ~BulkCall() { calls_.Remove(this); }
  BulkCall(const BulkCall&) = delete;
  BulkCall& operator=(const BulkCall&) = delete;

  grpc::ClientContext& context() { return context_; }
  void Cancel() {
    cancelled_ = true;
    context_.TryCancel();
  }
  Status CheckCancelled() const {
    if (!cancelled_ && !asked_()) return OkStatus();
    return Cancelled("the transfer was cancelled: its job or session has ended");
  }
  // A piece of it has moved. Errors: it was cancelled meanwhile.
  Status Moved() {
    moved_ms_ = SystemClock().NowMs();
    return CheckCancelled();
  }
  void EndIfStanding(int64_t now_ms) {
    if (now_ms - moved_ms_ < kBulkIdleMs) return;
    stood_ = true;
    context_.TryCancel();
  }
  // What has come of it: what this side has met, else what the controller says.
  Status End(const grpc::Status& end, const Status& failure) const {
    if (!failure.ok()) return failure;
    if (!stood_) return proto::FromGrpc(end);
    return DeadlineExceeded(fmt::format(
        "nothing moved between this worker and the controller for {} s", kBulkIdleMs / 1000));
  }

 private:
  BulkCalls& calls_;
  const CancelCheck& asked_;
  grpc::ClientContext context_;
  std::atomic<int64_t> moved_ms_{SystemClock().NowMs()};
  std::atomic<bool> stood_{false};
  std::atomic<bool> cancelled_{false};
};

void BulkCalls::CancelAll() {
  const MutexLock lock(mutex_);
  for (BulkCall* call : calls_) call->Cancel();
}

void BulkCalls::Look() {
  {
    const MutexLock lock(mutex_);
    for (BulkCall* call : calls_) call->EndIfStanding(SystemClock().NowMs());
  }
  LookLater();
}

class GrpcLink final : public ControllerLink {
 public:
  explicit GrpcLink(LinkOptions options)
      : address_(std::move(options.address)),
        token_(std::move(options.token)),
        tls_dir_(std::move(options.tls_dir)) {
    auto credentials = security::ChannelCredentialsOf(tls_dir_);
    identity_ = internal::ToStatus(credentials);
    // What cannot be shown is not gone without: such a channel never connects.
    const auto shown = credentials.value_or(security::ChannelCredentialsBy("none"));
    control_channel_ = MakeChannel(shown);
    control_ = v1::WorkerService::NewStub(control_channel_);
    bulk_channel_ = MakeChannel(shown);
    bulk_ = v1::BlobService::NewStub(bulk_channel_);
    files_ = v1::CheckpointService::NewStub(bulk_channel_);
  }

  Result<std::unique_ptr<Session>> OpenSession(int64_t connect_ms) override {
    MW_TRY(identity_);
    if (!control_channel_->WaitForConnected(In(connect_ms))) return Fail(WhyNot());
    return std::unique_ptr<Session>(std::make_unique<GrpcSession>(*control_, token_));
  }

  Status FetchBlob(const std::string& sha256, int64_t offset, const CancelCheck& cancelled,
                   const ChunkSink& sink) override {
    BulkCall call(calls_, token_, cancelled);
    MW_TRY(WaitForBulk(call));
    v1::GetBlobRequest request;
    request.set_sha256(sha256);
    request.set_offset(offset);
    const auto stream = bulk_->Get(&call.context(), request);
    v1::BlobChunk chunk;
    Status failure;
    while (failure.ok() && stream->Read(&chunk)) {
      failure = call.Moved();
      if (failure.ok()) failure = sink(chunk.data());
    }
    if (!failure.ok()) call.context().TryCancel();
    return call.End(stream->Finish(), failure);
  }

  Status PutTiles(const CancelCheck& cancelled, const TileSource& next) override {
    BulkCall call(calls_, token_, cancelled);
    MW_TRY(WaitForBulk(call));
    v1::PutTilesReply reply;
    const auto stream = bulk_->PutTiles(&call.context(), &reply);
    Status failure;
    bool writable = true;
    while (writable) {
      auto tile = NextTile(call, next);
      if (!tile.has_value()) {
        failure = tile.error();
        call.context().TryCancel();
        break;
      }
      if (!*tile) break;
      writable = WriteTile(*stream, **tile);
    }
    stream->WritesDone();
    return call.End(stream->Finish(), failure);
  }

  // That the controller at the other end has died since is only seen when something is sent: once
  // more, over a new connection.
  Status PutShard(const CancelCheck& cancelled, const proto::ShardHead& head,
                  const std::vector<std::string_view>& parts) override {
    const Status put = PutShardOnce(cancelled, head, parts);
    if (put.code() != StatusCode::kUnavailable) return put;
    return PutShardOnce(cancelled, head, parts);
  }

  Status PutShardOnce(const CancelCheck& cancelled, const proto::ShardHead& head,
                      const std::vector<std::string_view>& parts) {
    BulkCall call(calls_, token_, cancelled);
    MW_TRY(WaitForBulk(call));
    v1::PutShardReply reply;
    const auto stream = files_->Put(&call.context(), &reply);
    v1::PutShardChunk chunk;
    PutKey(head.mesh, *chunk.mutable_mesh());
    chunk.set_folder(head.folder);
    chunk.set_temporary(head.temporary);
    chunk.set_name(head.name);
    chunk.set_size_bytes(head.bytes);
    Status failure;
    bool writable = stream->Write(chunk);
    chunk.Clear();
    const auto send = [&] {
      writable = stream->Write(chunk);
      chunk.clear_data();
      failure = call.Moved();
      MW_FAILPOINT("executor.shard.sent-chunk");
    };
    // Boxes may be small: they share chunks.
    for (std::string_view part : parts) {
      while (writable && failure.ok() && !part.empty()) {
        const size_t room = static_cast<size_t>(proto::kChunkBytes) - chunk.data().size();
        chunk.mutable_data()->append(part.substr(0, room));
        part.remove_prefix(std::min(part.size(), room));
        if (static_cast<int64_t>(chunk.data().size()) == proto::kChunkBytes) send();
      }
    }
    if (writable && failure.ok() && !chunk.data().empty()) send();
    if (!failure.ok()) call.context().TryCancel();
    stream->WritesDone();
    return call.End(stream->Finish(), failure);
  }

  Status ReadFile(const CancelCheck& cancelled, const proto::FileRange& range,
                  const ChunkSink& sink) override {
    BulkCall call(calls_, token_, cancelled);
    MW_TRY(WaitForBulk(call));
    v1::GetFileRequest request;
    PutKey(range.mesh, *request.mutable_mesh());
    request.set_checkpoint(range.checkpoint);
    request.set_name(range.name);
    request.set_offset(range.offset);
    request.set_count(range.count);
    const auto stream = files_->Get(&call.context(), request);
    v1::FileChunk chunk;
    Status failure;
    while (failure.ok() && stream->Read(&chunk)) {
      failure = call.Moved();
      if (failure.ok()) failure = sink(chunk.data());
    }
    if (!failure.ok()) call.context().TryCancel();
    return call.End(stream->Finish(), failure);
  }

  void CancelBulk() override { calls_.CancelAll(); }

 private:
  // Why no connection came about. A certificate that is not believed is the end; nobody there is
  // not.
  Status WhyNot() const {
    if (!tls_dir_.empty()) {
      const Status why = security::ExplainRefusal(address_, tls_dir_, Deadline::After(kExplainMs));
      if (!why.ok()) return why;
    } else if (address_.rfind("unix:", 0) != 0 &&
               security::SpeaksTls(address_, Deadline::After(kExplainMs))) {
      return FailedPrecondition(
          fmt::format("who answers at {} speaks TLS, and this was said in the clear; leave "
                      "--insecure out, and have the worker join (--join with a token of "
                      "`meshwright cert join-token`) or name its certificate with --tls-dir",
                      address_));
    }
    return Unavailable(fmt::format("no controller answers at {}", address_));
  }

  Status WaitForBulk(const BulkCall& call) {
    MW_TRY(identity_);
    const Deadline deadline = Deadline::After(kBulkConnectMs);
    do {
      MW_TRY(call.CheckCancelled());
      if (bulk_channel_->WaitForConnected(In(kBulkSliceMs))) return OkStatus();
    } while (!deadline.expired());
    return Unavailable(fmt::format("no connection for bulk data to {} within {} s", address_,
                                   kBulkConnectMs / 1000));
  }

  static void PutKey(const proto::MeshKey& mesh, v1::MeshKey& wire) {
    wire.set_mesh_gen(mesh.mesh_gen.value());
    wire.set_key(mesh.key);
  }

  static Result<std::optional<proto::WeightTile>> NextTile(BulkCall& call, const TileSource& next) {
    MW_TRY(call.Moved());
    return next();
  }

  std::shared_ptr<grpc::Channel> MakeChannel(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    grpc::ChannelArguments args;
    if (!tls_dir_.empty()) security::WantController(args);
    // Control and bulk have connections of their own, so that a blob never delays a launch.
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    // By default the third ping would wait for data of ours.
    args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    // Also the time that one attempt to connect may take.
    args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
    args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
    args.SetMaxReceiveMessageSize(static_cast<int>(proto::kMaxMessageBytes));
    return grpc::CreateCustomChannel(address_, credentials, args);
  }

  static bool WriteTile(grpc::ClientWriter<v1::TileChunk>& stream, const proto::WeightTile& tile) {
    const auto* bytes = reinterpret_cast<const char*>(tile.data.data());
    const auto total = static_cast<int64_t>(tile.data.size());
    int64_t at = 0;
    v1::TileChunk chunk = proto::EncodeTileHead(tile);
    do {
      const int64_t count = std::min(proto::kChunkBytes, total - at);
      chunk.set_data(bytes + at, static_cast<size_t>(count));
      at += count;
      chunk.set_last(at == total);
      if (!stream.Write(chunk)) return false;
      chunk.Clear();
    } while (at < total);
    return true;
  }

  const std::string address_;
  const std::string token_;
  const std::string tls_dir_;
  Status identity_;  // why there is none to show
  std::shared_ptr<grpc::Channel> control_channel_;
  std::unique_ptr<v1::WorkerService::Stub> control_;
  std::shared_ptr<grpc::Channel> bulk_channel_;
  std::unique_ptr<v1::BlobService::Stub> bulk_;
  std::unique_ptr<v1::CheckpointService::Stub> files_;
  BulkCalls calls_;
};

}  // namespace

std::unique_ptr<ControllerLink> MakeGrpcLink(LinkOptions options) {
  return std::make_unique<GrpcLink>(std::move(options));
}

}  // namespace meshwright::worker
