#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include "base/failpoint.h"
#include "base/mutex.h"
#include "controller/store.h"

namespace meshwright::controller {
namespace {

constexpr int kSchemaVersion = 1;
constexpr const char* kRestore = "restore a backup or use another state directory";

constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS meta(k TEXT PRIMARY KEY, v TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs(
  id INTEGER PRIMARY KEY, op_id TEXT UNIQUE, name TEXT, state INTEGER, reason TEXT, message TEXT,
  layout TEXT, steps INTEGER, steps_done INTEGER, loss REAL,
  t_submit INTEGER, t_start INTEGER, t_end INTEGER, spec BLOB, tries INTEGER NOT NULL DEFAULT 0,
  checkpoint_step INTEGER NOT NULL DEFAULT -1, checkpoint_root TEXT NOT NULL DEFAULT '',
  checkpoint_path TEXT NOT NULL DEFAULT '', told_steps INTEGER NOT NULL DEFAULT 0,
  unheard_commits INTEGER NOT NULL DEFAULT 0, run BLOB NOT NULL DEFAULT x'',
  wish INTEGER NOT NULL DEFAULT 0, tool TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS standings(
  worker TEXT PRIMARY KEY, standing INTEGER, since INTEGER, until INTEGER, why TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events(
  id INTEGER PRIMARY KEY AUTOINCREMENT, t INTEGER, job INTEGER, text TEXT);
CREATE INDEX IF NOT EXISTS events_by_job ON events(job, id);
)";

constexpr const char* kUpsertJob = R"(
INSERT INTO jobs(id, op_id, name, state, reason, message, layout, steps, steps_done, loss,
                 t_submit, t_start, t_end, spec, tries, checkpoint_step, checkpoint_root,
                 checkpoint_path, told_steps, unheard_commits, run, wish, tool)
VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?17, ?18, ?19, ?20,
       ?21, ?22, ?23, ?24)
ON CONFLICT(id) DO UPDATE SET
  state = ?4, reason = ?5, message = ?6, layout = ?7, steps_done = ?9, loss = ?10,
  t_start = ?12, t_end = ?13, tries = ?15,
  checkpoint_step = ?17, checkpoint_root = ?18, checkpoint_path = ?19, told_steps = ?20,
  unheard_commits = ?21, wish = ?23,
  spec = CASE WHEN ?16 THEN x'' WHEN length(?14) > 0 THEN ?14 ELSE spec END,
  run = CASE WHEN ?16 THEN x'' WHEN length(?22) > 0 THEN ?22 ELSE run END
WHERE op_id = ?2
)";

// One prepared statement, finalised at the end of its scope. Bind and column positions are
// SQLite's: 1- and 0-based.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(Statement&& other) noexcept
      : statement_(std::exchange(other.statement_, nullptr)), code_(other.code_) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void Bind(int at, int64_t value) { Note(sqlite3_bind_int64(statement_, at, value)); }
  void Bind(int at, double value) { Note(sqlite3_bind_double(statement_, at, value)); }
  void Bind(int at, const std::string& text) {
    Note(sqlite3_bind_text(statement_, at, text.data(), static_cast<int>(text.size()),
                           SQLITE_TRANSIENT));
  }
  void BindBlob(int at, const std::string& bytes) {
    Note(sqlite3_bind_blob(statement_, at, bytes.data(), static_cast<int>(bytes.size()),
                           SQLITE_TRANSIENT));
  }
  // True: a row is there. False: done or failed; see code().
  bool Row() {
    if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
    code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  int64_t Int(int column) { return sqlite3_column_int64(statement_, column); }
  double Real(int column) { return sqlite3_column_double(statement_, column); }
  std::string Text(int column) {
    const void* data = sqlite3_column_blob(statement_, column);
    const int bytes = sqlite3_column_bytes(statement_, column);
    return data == nullptr
               ? std::string()
               : std::string(static_cast<const char*>(data), static_cast<size_t>(bytes));
  }
  int code() const { return code_; }
  bool ok() const { return code_ == SQLITE_OK || code_ == SQLITE_ROW || code_ == SQLITE_DONE; }

 private:
  void Note(int code) {
    if (code_ == SQLITE_OK) code_ = code;
  }
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

// The columns of kUpsertJob.
void BindJob(const JobRecord& job, Statement& upsert) {
  upsert.Bind(1, job.id);
  upsert.Bind(2, job.op_id);
  upsert.Bind(3, job.name);
  upsert.Bind(4, static_cast<int64_t>(job.state));
  upsert.Bind(5, job.reason);
  upsert.Bind(6, job.message);
  upsert.Bind(7, job.layout);
  upsert.Bind(8, job.steps);
  upsert.Bind(9, job.steps_done);
  upsert.Bind(10, job.loss);
  upsert.Bind(11, job.submitted_unix_ms);
  upsert.Bind(12, job.started_unix_ms);
  upsert.Bind(13, job.ended_unix_ms);
  upsert.BindBlob(14, job.spec);
  upsert.Bind(15, job.tries);
  upsert.Bind(16, static_cast<int64_t>(proto::IsTerminal(job.state)));
  upsert.Bind(17, job.checkpoint_step);
  upsert.Bind(18, job.checkpoint_folder.root);
  upsert.Bind(19, job.checkpoint_folder.path);
  upsert.Bind(20, job.told_steps);
  upsert.Bind(21, job.unheard_commits);
  upsert.BindBlob(22, job.run);
  upsert.Bind(23, static_cast<int64_t>(job.wish));
  upsert.Bind(24, job.tool);
}

// A row of the query in ReadJobs.
JobRecord ReadJob(Statement& query) {
  JobRecord job;
  job.id = query.Int(0);
  job.op_id = query.Text(1);
  job.name = query.Text(2);
  job.state = static_cast<proto::JobState>(query.Int(3));
  job.reason = query.Text(4);
  job.message = query.Text(5);
  job.layout = query.Text(6);
  job.steps = query.Int(7);
  job.steps_done = query.Int(8);
  job.loss = query.Real(9);
  job.submitted_unix_ms = query.Int(10);
  job.started_unix_ms = query.Int(11);
  job.ended_unix_ms = query.Int(12);
  if (!proto::IsTerminal(job.state)) job.spec = query.Text(13);
  job.tries = query.Int(14);
  job.checkpoint_step = query.Int(15);
  job.checkpoint_folder = {query.Text(16), query.Text(17)};
  job.told_steps = query.Int(18);
  job.unheard_commits = query.Int(19);
  if (!proto::IsTerminal(job.state)) job.run = query.Text(20);
  if (query.Int(21) == static_cast<int64_t>(JobWish::kPause)) job.wish = JobWish::kPause;
  if (query.Int(21) == static_cast<int64_t>(JobWish::kCancel)) job.wish = JobWish::kCancel;
  job.tool = query.Text(22);
  return job;
}

// Binds what is to become of a worker: its row, or that it has none.
Statement WriteStanding(sqlite3* db, const StandingRecord& record) {
  if (record.standing == Standing::kOpen) {
    Statement erase(db, "DELETE FROM standings WHERE worker = ?1");
    erase.Bind(1, record.worker);
    return erase;
  }
  Statement upsert(db,
                   "INSERT OR REPLACE INTO standings(worker, standing, since, until, why) "
                   "VALUES(?1, ?2, ?3, ?4, ?5)");
  upsert.Bind(1, record.worker);
  upsert.Bind(2, static_cast<int64_t>(record.standing));
  upsert.Bind(3, record.since_unix_ms);
  upsert.Bind(4, record.until_unix_ms);
  upsert.Bind(5, record.why);
  return upsert;
}

// A number that this version does not know is one that takes no work.
StandingRecord ReadStanding(Statement& query) {
  const int64_t standing = query.Int(1);
  const bool known = standing > 0 && standing < kStandingCount;
  return {query.Text(0), known ? static_cast<Standing>(standing) : Standing::kCordoned,
          query.Int(2), query.Int(3), query.Text(4)};
}

std::string RandomHex128() {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < 4; ++i) hex += fmt::format("{:08x}", device());
  return hex;
}

class SqliteStore : public Store {
 public:
  SqliteStore(std::string path, int64_t last_job) : path_(std::move(path)), last_job_(last_job) {}
  ~SqliteStore() override { sqlite3_close(db_); }

