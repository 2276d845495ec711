#include "worker/actor_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace meshwright::worker {
namespace {

// Of an answer: a message of actors holds kMaxActorPayloadBytes, with what frames them.
constexpr int64_t kMaxBlockBytes = 2 << 20;

constexpr std::chrono::milliseconds kLook{20};

int64_t RowBytesOf(const ir::DataStream& stream, int64_t sequence) {
  int64_t bytes = 0;
  for (const ir::DataField& field : stream.fields) bytes += field.item_bytes();
  return stream.kind == ir::DataKind::kTokens ? bytes * (sequence + 1) : bytes;
}

}  // namespace

Result<std::map<std::string, FeedRows>> FeedRowsOf(const std::vector<ir::Program>& programs,
                                                   const std::vector<ir::DataStream>& streams) {
  std::map<std::string, FeedRows> all;
  for (const ir::Program& program : programs) {
    for (const ir::Executable& executable : program.executables) {
      const ir::Graph& graph = *executable.graph;
      for (const NodeId id : graph.NodesOf(ir::Op::kFeed)) {
        const ir::Node& feed = graph.node(id);
        const std::string stream(ir::ParseFeedName(feed.attrs.Str("source")).stream);
        const bool ours = std::any_of(streams.begin(), streams.end(), [&](const auto& each) {
          return each.name == stream && !each.actor.empty();
        });
        if (!ours) continue;
        const ir::ShardedDims sharded = ir::ShardedDims::FromAttrs(feed.attrs);
        const int64_t local = graph.type(feed.outputs[0]).dims.at(0);
        const int64_t batch = sharded.whole() ? local : sharded.global_dims.at(0);
        FeedRows& rows = all.try_emplace(stream, FeedRows{batch, local}).first->second;
        if (rows.batch != batch) {
          return Fail(InvalidArgument(fmt::format(
              "stream '{}' of actor rows is read in batches of {} and of {}; give each batch a "
              "stream of its own",
              stream, rows.batch, batch)));
        }
        rows.local = std::max(rows.local, local);
      }
    }
  }
  return all;
}

Result<std::unique_ptr<ActorFeed>> ActorFeed::Start(const std::vector<ir::DataStream>& streams,
                                                    ActorFeedOptions options) {
  std::unique_ptr<ActorFeed> feed(new ActorFeed(std::move(options)));
  for (const ir::DataStream& stream : streams) {
    if (stream.actor.empty() || !feed->options_.rows.contains(stream.name)) continue;
    const Status opened = feed->Open(stream);
    if (opened.ok()) continue;
    return Fail(opened.WithContext(
        fmt::format("stream '{}' of actor '{}'", stream.name, stream.actor.type)));
  }
  return feed;
}

// All that was asked is answered before what asked it is gone.
ActorFeed::~ActorFeed() {
  for (const auto& [name, blocks] : streams_) blocks->Close();
  host_.reset();
}

Status ActorFeed::Open(const ir::DataStream& stream) {
  const int64_t row_bytes = RowBytesOf(stream, options_.sequence);
  if (row_bytes > kMaxBlockBytes) {
    return InvalidArgument(
        fmt::format("a row has {} bytes; an actor answers at most {}", row_bytes, kMaxBlockBytes));
  }
  if (!host_) {
    MW_ASSIGN_OR_RETURN(host_, ActorHost::Start(options_.job, options_.host,
                                                [this](auto body) { OnReport(std::move(body)); }));
  }
  const uint64_t actor = streams_.size() + 1;
  host_->Spawn({options_.job, actor, 1, stream.actor.type, stream.actor.args});
  MW_TRY(AwaitStart(actor));
  const FeedRows& rows = options_.rows.at(stream.name);
  const int64_t block = std::clamp<int64_t>(kMaxBlockBytes / row_bytes, 1, rows.local);
  streams_[stream.name] = std::make_unique<RowBlocks>(
      stream,
      RowBlocksOptions{options_.seed, rows.batch, block, options_.sequence, options_.vocabulary},
      [this, actor, deadline_ms = stream.actor.deadline_ms](const actor::RowsAsked& asked,
                                                            RowBlocks::Done done) {
        Ask(actor, deadline_ms, asked, std::move(done));
      },
      options_.cancelled);
  return OkStatus();
}

// It comes: ActorHost keeps the deadline of a start.
Status ActorFeed::AwaitStart(uint64_t actor) {
  const MutexLock lock(mutex_);
  while (!lives_.contains(actor)) {
    (void)changed_.WaitFor(mutex_, kLook);
    if (options_.cancelled && options_.cancelled()) return Cancelled("the job has ended");
  }
  return lives_.at(actor);
}

void ActorFeed::Ask(uint64_t actor, int64_t deadline_ms, const actor::RowsAsked& asked,
                    RowBlocks::Done done) {
  static const actor::MessageCodec<actor::RowsAsked> codec = actor::RowsCodec();
  uint64_t ask = 0;
  Status ended;
  {
    const MutexLock lock(mutex_);
    ended = lives_.at(actor);
    ask = next_ask_++;
    if (ended.ok()) asks_.emplace(ask, done);
  }
  if (!ended.ok()) return done(Fail(ended));
  host_->Message({options_.job, actor, 1, ask, false, deadline_ms, codec.message.encode(asked)});
}

void ActorFeed::OnReport(proto::UpBody body) {
  static const actor::MessageCodec<actor::RowsAsked> codec = actor::RowsCodec();
  if (const auto* event = std::get_if<proto::ActorEvent>(&body)) {
    const MutexLock lock(mutex_);
    const bool begun = event->kind == proto::ActorEventKind::kStarted;
    lives_[event->actor] = begun ? OkStatus() : Status(event->code, event->message);
    changed_.NotifyAll();
    return;
  }
  auto* reply = std::get_if<proto::ActorReply>(&body);
  if (reply == nullptr) return;
  RowBlocks::Done done;
  {
    const MutexLock lock(mutex_);
    const auto it = asks_.find(reply->ask);
    if (it == asks_.end()) return;
    done = std::move(it->second);
    asks_.erase(it);
  }
  if (reply->code != StatusCode::kOk) return done(Fail(Status(reply->code, reply->message)));
  done(codec.reply.decode(reply->payload));
}

Status ActorFeed::Read(const ir::FeedName& feed, int64_t sample, const data::RowBuffer& row) {
  return streams_.find(feed.stream)->second->Read(feed, sample, row);
}

}  // namespace meshwright::worker
