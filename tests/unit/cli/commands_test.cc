// Commands as a whole: exit codes, and what they print.
#include "cli/commands.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/unique_fd.h"
#include "cli/follow.h"
#include "cli/input_files.h"
#include "cli/interrupt_note.h"
#include "cli/listen_check.h"
#include "cli/run_dir.h"
#include "cli/scratch_check.h"
#include "formats/safetensors.h"
#include "tests/scale.h"

namespace meshwright::cli {
namespace {

constexpr char kJob[] = R"([model]
dim = 32
n_layers = 2
n_heads = 4
vocab_size = 256
[training]
dataset_path = "none.txt"
global_batch_size = 8
seq_len = 16
[parallelism]
data_parallel_replicate_degree = 1
)";

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Outcome {
  int code = 0;
  std::string out;
  std::string error;
};

template <typename Command>
Outcome Observe(Command command) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = command();
  std::fflush(nullptr);
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.error = ::testing::internal::GetCapturedStderr();
  return outcome;
}

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Make();
    ASSERT_TRUE(folder) << folder.error();
    folder_ = std::make_unique<TempDir>(*std::move(folder));
    job_ = folder_->File("job.toml");
    ASSERT_TRUE(WriteFileAtomic(job_, kJob).ok());
    global_.address = "127.0.0.1:1";  // nobody there
  }

  Outcome Plan(std::vector<std::string> overrides) {
    PlanArgs args;
    args.file = job_;
    args.overrides = std::move(overrides);
    args.devices = 3;
    return Observe([&] { return RunPlan(args, {}); });
  }

  std::unique_ptr<TempDir> folder_;
  std::string job_;
  GlobalArgs global_;
};

TEST_F(Commands, PlanTellsWhatDoesNotFitFromWhatIsWrong) {
  EXPECT_EQ(Plan({}).code, kExitOk);
  EXPECT_EQ(Plan({"parallelism.data_parallel_replicate_degree=3"}).code, kExitDoesNotFit);
  if (!kSanitizedBuild) {
    EXPECT_EQ(Plan({"parallelism.data_parallel_replicate_degree=8"}).code, kExitDoesNotFit);
  }
  EXPECT_EQ(Plan({"training.stepz=3"}).code, kExitUsage);
  EXPECT_EQ(Plan({"model.n_heads=5"}).code, kExitUsage);
}

TEST_F(Commands, PlanSaysWhatWouldFit) {
  const Outcome misfit = Plan({"parallelism.data_parallel_replicate_degree=3"});
  EXPECT_EQ(misfit.code, kExitDoesNotFit);
  EXPECT_TRUE(Contains(misfit.error, "set parallelism.data_parallel_replicate_degree = \"auto\""))
      << misfit.error;
}

TEST_F(Commands, PlanForAClusterFileForecastsItsDevices) {
  PlanArgs args;
  args.file = job_;
  args.cluster = folder_->File("c.toml");
  ASSERT_TRUE(
      WriteFileAtomic(args.cluster, "[[hosts]]\ndevices = 1\ndevice = \"a100-40g\"\n").ok());
  const Outcome planned = Observe([&] { return RunPlan(args, {}); });
  EXPECT_EQ(planned.code, kExitOk) << planned.error;
  EXPECT_TRUE(Contains(planned.out, "% of 19.5 TFLOP/s")) << planned.out;
  ASSERT_TRUE(WriteFileAtomic(args.cluster, "[[hosts]]\ndevices = 0\n").ok());
  const Outcome refused = Observe([&] { return RunPlan(args, {}); });
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_TRUE(Contains(refused.error, "c.toml:2:11: devices of [[hosts]] is 0")) << refused.error;
}