  Status Open() {
    const MutexLock lock(mutex_);
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    if (const int code = sqlite3_open_v2(path_.c_str(), &db_, flags, nullptr); code != SQLITE_OK) {
      return Error(code, "open");
    }
    sqlite3_busy_timeout(db_, 5000);
    // Pages of ended jobs go back to the system; of a new database only.
    MW_TRY(Exec("PRAGMA auto_vacuum=INCREMENTAL"));
    MW_TRY(Exec("PRAGMA journal_mode=WAL"));
    MW_TRY(Exec("PRAGMA synchronous=FULL"));
    MW_TRY(CheckPages());
    MW_TRY(Exec("BEGIN IMMEDIATE"));
    Status status = Initialise();
    if (status.ok()) status = Exec("COMMIT");
    if (!status.ok()) Rollback();
    MW_TRY(status);
    // Whoever copies state.db alone has what was there at the start.
    return Exec("PRAGMA wal_checkpoint(TRUNCATE)");
  }

  const StoredState& opened() const override { return opened_; }

  Status Apply(const StoreBatch& batch) override {
    const MutexLock lock(mutex_);
    if (!batch.process_only) {
      MW_TRY(ApplyTransaction(batch));
      // What is applied stays applied, whatever becomes of the tidying.
      (void)Exec("PRAGMA incremental_vacuum(256)");
      return OkStatus();
    }
    // The log is written and not forced to the disk: the system keeps it when this process dies.
    MW_TRY(Exec("PRAGMA synchronous=NORMAL"));
    const Status status = ApplyTransaction(batch);
    const Status restored = Exec("PRAGMA synchronous=FULL");
    return status.ok() ? restored : status;
  }

