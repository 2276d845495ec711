// The user's library: submit a job, watch it, cancel it.
//
// A program writes its model with client/trainer.h (collate, loss, predict on the graph builder) or
// takes one from models/, makes an ir::JobRequest and hands it to a Client. No gRPC type appears
// here. Thread rule: thread-safe. Every call has a deadline (10 s unless said).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "client/session.h"
#include "ir/job.h"
#include "ir/step_record.h"
#include "proto/job_description.h"
#include "proto/views.h"

namespace meshwright::client {

// The records are those of the wire's views (proto/views.h), which say what each field means.
using proto::IsTerminal;
using proto::JobInfo;
using proto::JobState;
using proto::JobStateName;
using proto::JobUpdate;
using proto::StepMetrics;
using proto::WorkerInfo;
using proto::WorkerOrder;

// What a client wants to become of a job or a worker.
struct CancelOrder {
  int64_t job_id = 0;
};
struct PauseOrder {
  int64_t job_id = 0;
};
struct ResumeOrder {
  int64_t job_id = 0;
};
struct OfWorkerOrder {
  std::string name;
  WorkerOrder order = WorkerOrder::kUnspecified;
  int64_t deadline_ms = 0;  // of a drain
};
// Its devices write down what they do in these steps.
struct RecordOrder {
  int64_t job_id = 0;
  ir::StepRange steps;
};
using Order = std::variant<CancelOrder, PauseOrder, ResumeOrder, OfWorkerOrder, RecordOrder>;

// What happened in steps, as text in one of these forms.
enum class StoryForm : uint8_t { kTable, kTableJson, kTrace, kWhy, kWhyJson };
struct StoryAsk {
  int64_t job_id = 0;
  ir::StepRange steps = {};  // count 0: those that were recorded last
  StoryForm form = StoryForm::kTable;
};

class Client {
 public:
  virtual ~Client() = default;
  struct Options {
    std::string address;  // empty: $MESHWRIGHT_ADDRESS, else 127.0.0.1:7700
    std::string token;    // empty: $MESHWRIGHT_TOKEN, else none
    // Folder of the identity to show (docs/security.md); empty: $MESHWRIGHT_TLS_DIR over a network,
    // else in the clear. Not over sockets of the file system.
    std::string tls_dir = {};
    int64_t timeout_ms = 10'000;
    // Of a command that works with jobs of its own, as "generate": what it submits is marked so
    // (JobInfo::tool). At most 32 small letters, digits and '-'.
    std::string tool = {};
    // A call without a deadline of its own (Watch) asks a silent controller this often whether it
    // is there, and fails when it does not answer within half of that.
    int64_t keepalive_ms = 10'000;
    // Watch goes on over another connection when the controller dies or the network breaks, for so
    // long; 0: it fails at once.
    int64_t patience_ms = 60'000;
  };
  // Errors: kUnavailable naming the address and how to start a controller; kUnauthenticated; with
  // an identity kPermissionDenied when one of the two does not believe the other; those of reading
  // it.
  static Result<std::unique_ptr<Client>> Connect(Options options);

  // Content-addressed upload of a file; a known hash is not sent again.
  virtual Result<ir::BlobRef> UploadFile(const std::string& path) = 0;
  virtual Result<int64_t> Submit(const ir::JobRequest& job) = 0;
  // Submits a job and drives it (client/session.h): returns when it runs. Errors: as Submit; why
  // the job ended before; kDeadlineExceeded when it does not run in time, and it is cancelled then.
  virtual Result<std::unique_ptr<Session>> OpenSession(const ir::JobRequest& job,
                                                       SessionOptions options = {}) = 0;
  // A session of a job that is there: it goes on as its driver says, calls come between. Errors:
  // kNotFound; kFailedPrecondition: the job has ended.
  virtual Result<std::unique_ptr<Session>> AttachSession(int64_t job_id,
                                                         SessionOptions options = {}) = 0;
  virtual Result<JobInfo> Get(int64_t job_id) = 0;
  // What a job was asked to be, and the weights that it left (sha256 empty: none). Errors:
  // kNotFound: there is no such job, or it was never planned.
  virtual Result<proto::JobDescription> Describe(int64_t job_id) = 0;
  virtual Result<std::vector<JobInfo>> List() = 0;
  // A job that keeps checkpoints is saved first; asked for a second time, it ends at once.
  Status Cancel(int64_t job_id) { return Send(CancelOrder{job_id}); }
  // Asks for a pause: once the state is saved, the job is PAUSED and its devices are free. Where it
  // cannot be saved it goes on. Errors: kNotFound; kFailedPrecondition: it keeps no checkpoints, or
  // does not train, or has ended.
  Status Pause(int64_t job_id) { return Send(PauseOrder{job_id}); }
  // Back into the queue, in its old place. Errors: kNotFound; kFailedPrecondition: it is not
  // paused.
  Status Resume(int64_t job_id) { return Send(ResumeOrder{job_id}); }
  // Calls `on_update` until the job is terminal, the callback returns false or timeout_ms passes
  // (0: no limit); returns what was known last, so after timeout_ms a job that is not terminal.
  // Errors: kNotFound; kUnavailable when the controller is not there, or away for longer than
  // Options::patience_ms; kDeadlineExceeded when it told
  // nothing at all.
  virtual Result<JobInfo> Watch(int64_t job_id,
                                const std::function<bool(const JobUpdate&)>& on_update,
                                int64_t timeout_ms = 0) = 0;
  Result<JobInfo> Wait(int64_t job_id, int64_t timeout_ms) {
    return Watch(
        job_id, [](const JobUpdate&) { return true; }, timeout_ms);
  }
  // Event and log lines of a job, oldest first.
  virtual Result<std::vector<std::string>> Logs(int64_t job_id) = 0;
  virtual Result<std::vector<WorkerInfo>> Workers() = 0;
  // What an operator wants of a worker; it holds over restarts of both. deadline_ms: of a drain,
  // after which what is left there is ended. Errors: kNotFound.
  Status OrderWorker(const std::string& name, WorkerOrder order, int64_t deadline_ms) {
    return Send(OfWorkerOrder{name, order, deadline_ms});
  }
  // Of a job that trains. Errors: kNotFound; kFailedPrecondition: it does not, or it has ended.
  Status Record(int64_t job_id, ir::StepRange steps) { return Send(RecordOrder{job_id, steps}); }
  // Errors: kNotFound: the steps are not recorded, or not yet; kFailedPrecondition: this controller
  // does not know the job's plan; kResourceExhausted: fewer steps at once.
  virtual Result<std::string> Story(const StoryAsk& ask) = 0;
  // What the orders above do.
  virtual Status Send(const Order& order) = 0;
};

}  // namespace meshwright::client
