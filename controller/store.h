// Durable state of the controller: jobs, standings of workers, the term, the next mesh generation
// and a capped history of events.
//
// Rule: write before visible. The term is raised when a store is opened; a batch is one transaction
// and is applied only while the store's term is the caller's, so that an older controller cannot
// write after a newer one. Thread rule: thread-safe. Ownership: the caller owns the store; it owns
// its files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "controller/standings.h"
#include "proto/messages.h"

namespace meshwright::controller {

// What somebody asked of a job that takes its time: it is carried out by the next controller, too.
// Numbers are those of the store.
enum class JobWish : uint8_t { kNone = 0, kPause = 1, kCancel = 2 };

struct JobRecord {
  int64_t id = 0;
  std::string op_id;
  std::string name;
  std::string tool;  // the command whose session it is; empty: somebody submitted it
  proto::JobState state = proto::JobState::kQueued;
  std::string reason;
  std::string message;
  std::string layout;
  int64_t steps = 0;
  int64_t steps_done = 0;
  double loss = 0;
  int64_t told_steps = 0;  // that people have seen the metrics of
  int64_t submitted_unix_ms = 0, started_unix_ms = 0, ended_unix_ms = 0;
  int64_t checkpoint_step = -1;     // of the newest committed one; below 0: there is none
  ir::FolderRef checkpoint_folder;  // of the job's checkpoints
  int64_t unheard_commits = 0;      // checkpoints that may be in it and are not on record
  int64_t tries = 0;  // at placing and planning it that were begun and have not come to an end
  JobWish wish = JobWish::kNone;
  // proto::EncodeJob; empty in an update: the stored bytes stay until the job has ended.
  std::string spec;
  // Of its newest run (controller/run_record.h); empty in an update, as spec.
  std::string run;
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};
// How it ended, for people.
std::string EndText(const JobRecord& job);

struct EventRecord {
  int64_t unix_ms = 0;
  int64_t job = 0;  // 0: none
  std::string text;
  friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

struct StoreBatch {
  std::vector<JobRecord> jobs;  // inserted or replaced by id
  std::vector<int64_t> deleted_jobs;
  std::vector<StandingRecord> standings;  // inserted or replaced by worker; kOpen: deleted
  std::optional<uint64_t> next_mesh_gen;  // never lowers the stored one
  std::vector<EventRecord> events;
  // It has to outlive this process, not the machine: costs no wait for the disk.
  bool process_only = false;
};

struct StoredState {
  std::string cluster_id;
  Term term{0};  // of this opening: one more than the last
  uint64_t next_mesh_gen = 1;
  std::vector<JobRecord> jobs;  // by id
  std::vector<StandingRecord> standings = {};
};

inline constexpr int64_t kEventCap = 100'000;

class Store {
 public:
  virtual ~Store() = default;
  // What was there when the store was opened, with this controller's own term.
  virtual const StoredState& opened() const = 0;
  // All or nothing. Errors: kAborted when a newer controller owns the store, kAlreadyExists when a
  // job's id is that of a job with another op_id, kResourceExhausted on a full disk.
  virtual Status Apply(const StoreBatch& batch) = 0;
  // Steps and loss of a running job: losing it loses progress display only, so it need not reach
  // the disk at once.
  virtual Status SaveProgress(int64_t job_id, int64_t steps_done, double loss) = 0;
  // The newest `limit` events, oldest first; of one job, or of all when job is 0.
  virtual Result<std::vector<EventRecord>> Events(int64_t job, int64_t limit) = 0;
};

// SQLite, WAL, synchronous=FULL. The database is checked when it is opened. `last_job`: the newest
// job that has left a folder, 0: none; a database that is new beside such folders is not the one
// that they belong to. Errors: kUnavailable; kDataLoss naming the path and what is damaged;
// kFailedPrecondition when the database has been lost.
Result<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, int64_t last_job = 0);

// For tests: keeps what a disk would keep. Opening a second store on the same disk fences the
// first.
struct MemoryDisk;
std::shared_ptr<MemoryDisk> MakeMemoryDisk();
std::unique_ptr<Store> OpenMemoryStore(std::shared_ptr<MemoryDisk> disk);
// What a store opened now would find; the term is the current one.
StoredState ReadMemoryDisk(MemoryDisk& disk);
// The next `count` writes to the disk fail with `status`.
void FailWrites(MemoryDisk& disk, int count, Status status);

}  // namespace meshwright::controller