  Status SaveProgress(int64_t job_id, int64_t steps_done, double loss) override {
    const MutexLock lock(mutex_);
    Statement update(db_,
                     "UPDATE jobs SET steps_done = ?2, loss = ?3 WHERE id = ?1 AND t_end = 0 AND "
                     "(SELECT v FROM meta WHERE k = 'term') = ?4");
    update.Bind(1, job_id);
    update.Bind(2, steps_done);
    update.Bind(3, loss);
    update.Bind(4, std::to_string(opened_.term.value()));
    return Run(update, "progress");
  }

  Result<std::vector<EventRecord>> Events(int64_t job, int64_t limit) override {
    const MutexLock lock(mutex_);
    Statement query(db_,
                    "SELECT t, job, text FROM events WHERE ?1 = 0 OR job = ?1 "
                    "ORDER BY id DESC LIMIT ?2");
    query.Bind(1, job);
    query.Bind(2, limit);
    std::vector<EventRecord> events;
    while (query.Row()) {
      events.push_back(EventRecord{query.Int(0), query.Int(1), query.Text(2)});
    }
    if (!query.ok()) return Fail(Error(query.code(), "read events"));
    std::reverse(events.begin(), events.end());
    return events;
  }

 private:
  Status CheckPages() MW_REQUIRES(mutex_) {
    Statement check(db_, "PRAGMA quick_check(1)");
    if (!check.Row()) return Error(check.code(), "check");
    if (const std::string found = check.Text(0); found != "ok") {
      return DataLoss(fmt::format("state database {}: {}; {}", path_, found, kRestore));
    }
    return OkStatus();
  }