// Other devices than those that were named would look like these.
TEST_F(Commands, PlanDoesNotAssumeDevicesWhereNobodyAnswersAtAnAddress) {
  PlanArgs args;
  args.file = job_;
  args.overrides = {"parallelism.tensor_parallel_degree=1",
                    "parallelism.pipeline_parallel_degree=1"};
  const auto plan = [&] { return RunPlan(args, {}); };
  const Outcome named = Observe([&] { return RunPlan(args, global_); });
  EXPECT_EQ(named.code, kExitUnreachable) << named.error;
  ASSERT_EQ(::setenv("MESHWRIGHT_ADDRESS", "127.0.0.1:1", 1), 0);
  const Outcome dead = Observe(plan);
  args.devices = 1;
  const Outcome devices = Observe(plan);
  ASSERT_EQ(::unsetenv("MESHWRIGHT_ADDRESS"), 0);
  EXPECT_EQ(dead.code, kExitUnreachable) << dead.out;
  EXPECT_TRUE(Contains(dead.error, "no controller answers at 127.0.0.1:1")) << dead.error;
  EXPECT_TRUE(Contains(dead.error, "unset it, or plan for others with --devices N")) << dead.error;
  EXPECT_EQ(devices.code, kExitOk) << devices.error;
  args.devices = 0;
  EXPECT_EQ(Observe(plan).code, kExitOk) << "no address: as many as the degrees' product";
}

TEST_F(Commands, NotesGoToStderr) {
  const Outcome noted = Plan({"optimizer.momentum=0.5"});
  EXPECT_EQ(noted.code, kExitOk);
  EXPECT_TRUE(Contains(noted.error, "note: optimizer.momentum")) << noted.error;
  EXPECT_FALSE(Contains(noted.out, "note: optimizer"));
}

TEST_F(Commands, DownWaitsForAnUpThatHasWrittenNothingYet) {
  const DownArgs args{folder_->path(), 30};
  const auto down = [&] { return RunDown(args); };
  EXPECT_EQ(Observe(down).code, kExitOk);
  EXPECT_FALSE(FileExists(LockPath(folder_->path()))) << "no folder of a cluster";
  auto up = LockRunDir(folder_->path(), 0);
  ASSERT_TRUE(up) << up.error();
  const Outcome early = Observe(down);
  EXPECT_EQ(early.code, kExitTimeout);
  EXPECT_TRUE(Contains(early.error, "another `meshwright up`")) << early.error;
  *up = UniqueFd();
  const Outcome late = Observe(down);
  EXPECT_EQ(late.code, kExitOk);
  EXPECT_TRUE(Contains(late.out, "nothing runs")) << late.out;
}

TEST_F(Commands, SubmitFindsItsFilesAndTheRecordBeforeItAsksACluster) {
  SubmitArgs args;
  args.file = job_;
  const Outcome no_data = Observe([&] { return RunSubmit(args, global_); });
  EXPECT_EQ(no_data.code, kExitUsage);
  EXPECT_TRUE(Contains(no_data.error, "training.dataset_path = \"none.txt\": No such file"))
      << no_data.error;
  ASSERT_TRUE(WriteFileAtomic(folder_->File("data.txt"), std::string(2000, 'a')).ok());
  args.overrides = {"training.dataset_path=" + folder_->File("data.txt")};
  args.record = folder_->File("gone/record.jsonl");
  const Outcome no_record = Observe([&] { return RunSubmit(args, global_); });
  EXPECT_EQ(no_record.code, kExitUsage);
  EXPECT_TRUE(Contains(no_record.error, "--record " + args.record)) << no_record.error;
  args.record = folder_->File("record.jsonl");
  ASSERT_TRUE(WriteFileAtomic(args.record, "the last run\n").ok());
  EXPECT_EQ(Observe([&] { return RunSubmit(args, global_); }).code, kExitUnreachable);
  EXPECT_EQ(ReadFile(args.record).value_or(""), "the last run\n") << "there was no new job";
}

