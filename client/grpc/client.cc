#include "client/client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/tls_identity.h"
#include "client/grpc/channel.h"
#include "client/grpc/session.h"
#include "client/watch_again.h"
#include "proto/convert.h"
#include "proto/grpc_status.h"
#include "proto/meshwright.grpc.pb.h"
#include "security/places.h"
#include "security/tls_probe.h"

namespace meshwright::client {
namespace {

// Uploads get a minute plus the time at 20 MB/s.
constexpr int64_t kUploadBaseMs = 60'000;
constexpr int64_t kUploadBytesPerMs = 20'000;
// What to try is planned for a story.
constexpr int64_t kStoryMs = 60'000;

void WaitFor(int64_t ms) {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (never.WaitUntil(mutex, due)) {
  }
}

// Tells two submissions apart, and a repeated one from a new one.
std::string MakeOpId() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

// Behind what the caller has, until the stream ends or it has heard enough.
grpc::Status ReadUpdates(v1::JobService::Stub& jobs, grpc::ClientContext& context, int64_t job_id,
                         const std::function<bool(const JobUpdate&)>& on_update,
                         WatchProgress& progress) {
  v1::WatchRequest request;
  request.set_job_id(job_id);
  request.set_from_step_record(progress.steps);
  request.set_from_log_line(progress.lines);
  const auto stream = jobs.Watch(&context, request);
  v1::JobUpdate wire;
  while (!progress.stopped && stream->Read(&wire)) {
    const JobUpdate update = proto::Decode(wire);
    progress.steps = wire.next_step_record();
    progress.lines = wire.next_log_line();
    progress.last = update.info;
    ++progress.updates;
    progress.stopped = !on_update(update);
  }
  if (progress.stopped) context.TryCancel();
  return stream->Finish();
}

// The call that carries an order.
struct OrderCall {
  v1::JobService::StubInterface& jobs;
  v1::AdminService::StubInterface& admin;
  grpc::ClientContext& context;

  grpc::Status operator()(const CancelOrder& order) const {
    v1::CancelReply reply;
    return jobs.Cancel(&context, OfJob(order.job_id), &reply);
  }
  grpc::Status operator()(const PauseOrder& order) const {
    v1::PauseReply reply;
    return jobs.Pause(&context, OfJob(order.job_id), &reply);
  }
  grpc::Status operator()(const ResumeOrder& order) const {
    v1::ResumeReply reply;
    return jobs.Resume(&context, OfJob(order.job_id), &reply);
  }
  grpc::Status operator()(const RecordOrder& order) const {
    v1::RecordRequest request;
    request.set_job_id(order.job_id);
    request.mutable_steps()->set_first(order.steps.first);
    request.mutable_steps()->set_count(order.steps.count);
    v1::RecordReply reply;
    return jobs.Record(&context, request, &reply);
  }
  grpc::Status operator()(const OfWorkerOrder& order) const {
    v1::OrderWorkerRequest request;
    request.set_name(order.name);
    request.set_order(static_cast<v1::WorkerOrder>(order.order));
    request.set_deadline_ms(order.deadline_ms);
    v1::OrderWorkerReply reply;
    return admin.OrderWorker(&context, request, &reply);
  }
  static v1::JobIdRequest OfJob(int64_t job_id) {
    v1::JobIdRequest request;
    request.set_job_id(job_id);
    return request;
  }
};

constexpr int64_t kExplainMs = 3'000;

class GrpcClient final : public Client {
 public:
  explicit GrpcClient(const Options& options)
      : address_(AddressOf(options)),
        token_(TokenOf(options)),
        tool_(options.tool),
        timeout_ms_(options.timeout_ms),
        patience_ms_(options.patience_ms) {
    channel_ = MakeChannel(options);
    jobs_ = v1::JobService::NewStub(channel_);
    blobs_ = v1::BlobService::NewStub(channel_);
    logs_ = v1::LogService::NewStub(channel_);
    admin_ = v1::AdminService::NewStub(channel_);
  }

