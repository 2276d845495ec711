#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "controller/store.h"

namespace meshwright::controller {

struct MemoryDisk {
  Mutex mutex;
  Term term MW_GUARDED_BY(mutex){0};
  uint64_t next_mesh_gen MW_GUARDED_BY(mutex) = 1;
  std::map<int64_t, JobRecord> jobs MW_GUARDED_BY(mutex);
  std::map<std::string, StandingRecord> standings MW_GUARDED_BY(mutex);
  std::deque<EventRecord> events MW_GUARDED_BY(mutex);
  int failing_writes MW_GUARDED_BY(mutex) = 0;
  Status failure MW_GUARDED_BY(mutex);
};

namespace {

class MemoryStore : public Store {
 public:
  explicit MemoryStore(std::shared_ptr<MemoryDisk> disk) : disk_(std::move(disk)) {
    {
      const MutexLock lock(disk_->mutex);
      disk_->term = Term(disk_->term.value() + 1);
    }
    opened_ = ReadMemoryDisk(*disk_);
  }

  const StoredState& opened() const override { return opened_; }

  Status Apply(const StoreBatch& batch) override {
    const MutexLock lock(disk_->mutex);
    MW_TRY(CheckWrite());
    for (const JobRecord& job : batch.jobs) {
      const auto known = disk_->jobs.find(job.id);
      if (known != disk_->jobs.end() && known->second.op_id != job.op_id) {
        return AlreadyExists("job " + std::to_string(job.id) + " is there already");
      }
    }
    for (const JobRecord& job : batch.jobs) {
      JobRecord& stored = disk_->jobs[job.id];
      std::string spec = job.spec.empty() ? std::move(stored.spec) : job.spec;
      std::string run = job.run.empty() ? std::move(stored.run) : job.run;
      if (proto::IsTerminal(job.state)) {
        spec.clear();
        run.clear();
      }
      stored = job;
      stored.spec = std::move(spec);
      stored.run = std::move(run);
    }
    for (int64_t id : batch.deleted_jobs) disk_->jobs.erase(id);
    for (const StandingRecord& record : batch.standings) {
      disk_->standings.erase(record.worker);
      if (record.standing != Standing::kOpen) disk_->standings.emplace(record.worker, record);
    }
    if (batch.next_mesh_gen) {
      disk_->next_mesh_gen = std::max(disk_->next_mesh_gen, *batch.next_mesh_gen);
    }
    for (const EventRecord& event : batch.events) disk_->events.push_back(event);
    while (disk_->events.size() > kEventCap) disk_->events.pop_front();
    return OkStatus();
  }

  Status SaveProgress(int64_t job_id, int64_t steps_done, double loss) override {
    const MutexLock lock(disk_->mutex);
    MW_TRY(CheckWrite());
    const auto it = disk_->jobs.find(job_id);
    if (it == disk_->jobs.end() || proto::IsTerminal(it->second.state)) return OkStatus();
    it->second.steps_done = steps_done;
    it->second.loss = loss;
    return OkStatus();
  }

  Result<std::vector<EventRecord>> Events(int64_t job, int64_t limit) override {
    const MutexLock lock(disk_->mutex);
    std::vector<EventRecord> found;
    for (auto it = disk_->events.rbegin(); it != disk_->events.rend(); ++it) {
      if (static_cast<int64_t>(found.size()) == limit) break;
      if (job == 0 || it->job == job) found.push_back(*it);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

 private:
  Status CheckWrite() MW_REQUIRES(disk_->mutex) {
    if (disk_->term != opened_.term) return Aborted("a newer controller owns this store");
    if (disk_->failing_writes == 0) return OkStatus();
    --disk_->failing_writes;
    return disk_->failure;
  }

  std::shared_ptr<MemoryDisk> disk_;
  StoredState opened_;
};

}  // namespace

std::shared_ptr<MemoryDisk> MakeMemoryDisk() { return std::make_shared<MemoryDisk>(); }

std::unique_ptr<Store> OpenMemoryStore(std::shared_ptr<MemoryDisk> disk) {
  return std::make_unique<MemoryStore>(std::move(disk));
}

StoredState ReadMemoryDisk(MemoryDisk& disk) {
  const MutexLock lock(disk.mutex);
  StoredState state{"memory-cluster", disk.term, disk.next_mesh_gen, {}, {}};
  for (const auto& [id, job] : disk.jobs) state.jobs.push_back(job);
  for (const auto& [name, record] : disk.standings) state.standings.push_back(record);
  return state;
}

void FailWrites(MemoryDisk& disk, int count, Status status) {
  const MutexLock lock(disk.mutex);
  disk.failing_writes = count;
  disk.failure = std::move(status);
}

}  // namespace meshwright::controller