TEST_F(Commands, SubmitRefusesWeightsThatDoNotFitBeforeItAsksACluster) {
  ASSERT_TRUE(WriteFileAtomic(folder_->File("data.txt"), std::string(2000, 'a')).ok());
  const std::string weights = folder_->File("model.safetensors");
  SubmitArgs args;
  args.file = job_;
  args.overrides = {"training.dataset_path=" + folder_->File("data.txt"),
                    "checkpoint.initial_load_path=" + weights};
  const auto refused = [&](const std::string& what) {
    const Outcome outcome = Observe([&] { return RunSubmit(args, global_); });
    EXPECT_EQ(outcome.code, kExitUsage);
    EXPECT_TRUE(Contains(outcome.error, "checkpoint.initial_load_path")) << outcome.error;
    EXPECT_TRUE(Contains(outcome.error, what)) << outcome.error;
  };
  ASSERT_TRUE(WriteFileAtomic(weights, "garbage").ok());
  refused(weights);
  const auto writer = formats::SafetensorsWriter::Create(weights, {{"w", {ir::DType::kF32, {1}}}});
  ASSERT_TRUE(writer) << writer.error();
  const float one = 1;
  ASSERT_TRUE((*writer)->Write("w", 0, std::as_bytes(std::span(&one, 1))).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  refused("has no tensor");
  // The same file as the weights of a Hugging Face folder.
  ASSERT_TRUE(WriteFileAtomic(folder_->File("config.json"),
                              R"({"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":1,)"
                              R"("vocab_size":256,"n_positions":64})")
                  .ok());
  args.overrides = {"training.dataset_path=" + folder_->File("data.txt"), "training.seq_len=8",
                    "model.hf_path=" + folder_->path()};
  const Outcome outcome = Observe([&] { return RunSubmit(args, global_); });
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_TRUE(Contains(outcome.error, "model.hf_path")) << outcome.error;
  EXPECT_TRUE(Contains(outcome.error, "has no tensor")) << outcome.error;
  EXPECT_TRUE(Contains(outcome.error, "model.from_scratch = true")) << outcome.error;
}

TEST_F(Commands, InputFilesAreNamedByTheirKeys) {
  config::JobConfig config;
  const auto error = [&] { return FindInputFiles(config).error().message(); };
  config.dataset_path = "runs/data/corpus.txt";
  if (!FileExists(config.dataset_path)) {
    EXPECT_TRUE(Contains(error(), "tools/make-corpus.sh runs/data/corpus.txt")) << error();
  }
  config.dataset_path = folder_->path();
  EXPECT_TRUE(FindInputFiles(config)) << "a folder is its files";
  config.dataset_path = folder_->File("*.bin");
  EXPECT_TRUE(Contains(error(), "nothing matches")) << error();
  config.dataset_path = job_;
  ASSERT_TRUE(FindInputFiles(config));
  config.initial_load_path = folder_->path();
  EXPECT_TRUE(Contains(error(), "checkpoint.initial_load_path")) << error();
  EXPECT_TRUE(Contains(error(), "has no model.safetensors")) << error();
  const std::string weights = folder_->File("model.safetensors");
  ASSERT_TRUE(WriteFileAtomic(weights, "x").ok());
  EXPECT_EQ(FindInputFiles(config)->weights.path, weights);
  config.initial_load_path = folder_->File("none.safetensors");
  EXPECT_TRUE(Contains(error(), "No such file")) << error();
}

TEST_F(Commands, BadDataIsToldBeforeAClusterIsAsked) {
  const std::string good(4000, 'a');
  const auto refused = [&](const std::string& bytes, const std::string& format,
                           const std::string& what) {
    const std::string data = folder_->File("data");
    ASSERT_TRUE(WriteFileAtomic(data, bytes).ok());
    SubmitArgs submit;
    submit.file = job_;
    submit.overrides = {"training.dataset_path=" + data, "training.dataset_format=" + format};
    const Outcome submitted = Observe([&] { return RunSubmit(submit, global_); });
    EXPECT_EQ(submitted.code, kExitUsage) << what;
    EXPECT_TRUE(Contains(submitted.error, "training.dataset_path")) << submitted.error;
    EXPECT_TRUE(Contains(submitted.error, what)) << submitted.error;
    const Outcome planned = Plan(submit.overrides);
    EXPECT_EQ(planned.code, kExitUsage) << what;
    EXPECT_TRUE(Contains(planned.error, what)) << planned.error;
  };
  refused("", "bytes", "is empty");
  refused("short", "bytes", "is too short");
  refused(good + "\xff", "bytes", "is not UTF-8");
  refused(good + "a", "uint16", "truncated");
  refused(good, "uint16", "outside the vocabulary");
  refused(good, "llm.c", "not those of a token file of llm.c");
}

TEST_F(Commands, DataIsFoundBelowTheFolderOfTheJobFile) {
  ASSERT_TRUE(WriteFileAtomic(folder_->File("beside.txt"), std::string(4000, 'a')).ok());
  SubmitArgs args;
  args.file = job_;
  args.overrides = {"training.dataset_path=beside.txt"};
  EXPECT_EQ(Observe([&] { return RunSubmit(args, global_); }).code, kExitUnreachable);
  args.overrides = {"training.dataset_path=gone.txt"};
  const Outcome gone = Observe([&] { return RunSubmit(args, global_); });
  EXPECT_TRUE(Contains(gone.error, "relative to the folder of the job file (" + folder_->path()))
      << gone.error;
}

// A controller that tells one thing about a job and then ends the watch in a given way.
class FakeClient final : public client::Client {
 public:
  explicit FakeClient(Result<client::JobInfo> end) : end_(std::move(end)) {}
  Result<ir::BlobRef> UploadFile(const std::string&) override { return ir::BlobRef(); }
  Result<int64_t> Submit(const ir::JobRequest&) override { return 7; }
  Result<std::unique_ptr<client::Session>> OpenSession(const ir::JobRequest&,
                                                       client::SessionOptions) override {
    return Fail(Unavailable("no session"));
  }
  Result<std::unique_ptr<client::Session>> AttachSession(int64_t, client::SessionOptions) override {
    return Fail(Unavailable("no session"));
  }
  Result<proto::JobDescription> Describe(int64_t) override { return Fail(NotFound("no job")); }
  Result<client::JobInfo> Get(int64_t) override { return end_; }
  Result<std::vector<client::JobInfo>> List() override { return std::vector<client::JobInfo>(); }
  Status Send(const client::Order&) override { return OkStatus(); }
  Result<client::JobInfo> Watch(int64_t, const std::function<bool(const client::JobUpdate&)>& call,
                                int64_t) override {
    call({});
    return end_;
  }
  Result<std::vector<std::string>> Logs(int64_t) override { return std::vector<std::string>(); }
  Result<std::vector<client::WorkerInfo>> Workers() override {
    return std::vector<client::WorkerInfo>();
  }
  Result<std::string> Story(const client::StoryAsk&) override { return std::string(); }

 private:
  const Result<client::JobInfo> end_;
};

Outcome Follow(Result<client::JobInfo> end, bool json = false) {
  FakeClient client(std::move(end));
  return Observe([&] {
    JobView view(SystemClock(), {.steps = {}, .step_lines = false, .live = false});
    return FollowJob(client, {.job_id = 7, .timeout_s = 2, .json = json}, view,
                     [](const client::JobUpdate&) { fmt::print("step\n"); });
  });
}

client::JobInfo Job(client::JobState state) {
  client::JobInfo job;
  job.id = 7;
  job.state = state;
  job.steps = 30;
  job.steps_done = 5;
  return job;
}

TEST(Follow, TheEndOfTheJobDecides) {
  EXPECT_EQ(Follow(Job(client::JobState::kSucceeded)).code, kExitOk);
  const Outcome failed = Follow(Job(client::JobState::kFailed));
  EXPECT_EQ(failed.code, kExitJobFailed);
  EXPECT_TRUE(Contains(failed.out, "FAILED after 5 steps")) << failed.out;
  EXPECT_TRUE(Contains(Follow(Job(client::JobState::kFailed), true).out, "\"state\":\"FAILED\""));
}

TEST(Follow, ATimeoutSaysThatTheJobGoesOn) {
  const Outcome late = Follow(Job(client::JobState::kRunning));
  EXPECT_EQ(late.code, kExitTimeout);
  EXPECT_TRUE(Contains(late.error, "after 2 s job 7 is RUNNING at step 5 of 30")) << late.error;
  EXPECT_TRUE(Contains(late.error, "follow: meshwright logs -f 7, stop: meshwright cancel 7"));
  const Outcome silent = Follow(tl::unexpected(DeadlineExceeded("no answer")));
  EXPECT_EQ(silent.code, kExitTimeout);
  EXPECT_TRUE(Contains(silent.error, "job 7 goes on")) << silent.error;
}

TEST(Follow, ALostControllerLeavesTheStateOpen) {
  const Outcome lost = Follow(tl::unexpected(Unavailable("no controller answers")));
  EXPECT_EQ(lost.code, kExitUnreachable);
  EXPECT_TRUE(Contains(lost.error, "job 7 is unknown until the controller is back")) << lost.error;
  EXPECT_TRUE(Contains(lost.error, "meshwright logs 7")) << lost.error;
}

TEST(FollowDeathTest, CtrlCSaysThatTheJobGoesOn) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const InterruptNote note(GoesOn(7) + "\n");
          ::raise(number);
        },
        ::testing::ExitedWithCode(128 + number), "job 7 goes on; follow: meshwright logs -f 7");
  }
}