  // One cheap call: is there a controller, and does it know us?
  Status Probe() {
    v1::StateReply reply;
    return Unary([&](grpc::ClientContext* context) { return admin_->State(context, {}, &reply); });
  }

  Result<ir::BlobRef> UploadFile(const std::string& path) override {
    ir::BlobRef blob;
    blob.name = path;
    MW_ASSIGN_OR_RETURN(blob.sha256, Sha256File(path));
    MW_ASSIGN_OR_RETURN(blob.size_bytes, FileSize(path));
    v1::HasBlobRequest request;
    request.set_sha256(blob.sha256);
    v1::HasBlobReply reply;
    MW_TRY(
        Unary([&](grpc::ClientContext* context) { return blobs_->Has(context, request, &reply); }));
    if (!reply.present()) MW_TRY(Put(path, blob));
    return blob;
  }

  Result<int64_t> Submit(const ir::JobRequest& job) override { return SubmitAs(MakeOpId(), job); }

  Result<std::unique_ptr<Session>> OpenSession(const ir::JobRequest& job,
                                               SessionOptions options) override {
    const std::string op_id = MakeOpId();
    Result<std::unique_ptr<Session>> session =
        Start({op_id, job, 0, MakeOpId(), false, tool_}, options);
    if (session.has_value() || session.error().code() != StatusCode::kDeadlineExceeded) {
      return session;
    }
    // Who gave up would not drive it.
    const Result<int64_t> left = SubmitAs(op_id, job);
    if (!left.has_value() || !Cancel(*left).ok()) return session;
    return Fail(session.error().WithContext(fmt::format("job {} is cancelled", *left)));
  }

  Result<std::unique_ptr<Session>> AttachSession(int64_t job_id, SessionOptions options) override {
    return Start({"", std::nullopt, job_id, MakeOpId()}, options);
  }

  Result<JobInfo> Get(int64_t job_id) override {
    v1::JobIdRequest request;
    request.set_job_id(job_id);
    v1::JobInfo reply;
    MW_TRY(
        Unary([&](grpc::ClientContext* context) { return jobs_->Get(context, request, &reply); }));
    return proto::Decode(reply);
  }

  Result<proto::JobDescription> Describe(int64_t job_id) override {
    v1::JobIdRequest request;
    request.set_job_id(job_id);
    v1::JobDescription reply;
    MW_TRY(Unary(
        [&](grpc::ClientContext* context) { return jobs_->Describe(context, request, &reply); }));
    proto::JobDescription description;
    MW_ASSIGN_OR_RETURN(description.job, proto::Decode(reply.job()));
    MW_ASSIGN_OR_RETURN(description.weights, proto::Decode(reply.weights()));
    return description;
  }

  Result<std::vector<JobInfo>> List() override {
    std::vector<JobInfo> jobs;
    v1::ListJobsRequest request;
    while (true) {
      v1::ListJobsReply reply;
      MW_TRY(Unary(
          [&](grpc::ClientContext* context) { return jobs_->List(context, request, &reply); }));
      for (const v1::JobInfo& info : reply.jobs()) jobs.push_back(proto::Decode(info));
      if (!reply.truncated() || reply.jobs().empty()) return jobs;
      request.set_before_id(jobs.back().id);
    }
  }

  Status Send(const Order& order) override {
    return Unary([&](grpc::ClientContext* context) {
      return std::visit(OrderCall{*jobs_, *admin_, *context}, order);
    });
  }

  Result<JobInfo> Watch(int64_t job_id, const std::function<bool(const JobUpdate&)>& on_update,
                        int64_t timeout_ms) override {
    const auto once = [&](WatchProgress& progress, int64_t rest_ms) {
      grpc::ClientContext context;
      Prepare(context, rest_ms);
      return Explain(ReadUpdates(*jobs_, context, job_id, on_update, progress), timeout_ms);
    };
    return WatchAgain(once, timeout_ms, patience_ms_, [this](int64_t ms) { WaitToTryAgain(ms); });
  }