  Result<bool> HasTable(const char* name) MW_REQUIRES(mutex_) {
    Statement query(db_, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1");
    query.Bind(1, std::string(name));
    if (!query.Row()) return Fail(Error(query.code(), "read the tables"));
    return query.Int(0) > 0;
  }

  // A database that has lost its jobs looks like one that never had any.
  Status CheckTables() MW_REQUIRES(mutex_) {
    MW_ASSIGN_OR_RETURN(const bool has_meta, HasTable("meta"));
    MW_ASSIGN_OR_RETURN(const bool has_jobs, HasTable("jobs"));
    if (!has_meta && !has_jobs && last_job_ == 0) return OkStatus();
    if (!has_meta && !has_jobs) {
      return FailedPrecondition(
          fmt::format("state database {} is missing or empty, but the folder of job {} is there: "
                      "the history was lost; put state.db and state.db-wal back, or move the "
                      "folder 'jobs' beside it away to begin anew",
                      path_, last_job_));
    }
    if (has_meta && has_jobs) return OkStatus();
    return DataLoss(fmt::format("state database {} has no table '{}'; {}", path_,
                                has_meta ? "jobs" : "meta", kRestore));
  }

  Status Initialise() MW_REQUIRES(mutex_) {
    MW_TRY(CheckTables());
    MW_TRY(Exec(kSchema));
    MW_ASSIGN_OR_RETURN(std::string version, Meta("schema_version"));
    if (!version.empty() && version != std::to_string(kSchemaVersion)) {
      return FailedPrecondition(
          fmt::format("{} has schema version {}, this program reads {}; use the version of "
                      "meshwright that wrote it, or another state directory",
                      path_, version, kSchemaVersion));
    }
    MW_TRY(AddMissingColumns());
    MW_TRY(SetMeta("schema_version", std::to_string(kSchemaVersion)));
    MW_ASSIGN_OR_RETURN(opened_.cluster_id, Meta("cluster_id"));
    if (opened_.cluster_id.empty()) opened_.cluster_id = RandomHex128();
    MW_TRY(SetMeta("cluster_id", opened_.cluster_id));
    MW_ASSIGN_OR_RETURN(uint64_t term, MetaNumber("term", 0));
    opened_.term = Term(term + 1);
    MW_TRY(SetMeta("term", std::to_string(term + 1)));
    MW_ASSIGN_OR_RETURN(opened_.next_mesh_gen, MetaNumber("next_mesh_gen", 1));
    return ReadJobs();
  }

  // Of databases that were made before there were such columns. Older programs go on with them,
  // too.
  Status AddMissingColumns() MW_REQUIRES(mutex_) {
    constexpr std::pair<const char*, const char*> kLater[] = {
        {"tries", "INTEGER NOT NULL DEFAULT 0"},
        {"checkpoint_step", "INTEGER NOT NULL DEFAULT -1"},
        {"checkpoint_root", "TEXT NOT NULL DEFAULT ''"},
        {"checkpoint_path", "TEXT NOT NULL DEFAULT ''"},
        {"told_steps", "INTEGER NOT NULL DEFAULT 0"},
        {"unheard_commits", "INTEGER NOT NULL DEFAULT 0"},
        {"run", "BLOB NOT NULL DEFAULT x''"},
        {"wish", "INTEGER NOT NULL DEFAULT 0"},
        {"tool", "TEXT NOT NULL DEFAULT ''"}};
    for (const auto& [name, type] : kLater) {
      Statement query(db_, "SELECT count(*) FROM pragma_table_info('jobs') WHERE name = ?1");
      query.Bind(1, std::string(name));
      if (!query.Row()) return Error(query.code(), "read the columns of jobs");
      if (query.Int(0) > 0) continue;
      MW_TRY(Exec(fmt::format("ALTER TABLE jobs ADD COLUMN {} {}", name, type).c_str()));
    }
    return OkStatus();
  }

  Status ReadJobs() MW_REQUIRES(mutex_) {
    Statement query(db_,
                    "SELECT id, op_id, name, state, reason, message, layout, steps, steps_done, "
                    "loss, t_submit, t_start, t_end, spec, tries, checkpoint_step, "
                    "checkpoint_root, checkpoint_path, told_steps, unheard_commits, run, wish, "
                    "tool "
                    "FROM jobs ORDER BY id");
    while (query.Row()) {
      opened_.jobs.push_back(ReadJob(query));
    }
    if (!query.ok()) return Error(query.code(), "read jobs");
    Statement standings(db_, "SELECT worker, standing, since, until, why FROM standings");
    while (standings.Row()) opened_.standings.push_back(ReadStanding(standings));
    return standings.ok() ? OkStatus() : Error(standings.code(), "read standings");
  }

  Status ApplyTransaction(const StoreBatch& batch) MW_REQUIRES(mutex_) {
    MW_TRY(Exec("BEGIN IMMEDIATE"));
    MW_FAILPOINT("controller.store.begun");
    Status status = ApplyInside(batch);
    MW_FAILPOINT("controller.store.before-commit");
    if (status.ok()) status = Exec("COMMIT");
    if (!status.ok()) Rollback();
    return status;
  }

  Status ApplyInside(const StoreBatch& batch) MW_REQUIRES(mutex_) {
    MW_ASSIGN_OR_RETURN(uint64_t term, MetaNumber("term", 0));
    if (term != opened_.term.value()) {
      return Aborted(fmt::format("{}: a newer controller (term {}) owns the state; this one is {}",
                                 path_, term, opened_.term.value()));
    }
    for (const JobRecord& job : batch.jobs) MW_TRY(Upsert(job));
    for (int64_t id : batch.deleted_jobs) {
      Statement erase(db_, "DELETE FROM jobs WHERE id = ?1");
      erase.Bind(1, id);
      MW_TRY(Run(erase, "delete job"));
    }
    for (const StandingRecord& record : batch.standings) {
      Statement write = WriteStanding(db_, record);
      MW_TRY(Run(write, "write standing"));
    }
    if (batch.next_mesh_gen) {
      MW_ASSIGN_OR_RETURN(uint64_t stored, MetaNumber("next_mesh_gen", 1));
      MW_TRY(SetMeta("next_mesh_gen", std::to_string(std::max(stored, *batch.next_mesh_gen))));
    }
    return AddEvents(batch.events);
  }

  Status Upsert(const JobRecord& job) MW_REQUIRES(mutex_) {
    Statement upsert(db_, kUpsertJob);
    BindJob(job, upsert);
    MW_TRY(Run(upsert, "write job"));
    if (sqlite3_changes(db_) > 0) return OkStatus();
    return AlreadyExists(fmt::format(
        "state database {}: job {} is there already and is another one; submit it again", path_,
        job.id));
  }

  Status AddEvents(const std::vector<EventRecord>& events) MW_REQUIRES(mutex_) {
    for (const EventRecord& event : events) {
      Statement insert(db_, "INSERT INTO events(t, job, text) VALUES(?1, ?2, ?3)");
      insert.Bind(1, event.unix_ms);
      insert.Bind(2, event.job);
      insert.Bind(3, event.text);
      MW_TRY(Run(insert, "write event"));
    }
    if (events.empty()) return OkStatus();
    Statement trim(db_, "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?1");
    trim.Bind(1, kEventCap);
    return Run(trim, "trim events");
  }

  Result<std::string> Meta(const std::string& key) MW_REQUIRES(mutex_) {
    Statement query(db_, "SELECT v FROM meta WHERE k = ?1");
    query.Bind(1, key);
    if (query.Row()) return query.Text(0);
    if (!query.ok()) return Fail(Error(query.code(), "read " + key));
    return std::string();
  }

  Result<uint64_t> MetaNumber(const std::string& key, uint64_t fallback) MW_REQUIRES(mutex_) {
    MW_ASSIGN_OR_RETURN(std::string text, Meta(key));
    if (text.empty()) return fallback;
    uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, number);
    // Nobody counts that far: one more would be 0, and what fences the past would not any more.
    constexpr uint64_t kMost = uint64_t{1} << 62;
    if (error == std::errc() && at == end && number < kMost) return number;
    return Fail(
        DataLoss(fmt::format("{}: meta '{}' is '{}', no count; {}", path_, key, text, kRestore)));
  }