// A listening socket of loopback.
class TakenPort {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(fd_.get(), generic, length), 0);
    EXPECT_EQ(::listen(fd_.get(), 1), 0);
    EXPECT_EQ(::getsockname(fd_.get(), generic, &length), 0);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }

 private:
  const UniqueFd fd_;
  int port_ = 0;
};

TEST(ScratchCheck, NamesTheFolderAndTheFix) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder) << folder.error();
  EXPECT_TRUE(CheckScratchDir("").ok());
  EXPECT_TRUE(CheckScratchDir(folder->path()).ok());
  const std::string none = folder->File("none");
  const Status missing = CheckScratchDir(none);
  EXPECT_EQ(ExitCodeOf(missing), kExitUsage);
  EXPECT_TRUE(Contains(missing.message(), "--scratch-dir " + none)) << missing;
  EXPECT_TRUE(Contains(missing.message(), "mkdir -p " + none)) << missing;
  ASSERT_TRUE(WriteFileAtomic(none, "").ok());
  EXPECT_TRUE(Contains(CheckScratchDir(none).message(), "is no folder"));
}

TEST(ListenCheck, NamesTheOptionAndTheFix) {
  const TakenPort taken;
  const Status in_use = CheckListen("127.0.0.1", taken.port(), "--metrics-port");
  EXPECT_EQ(ExitCodeOf(in_use), kExitJobFailed);
  EXPECT_TRUE(Contains(in_use.message(), "in use")) << in_use;
  EXPECT_TRUE(Contains(in_use.message(), "choose another --metrics-port")) << in_use;
  const Status foreign = CheckListen("9.9.9.9", 0, "--data-port");
  EXPECT_EQ(ExitCodeOf(foreign), kExitJobFailed);
  EXPECT_TRUE(Contains(foreign.message(), "--bind 9.9.9.9 is not an address of this host"));
  const Status name = CheckListen("not a host", 0, "--data-port");
  EXPECT_EQ(ExitCodeOf(name), kExitUsage);
  EXPECT_TRUE(CheckListen("localhost", 0, "--port").ok());
  EXPECT_TRUE(CheckListen("127.0.0.1", -1, "--metrics-port").ok());
}

}  // namespace
}  // namespace meshwright::cli
