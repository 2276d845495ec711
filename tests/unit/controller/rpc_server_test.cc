// Calls of a controller's port as strangers and others make them, and what is written of them.
#include "controller/grpc/rpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "proto/convert.h"
#include "proto/meshwright.grpc.pb.h"
#include "proto/trust.grpc.pb.h"
#include "security/authority.h"
#include "security/grpc/credentials.h"
#include "security/issue_book.h"
#include "security/join_token.h"
#include "tests/fake_clock.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using security::Role;
using ::testing::HasSubstr;

constexpr int kCalls = 200;
constexpr size_t kWritten = 20;  // in a second, which does not pass here
const std::string kMuch(3 << 20, 'x');

// Keeps the question that it is asked.
class HeldStory final : public RunStory {
 public:
  void OnPlan(MadePlan) override {}
  void OnRecorded(StepsRecorded) override {}
  void Ask(const StoryQuestion& question,
           std::function<void(Result<std::string>)> answer) override {
    asked_.set_value({question, std::move(answer)});
  }
  mesh::SharedProfile Measured(const mesh::SharedProfile& profile) override { return profile; }
  void OnRun(JobId, std::string) override {}
  void Listen(std::function<void(const StepFigures&)>, PlanListener) override {}
  void Stop() override {}

  std::pair<StoryQuestion, std::function<void(Result<std::string>)>> Await() {
    return asked_.get_future().get();
  }

 private:
  std::promise<std::pair<StoryQuestion, std::function<void(Result<std::string>)>>> asked_;
};

class RpcServerTest : public ::testing::Test {
 protected:
  RpcServerTest() : metrics_(registry_) {
    auto authority = security::Authority::Create(dir_.File("ca"), NowS()).value();
    for (const auto& subject : std::vector<security::Subject>{
             {Role::kController, "controller"}, {Role::kWorker, "w0"}, {Role::kViewer, "bob"}}) {
      const Status issued =
          security::IssueTo(dir_.File(subject.name), authority, {subject, {}, NowS()});
      EXPECT_TRUE(issued.ok()) << issued;
    }
    ca_pem_ = authority.ca_pem();
    trust_ = std::make_unique<Trust>(
        std::move(authority), security::IssueBook::Open(dir_.File("issued"), NowS()).value());
    audit_ = AuditLog::Open(dir_.File("audit.jsonl"), clock_).value();
    state_ = std::make_unique<StateDir>(StateDir::Open(dir_.File("state")).value());
    blobs_ = BlobStore::Open(state_->blobs_dir()).value();
    store_ = OpenMemoryStore(MakeMemoryDisk());
    CoreOptions options = SimCluster::DefaultOptions();
    options.jobs_dir = state_->jobs_dir();
    ControlParts control;
    control.store = store_.get();
    control.blobs = blobs_.get();
    control.weights = &weights_;
    control.metrics = &metrics_;
    control.dir = state_.get();
    control.make_plan = [](const ir::JobRequest&, const mesh::Topology&) -> Result<planner::Plan> {
      return Fail(InvalidArgument("nothing fits"));
    };
    loop_ = std::make_unique<ControlLoop>(options, std::move(control));
    loop_->Start();
    RpcParts parts;
    parts.loop = loop_.get();
    parts.blobs = blobs_.get();
    parts.weights = &weights_;
    parts.metrics = &metrics_;
    parts.audit = audit_.get();
    parts.trust = trust_.get();
    parts.tls_dir = dir_.File("controller");
    parts.story = &story_;
    server_ = RpcServer::Start("127.0.0.1", 0, std::move(parts)).value();
  }
  ~RpcServerTest() override {
    server_->Shutdown();
    loop_.reset();
  }

  static int64_t NowS() { return SystemClock().UnixMs() / 1000; }