  Status SetMeta(const std::string& key, const std::string& value) MW_REQUIRES(mutex_) {
    Statement upsert(db_, "INSERT OR REPLACE INTO meta(k, v) VALUES(?1, ?2)");
    upsert.Bind(1, key);
    upsert.Bind(2, value);
    return Run(upsert, "write meta");
  }

  Status Run(Statement& statement, const std::string& what) MW_REQUIRES(mutex_) {
    while (statement.Row()) {
    }
    return statement.ok() ? OkStatus() : Error(statement.code(), what);
  }

  Status Exec(const char* sql) MW_REQUIRES(mutex_) {
    const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? OkStatus() : Error(code, sql);
  }

  void Rollback() MW_REQUIRES(mutex_) { sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr); }

  Status Error(int code, const std::string& what) MW_REQUIRES(mutex_) {
    const char* text = db_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db_);
    std::string message = fmt::format("state database {}: {}: {}", path_, what, text);
    switch (code & 0xff) {
      case SQLITE_FULL:
        return ResourceExhausted(message + "; free space on that disk");
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        return DataLoss(message + "; " + kRestore);
      case SQLITE_BUSY:
        return Unavailable(message + "; another process holds it");
      default:
        return Unavailable(message);
    }
  }

  std::string path_;
  const int64_t last_job_;  // that has left a folder
  Mutex mutex_;
  sqlite3* db_ MW_GUARDED_BY(mutex_) = nullptr;
  StoredState opened_;  // constant once it is open
};

}  // namespace

Result<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, int64_t last_job) {
  auto store = std::make_unique<SqliteStore>(path, last_job);
  MW_TRY(store->Open());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace meshwright::controller