  Result<std::vector<std::string>> Logs(int64_t job_id) override {
    grpc::ClientContext context;
    Prepare(context, timeout_ms_);
    v1::TailRequest request;
    request.set_job_id(job_id);
    const auto stream = logs_->Tail(&context, request);
    std::vector<std::string> lines;
    v1::LogChunk chunk;
    while (stream->Read(&chunk))
      lines.insert(lines.end(), chunk.lines().begin(), chunk.lines().end());
    MW_TRY(Explain(stream->Finish(), timeout_ms_));
    return lines;
  }

  Result<std::string> Story(const StoryAsk& ask) override {
    grpc::ClientContext context;
    Prepare(context, std::max<int64_t>(timeout_ms_, kStoryMs));
    v1::StoryRequest request;
    request.set_job_id(ask.job_id);
    request.mutable_steps()->set_first(ask.steps.first);
    request.mutable_steps()->set_count(ask.steps.count);
    request.set_form(static_cast<v1::StoryForm>(ask.form));
    const auto stream = jobs_->Story(&context, request);
    std::string text;
    v1::StoryChunk chunk;
    while (stream->Read(&chunk)) text += chunk.text();
    MW_TRY(Explain(stream->Finish(), timeout_ms_));
    return text;
  }

  Result<std::vector<WorkerInfo>> Workers() override {
    std::vector<WorkerInfo> workers;
    v1::WorkersRequest request;
    while (true) {
      v1::WorkersReply reply;
      MW_TRY(Unary(
          [&](grpc::ClientContext* context) { return admin_->Workers(context, request, &reply); }));
      for (const v1::WorkerInfo& wire : reply.workers()) {
        workers.push_back(proto::Decode(wire));
      }
      if (!reply.truncated() || workers.empty()) return workers;
      request.set_after_name(workers.back().name);
    }
  }

 private:
  // Over when there is a connection again. Who only sleeps keeps the channel from making one: it
  // works while somebody waits for it, and by itself every five seconds.
  void WaitToTryAgain(int64_t ms) {
    if (channel_->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) return WaitFor(ms);
    (void)channel_->WaitForConnected(std::chrono::system_clock::now() +
                                     std::chrono::milliseconds(ms));
  }

  // The session has a connection of its own users: it outlives this client.
  Result<std::unique_ptr<Session>> Start(proto::SessionOpen open, SessionOptions options) {
    SessionStart start;
    start.prepare = [token = token_](grpc::ClientContext& context) { AddToken(context, token); };
    start.explain = [address = address_](const grpc::Status& end) {
      return ExplainFor(address, end, 0);
    };
    start.open = std::move(open);
    start.options = options;
    return StartSession(channel_, std::move(start));
  }

  // The job of this op_id, which is submitted where it is not yet.
  Result<int64_t> SubmitAs(const std::string& op_id, const ir::JobRequest& job) {
    v1::SubmitRequest request;
    request.set_op_id(op_id);
    request.set_tool(tool_);
    *request.mutable_job() = proto::Encode(job);
    v1::SubmitReply reply;
    MW_TRY(Unary(
        [&](grpc::ClientContext* context) { return jobs_->Submit(context, request, &reply); }));
    return reply.job_id();
  }

  // timeout_ms 0: no limit.
  void Prepare(grpc::ClientContext& context, int64_t timeout_ms) const {
    AddToken(context, token_);
    if (timeout_ms > 0) {
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(timeout_ms));
    }
  }

  // `timeout_ms`: what the call was given.
  Status Explain(const grpc::Status& wire, int64_t timeout_ms) const {
    return ExplainFor(address_, wire, timeout_ms);
  }

