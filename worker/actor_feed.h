// ActorFeed: the streams of a job that host actors make, on this worker: a process with an actor
// for each such stream, which lives as long as the mesh.
//
// These actors are no part of the controller's table: nobody but this worker asks them, and one
// that ends ends the job's attempt, with the cause. Thread rule: Read from any thread. Start it on
// a thread that lives at least as long. Ownership: what `cancelled` uses outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "ir/program.h"
#include "proto/messages.h"
#include "worker/actor_host.h"
#include "worker/row_blocks.h"

namespace meshwright::worker {

// How the programs of this worker read a stream.
struct FeedRows {
  int64_t batch = 0;  // rows of a step, of the whole job
  int64_t local = 0;  // the most that one device reads at once
};
// By stream. Errors: kInvalidArgument: programs read a stream in steps of different batches.
Result<std::map<std::string, FeedRows>> FeedRowsOf(const std::vector<ir::Program>& programs,
                                                   const std::vector<ir::DataStream>& streams);

struct ActorFeedOptions {
  JobId job{0};
  HostActorOptions host;
  uint64_t seed = 0;
  int64_t sequence = 1;
  int64_t vocabulary = 0;
  std::map<std::string, FeedRows> rows;  // by stream
  std::function<bool()> cancelled;
};

class ActorFeed {
 public:
  // Of those streams that an actor makes and a program reads. Errors, naming the stream: the binary
  // has no such type; the actor's own; kInvalidArgument: a row that no message holds.
  static Result<std::unique_ptr<ActorFeed>> Start(const std::vector<ir::DataStream>& streams,
                                                  ActorFeedOptions options);
  ~ActorFeed();

  bool Has(std::string_view stream) const { return streams_.contains(stream); }
  // REQUIRES Has(feed.stream). Errors: those of RowBlocks::Read.
  Status Read(const ir::FeedName& feed, int64_t sample, const data::RowBuffer& row);
  pid_t pid() const { return host_->pid(); }

 private:
  explicit ActorFeed(ActorFeedOptions options) : options_(std::move(options)) {}
  Status Open(const ir::DataStream& stream);
  Status AwaitStart(uint64_t actor);
  void Ask(uint64_t actor, int64_t deadline_ms, const actor::RowsAsked& asked,
           RowBlocks::Done done);
  void OnReport(proto::UpBody body);

  const ActorFeedOptions options_;
  std::unique_ptr<ActorHost> host_;
  std::map<std::string, std::unique_ptr<RowBlocks>, std::less<>> streams_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t next_ask_ MW_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, RowBlocks::Done> asks_ MW_GUARDED_BY(mutex_);
  // By actor: OK since it has begun; why it ended.
  std::map<uint64_t, Status> lives_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