  std::shared_ptr<grpc::Channel> Dial(std::shared_ptr<grpc::ChannelCredentials> credentials) {
    grpc::ChannelArguments arguments;
    security::WantController(arguments);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                     std::move(credentials), arguments);
  }
  std::shared_ptr<grpc::Channel> DialAs(const std::string& name) {
    return Dial(security::ChannelCredentialsOf(dir_.File(name)).value());
  }

  std::vector<nlohmann::json> Audit() {
    std::vector<nlohmann::json> lines;
    for (const std::string& line : Split(ReadFile(dir_.File("audit.jsonl")).value(), '\n')) {
      if (!line.empty()) lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  void ExpectTheEarlierLineAndFewOthers() {
    const auto lines = Audit();
    EXPECT_EQ(lines.size(), 1 + kWritten);
    EXPECT_EQ(lines[0]["who"], "ann") << "it was driven out";
    EXPECT_LT(FileSize(dir_.File("audit.jsonl")).value(), 20'000);
    EXPECT_FALSE(FileExists(dir_.File("audit.jsonl.1")));
  }
  void WriteAnEarlierLine() {
    audit_->Write({"ann", "operator", "", "/meshwright.v1.JobService/Submit", "", OkStatus()});
  }

  TempDir dir_ = TempDir::Make().value();
  FakeClock clock_;
  std::string ca_pem_;
  MetricsRegistry registry_;
  ControllerMetrics metrics_;
  std::unique_ptr<Trust> trust_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<StateDir> state_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<Store> store_;
  WeightsSink weights_;
  HeldStory story_;
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(RpcServerTest, StrangersWhoTryToJoinDriveNothingOutOfTheAuditLog) {
  WriteAnEarlierLine();
  const auto stub = v1::TrustService::NewStub(Dial(security::ChannelCredentialsBy(ca_pem_)));
  for (int i = 0; i < kCalls; ++i) {
    v1::JoinRequest request;
    request.set_token("bad");
    request.set_name(i < 10 ? kMuch : "w0");
    grpc::ClientContext context;
    v1::CertificateReply reply;
    const grpc::Status answer = stub->Join(&context, request, &reply);
    ASSERT_EQ(answer.error_code(),
              i < 10 ? grpc::StatusCode::INVALID_ARGUMENT : grpc::StatusCode::UNAUTHENTICATED)
        << answer.error_message();
  }
  ExpectTheEarlierLineAndFewOthers();
}

TEST_F(RpcServerTest, WhoMayOnlyLookDrivesNothingOutOfTheAuditLog) {
  WriteAnEarlierLine();
  const auto stub = v1::AdminService::NewStub(DialAs("bob"));
  for (int i = 0; i < kCalls; ++i) {
    v1::OrderWorkerRequest request;
    request.set_name(i < 10 ? kMuch : "w0");
    grpc::ClientContext context;
    v1::OrderWorkerReply reply;
    ASSERT_EQ(stub->OrderWorker(&context, request, &reply).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  ExpectTheEarlierLineAndFewOthers();
  EXPECT_EQ(Audit()[1]["on"].get<std::string>().size(), 200U);
}

TEST_F(RpcServerTest, WorkersThatRegisterUnderOtherNamesDriveNothingOutOfTheAuditLog) {
  WriteAnEarlierLine();
  const auto stub = v1::WorkerService::NewStub(DialAs("w0"));
  const auto registering = [&stub](const std::string& name, int times) {
    proto::Register info;
    info.name = name;
    info.devices = 1;
    grpc::ClientContext context;
    const auto stream = stub->Session(&context);
    for (int i = 0; i < times; ++i)
      (void)stream->Write(proto::Encode(proto::UpMessage{Term(0), info}));
    (void)stream->WritesDone();
    v1::Down down;
    while (stream->Read(&down)) {
    }
    return stream->Finish();
  };
  for (int i = 0; i < kCalls; ++i) {
    const grpc::Status answer = registering("w" + std::to_string(i + 1), 1);
    ASSERT_EQ(answer.error_code(), grpc::StatusCode::PERMISSION_DENIED) << answer.error_message();
  }
  ExpectTheEarlierLineAndFewOthers();
  // Nor by saying its own name again and again.
  (void)registering("w0", kCalls);
  EXPECT_EQ(Audit().size(), 2 + kWritten);
}

// Nobody searches for who has hung up.
TEST_F(RpcServerTest, QuestionsAboutStepsKnowThatTheirAskerHasGone) {
  std::promise<Result<int64_t>> submitted;
  loop_->Submit({"op", SimCluster::MakeJob(1, 1, 1, 2)},
                [&](Result<int64_t> id) { submitted.set_value(std::move(id)); });
  v1::StoryRequest request;
  request.set_job_id(submitted.get_future().get().value());
  request.set_form(v1::STORY_FORM_WHY);
  const auto stub = v1::JobService::NewStub(DialAs("bob"));
  grpc::ClientContext context;
  const auto stream = stub->Story(&context, request);
  const auto [question, answer] = story_.Await();
  EXPECT_FALSE(question.gone());
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const Deadline patience = Deadline::After(60'000);
  while (!question.gone() && !patience.expired()) std::this_thread::yield();
  EXPECT_TRUE(question.gone());
  answer(Fail(Cancelled("the asker has gone")));
}

}  // namespace
}  // namespace meshwright::controller