  static Status ExplainFor(const std::string& address, const grpc::Status& wire,
                           int64_t timeout_ms) {
    const Status status = proto::FromGrpc(wire);
    if (status.code() == StatusCode::kDeadlineExceeded) {
      return DeadlineExceeded(
          fmt::format("the controller at {} did not answer within {} ms; see whether its process "
                      "is stopped or its machine overloaded, or name another with --address",
                      address, timeout_ms));
    }
    // A server of HTTP offers no protocol that gRPC knows.
    const bool is_page = status.message().find("ALPN") != std::string::npos;
    if (status.code() == StatusCode::kUnavailable && is_page) {
      return Unavailable(fmt::format(
          "who answers at {} speaks HTTPS, as the controller's page and metrics do; name the port "
          "for programs, which the controller prints first (--port, 7700 by itself)",
          address));
    }
    if (status.code() == StatusCode::kUnavailable) {
      return Unavailable(
          fmt::format("no controller answers at {} ({}); start one with `meshwright up` or "
                      "`meshwright controller`, or name it "
                      "with --address or MESHWRIGHT_ADDRESS",
                      address, status.message()));
    }
    return status;
  }

  template <typename Call>
  Status Unary(const Call& call) const {
    grpc::ClientContext context;
    Prepare(context, timeout_ms_);
    return Explain(call(&context), timeout_ms_);
  }

  Status Put(const std::string& path, const ir::BlobRef& blob) {
    grpc::ClientContext context;
    const int64_t timeout_ms = kUploadBaseMs + blob.size_bytes / kUploadBytesPerMs;
    Prepare(context, timeout_ms);
    v1::PutBlobReply reply;
    const auto stream = blobs_->Put(&context, &reply);
    std::ifstream file(path, std::ios::binary);
    std::string buffer(static_cast<size_t>(proto::kChunkBytes), '\0');
    bool first = true;
    while (first || file) {
      file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
      const auto count = static_cast<size_t>(file.gcount());
      if (!first && count == 0) break;
      v1::PutBlobChunk chunk;
      if (first) {
        chunk.set_sha256(blob.sha256);
        chunk.set_size_bytes(blob.size_bytes);
      }
      chunk.set_data(buffer.data(), count);
      first = false;
      if (!stream->Write(chunk)) break;  // Finish() says why
    }
    stream->WritesDone();
    const Status status = Explain(stream->Finish(), timeout_ms);
    return status.ok() ? status : status.WithContext(fmt::format("uploading {}", path));
  }

  const std::string address_;
  const std::string token_;
  const std::string tool_;
  const int64_t timeout_ms_;
  const int64_t patience_ms_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::BlobService::Stub> blobs_;
  std::unique_ptr<v1::LogService::Stub> logs_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

// Why nobody was heard, where TLS is the reason. `folder`: of the identity shown; empty: none was.
Status ExplainByTls(const std::string& address, const std::string& folder, bool in_the_clear) {
  const Deadline deadline = Deadline::After(kExplainMs);
  if (!folder.empty()) return security::ExplainRefusal(address, folder, deadline);
  const bool network = address.rfind("unix:", 0) != 0;
  if (!in_the_clear || !network || !security::SpeaksTls(address, deadline)) return OkStatus();
  return Unavailable(
      fmt::format("who answers at {} speaks TLS, and this was said in the clear; leave --insecure "
                  "out and name certificates with --tls-dir (`meshwright cert issue` makes them on "
                  "the controller's host), or ca.pem alone beside a token",
                  address));
}

}  // namespace

Result<std::unique_ptr<Client>> Client::Connect(Options options) {
  const std::string tls_dir = TlsDirOf(options);
  const bool shows = !tls_dir.empty() && !security::HasOnlyAuthority(tls_dir);
  if (shows) MW_TRY(LoadTlsIdentity(tls_dir));
  auto client = std::make_unique<GrpcClient>(options);
  const Status probed = client->Probe();
  if (probed.code() == StatusCode::kUnavailable) {
    MW_TRY(ExplainByTls(AddressOf(options), shows ? tls_dir : "", tls_dir.empty()));
  }
  MW_TRY(probed);
  return client;
}

}  // namespace meshwright::client
