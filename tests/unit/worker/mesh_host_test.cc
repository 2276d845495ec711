#include "worker/mesh_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "data/identity.h"
#include "tests/emulated/gpu.h"
#include "tests/unit/worker/fake_link.h"
#include "tests/unit/worker/program_maker.h"
#include "worker/blob_cache.h"

namespace meshwright::worker {
namespace {

using proto::ErrorKind;
using ::testing::HasSubstr;

constexpr MeshGeneration kGen{1};

class MeshHostTest : public ::testing::Test {
 protected:
  MeshHostTest() : metrics_(registry_, "w") {
    cache_ = BlobCache::Open("", &link_).value();
    resources_.worker = "w";
    resources_.blobs = cache_.get();
    resources_.link = &link_;
    resources_.metrics = &metrics_;
    host_ = std::make_unique<MeshHost>(
        resources_, kGen, [this](proto::UpBody body) { Heard(std::move(body)); }, [] {});
  }
  ~MeshHostTest() override { host_.reset(); }

  // One device whose weight "x" is 7 after init.
  proto::LoadMesh MakeLoad() {
    proto::RankPrograms rank;
    rank.programs = {AddProgram("init"), AddProgram("step"), AddProgram("eval")};
    proto::LoadMesh load;
    load.mesh_gen = kGen;
    load.cluster_id = "test";
    load.members = {{"w", "", collective::LocalHostId(), 1}};
    load.programs = {"init", "step", "eval"};
    load.ranks = {rank};
    load.data = {link_.Add(std::string(1000, 'a'), "text"), "bytes", 0.1};
    load.sequence = 8;
    load.graph = link_.Add(R"(graph "loss" {
      %0 = param {decay=0, export_name="x", init="zeros", name="x", std=0.0} : f32[2]
      output "x" %0
    })",
                           "graph");
    return load;
  }

  // The next report. A test that waits in vain fails by its time limit.
  proto::UpBody Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !heard_.empty(); });
    proto::UpBody body = std::move(heard_.front());
    heard_.pop_front();
    return body;
  }

  // Of a save whose state could be copied. Its two answers come from two threads.
  proto::StateSaved NextSave() {
    proto::StateSaved saved;
    for (int i = 0; i < 2; ++i) {
      proto::UpBody body = Next();
      if (auto* written = std::get_if<proto::StateSaved>(&body)) {
        saved = std::move(*written);
      } else {
        EXPECT_TRUE(std::get<proto::LaunchDone>(body).error.ok());
      }
    }
    return saved;
  }

  // Up to the first launch.
  void Run() {
    host_->Take(MakeLoad());
    const auto loaded = std::get<proto::Loaded>(Next());
    ASSERT_TRUE(loaded.error.ok()) << loaded.error.message;
    host_->Take(proto::Connect{MeshGeneration(1), {}});
    ASSERT_TRUE(std::get<proto::CommUp>(Next()).error.ok());
    host_->Take(proto::Launch{kGen, LaunchSeq(1), 0, 0, 1});
    const auto done = std::get<proto::LaunchDone>(Next());
    ASSERT_TRUE(done.error.ok()) << done.error.message;
  }

  void Heard(proto::UpBody body) {
    std::scoped_lock lock(mutex_);
    heard_.push_back(std::move(body));
    changed_.notify_all();
  }

  FakeLink link_;
  MetricsRegistry registry_;
  AgentMetrics metrics_;
  std::unique_ptr<BlobCache> cache_;
  HostResources resources_;
  std::unique_ptr<MeshHost> host_;

 protected:
  ir::BlobRef AddProgram(const std::string& name, const char* graph = R"(graph "fill" {
      %0 = constant {value=7.0} : f32[2]
      output "x" %0
    })") {
    ProgramMaker maker(name, 0);
    const SlotId x = maker.Persistent("x", F32({2}));
    maker.Run(maker.Executable(graph), {}, {x});
    ir::Program program = maker.Finish();
    for (ir::Slot& slot : program.slots) slot.global_dims = slot.type.dims;
    return link_.Add(ir::FormatProgram(program), name);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<proto::UpBody> heard_;
};

// Of a worker without a checkpoint root: what is written goes to the controller, and comes from
// there again, checked.
TEST_F(MeshHostTest, SavesAndRestoresThroughTheController) {
  ASSERT_NO_FATAL_FAILURE(Run());
  const ir::FolderRef folder{ir::kControllerRoot, "gpt/7"};
  host_->Take(proto::SaveState{kGen, LaunchSeq(2), folder, "step-00000001.tmp-1-2", {{0, {"x"}}}});
  const proto::StateSaved saved = NextSave();
  ASSERT_TRUE(saved.error.ok()) << saved.error.message;
  checkpoint::Manifest manifest;
  manifest.step = 1;
  ASSERT_TRUE(checkpoint::AddShards(manifest, checkpoint::ParseShards(saved.shards).value()).ok());
  ASSERT_EQ(manifest.files.size(), 1u);
  const std::string name = manifest.files[0].name;
  const std::string bytes = link_.files.at("gpt/7/step-00000001.tmp-1-2/" + name);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), manifest.files[0].bytes);
  link_.files["gpt/7/step-00000001/" + name] = bytes;
  link_.files["gpt/7/step-00000001/manifest.json"] = checkpoint::FormatManifest(manifest);

  const ir::FolderRef start{ir::kControllerRoot, "gpt/7/step-00000001"};
  host_->Take(proto::RestoreState{kGen, LaunchSeq(3), start, {}});
  const auto restored = std::get<proto::LaunchDone>(Next());
  EXPECT_TRUE(restored.error.ok()) << restored.error.message;
  link_.files["gpt/7/step-00000001/" + name].back() ^= 1;
  host_->Take(proto::RestoreState{kGen, LaunchSeq(4), start, {}});
  EXPECT_THAT(std::get<proto::LaunchDone>(Next()).error.message,
              HasSubstr("are not those that were written"));
}

TEST_F(MeshHostTest, ASaveThatTheControllerDoesNotTakeFailsAlone) {
  ASSERT_NO_FATAL_FAILURE(Run());
  link_.files_error = ResourceExhausted("the controller's disk is full");
  host_->Take(proto::SaveState{
      kGen, LaunchSeq(2), {ir::kControllerRoot, "gpt/7"}, "step-00000001.tmp-1-2", {{0, {"x"}}}});
  EXPECT_EQ(NextSave().error.code, StatusCode::kResourceExhausted);
  host_->Take(proto::Launch{kGen, LaunchSeq(3), 1, 0, 1});
  EXPECT_TRUE(std::get<proto::LaunchDone>(Next()).error.ok()) << "the job does not go on";
}

TEST_F(MeshHostTest, FetchesTheInitialWeightsWhileItLoads) {
  // In the first launch the peers would wait for the download at a collective.
  proto::LoadMesh load = MakeLoad();
  load.init_weights.blob = {std::string(64, 'b'), 10, "start.safetensors"};
  host_->Take(load);
  const auto loaded = std::get<proto::Loaded>(Next());
  EXPECT_EQ(loaded.error.kind, ErrorKind::kLoadFailed);
  EXPECT_THAT(loaded.error.message, HasSubstr("start.safetensors"));
}

// Data and weights below a root: nothing is fetched but programs, and another file is an error.
TEST_F(MeshHostTest, ReadsFilesBelowARootInPlace) {
  const TempDir dir = TempDir::Make().value();
  const data::Roots roots = data::Roots::Open({{"d", dir.path()}}).value();
  resources_.roots = &roots;
  host_ = std::make_unique<MeshHost>(
      resources_, kGen, [this](proto::UpBody body) { Heard(std::move(body)); }, [] {});
  ASSERT_TRUE(std::holds_alternative<proto::MeshReleased>(Next())) << "of the first one";
  ASSERT_TRUE(WriteFileAtomic(dir.File("a.txt"), std::string(1000, 'a')).ok());
  proto::LoadMesh load = MakeLoad();
  ir::DataStream stream = ir::StreamsOf(load.data).value()[0];
  const auto fd = data::OpenPlainFile(dir.File("a.txt"), "a.txt");
  const std::string sampled = data::SampledHash(fd->get(), 1000, "a.txt").value();
  stream.files = {{{"", 1000, "books/a.txt"}, "d", "a.txt", sampled}};
  load.data.streams = {stream};
  load.data.blob = {};
  const auto error = [&] {
    host_->Take(load);
    return std::get<proto::Loaded>(Next()).error;
  };
  load.data.streams[0].files[0].sampled = std::string(64, '0');
  const auto other = error();
  EXPECT_EQ(other.kind, ErrorKind::kLoadFailed);
  EXPECT_THAT(other.message, HasSubstr("books/a.txt"));
  load.data.streams[0].files[0].sampled = sampled;
  load.data.streams[0].files[0].root = "/elsewhere";
  EXPECT_THAT(error().message, HasSubstr("start it with --data-root /elsewhere"));
  load.data.streams[0].files[0].root = "d";
  const int fetches = link_.fetches;
  EXPECT_TRUE(error().ok());
  EXPECT_EQ(link_.fetches, fetches);
}

TEST_F(MeshHostTest, MoreMessagesThanTheMailboxHoldsAreAnErrorAndItsEndFindsRoom) {
  std::promise<void> entered, open;
  std::shared_future<void> opened = open.get_future().share();
  std::once_flag once;
  link_.before_fetch = [&](const std::string&) {
    std::call_once(once, [&] { entered.set_value(); });
    opened.wait();
  };
  host_->Take(MakeLoad());
  entered.get_future().wait();
  // One place is kept for the end.
  for (size_t i = 0; i < MeshHost::kMailbox; ++i) host_->Take(proto::Connect{kGen, {}});
  const auto error = std::get<proto::MeshError>(Next()).error;
  EXPECT_EQ(error.kind, ErrorKind::kProtocol);
  EXPECT_THAT(error.message, HasSubstr("64 messages wait for mesh generation 1"));
  host_->Release();
  open.set_value();
  size_t connected = 0;
  while (true) {
    const proto::UpBody body = Next();
    if (std::holds_alternative<proto::MeshReleased>(body)) break;
    connected += std::holds_alternative<proto::CommUp>(body) ? 1 : 0;
  }
  EXPECT_EQ(connected, MeshHost::kMailbox - 1);
}

TEST_F(MeshHostTest, FillsTheInitialWeightsAfterInit) {
  const TempDir dir = TempDir::Make().value();
  const std::string path = dir.File("start.safetensors");
  auto writer = formats::SafetensorsWriter::Create(path, {{"x", F32({2})}});
  ASSERT_TRUE(writer.has_value()) << writer.error();
  const std::vector<float> values = {1, 2};
  ASSERT_TRUE((*writer)->Write("x", 0, AsBytes(values)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  proto::LoadMesh load = MakeLoad();
  load.init_weights.blob = link_.Add(ReadFile(path).value(), "start.safetensors");
  host_->Take(load);
  const auto loaded = std::get<proto::Loaded>(Next());
  ASSERT_TRUE(loaded.error.ok()) << loaded.error.message;
  const int fetches = link_.fetches;
  host_->Take(proto::Connect{MeshGeneration(1), {}});
  ASSERT_TRUE(std::get<proto::CommUp>(Next()).error.ok());
  host_->Take(proto::Launch{kGen, LaunchSeq(1), 0, 0, 1});
  const auto done = std::get<proto::LaunchDone>(Next());
  EXPECT_TRUE(done.error.ok()) << done.error.message;
  EXPECT_EQ(link_.fetches, fetches);
}

TEST_F(MeshHostTest, AnExceptionIsAReportAndNotTheEndOfTheWorker) {
  Run();
  link_.before_put = [] { throw std::length_error("tile of 9 EiB"); };
  host_->Take(proto::SaveWeights{kGen, {{0, {"x"}}}});
  const auto saved = std::get<proto::WeightsSaved>(Next());
  EXPECT_EQ(saved.error.kind, ErrorKind::kSaveFailed);
  EXPECT_EQ(saved.error.code, StatusCode::kInternal);
  EXPECT_THAT(saved.error.message, HasSubstr("tile of 9 EiB"));
  host_->Release();
  EXPECT_TRUE(std::holds_alternative<proto::MeshReleased>(Next()));
}

TEST_F(MeshHostTest, AnAbortEndsASaveThatIsUnderWay) {
  Run();
  link_.before_put = [this] { host_->Abort(Cancelled("by the user")); };
  host_->Take(proto::SaveWeights{kGen, {{0, {"x"}}}});
  EXPECT_TRUE(std::holds_alternative<proto::MeshReleased>(Next())) << "and nothing else is said";
  EXPECT_EQ(link_.tiles, 0);
}

// With a GPU that may be lost: the worker says so by "leaving".
class MeshHostOnGpuTest : public MeshHostTest {
 protected:
  MeshHostOnGpuTest() {
    resources_.gpus.driver = &gpu_.driver();
    resources_.gpus.toolkit = &gpu_.toolkit();
    resources_.gpus.indices = {0};
    resources_.gpu_drain_timeout_ms = 50;
    resources_.device_lost = [this](const Status& cause) {
      lost_.push_back(cause);
      Heard(proto::Leave{"device lost", 0, {}});
    };
    Renew();
  }
  ~MeshHostOnGpuTest() override { host_.reset(); }

  void Renew() {
    host_.reset();
    ASSERT_TRUE(std::holds_alternative<proto::MeshReleased>(Next()));
    host_ = std::make_unique<MeshHost>(
        resources_, kGen, [this](proto::UpBody body) { Heard(std::move(body)); }, [] {});
  }

  // The worker hears of it when the controller has been told the error.
  void ExpectLost(const std::string& message) {
    ASSERT_TRUE(std::holds_alternative<proto::Leave>(Next()));
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].blame(), Blame::kHardware);
    EXPECT_THAT(lost_[0].message(), HasSubstr(message));
  }

  emulated::EmulatedGpu gpu_;
  std::vector<Status> lost_;
};

TEST_F(MeshHostOnGpuTest, ALostGpuIsToldOnce) {
  Run();
  gpu_.driver().SpoilDevice(0, device::cuda::kIllegalAddress);
  host_->Take(proto::Launch{kGen, LaunchSeq(2), 1, 0, 1});
  const auto done = std::get<proto::LaunchDone>(Next());
  EXPECT_EQ(done.error.kind, ErrorKind::kStepFailed);
  EXPECT_THAT(done.error.message, HasSubstr("cudaErrorIllegalAddress"));
  ExpectLost("restart it");
  host_.reset();
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(MeshHostOnGpuTest, ProductsAreRoundedWhereTheJobAllowsIt) {
  for (const bool allowed : {false, true}) {
    emulated::EmulatedBlas exact;
    emulated::EmulatedBlas rounded;
    ops::cuda::Toolkit tf32_toolkit = gpu_.toolkit();
    tf32_toolkit.tf32 = true;
    tf32_toolkit.blas = &rounded;
    gpu_.toolkit().blas = &exact;
    resources_.gpus.tf32_toolkit = &tf32_toolkit;
    Renew();
    proto::LoadMesh load = MakeLoad();
    load.tf32 = allowed;
    load.ranks[0].programs[1] = AddProgram("step", R"(graph "product" {
      %0 = constant {value=2.0} : f32[2]
      %1 = constant {value=3.0} : f32[2,2]
      %2 = einsum(%0, %1) {equation="k,kn->n"} : f32[2]
      output "x" %2
    })");
    host_->Take(load);
    const auto loaded = std::get<proto::Loaded>(Next());
    EXPECT_TRUE(loaded.error.ok()) << loaded.error.message;
    EXPECT_EQ(exact.plans(), allowed ? 0 : 1);
    EXPECT_EQ(rounded.plans(), allowed ? 1 : 0);
    host_.reset();
    Next();  // that it let go
    host_ = std::make_unique<MeshHost>(
        resources_, kGen, [this](proto::UpBody body) { Heard(std::move(body)); }, [] {});
  }
}

TEST_F(MeshHostOnGpuTest, AGpuThatIsLostWhileItLoadsIsTold) {
  gpu_.driver().Fail("FinishCapture", device::cuda::kLaunchFailure);
  host_->Take(MakeLoad());
  EXPECT_EQ(std::get<proto::Loaded>(Next()).error.kind, ErrorKind::kLoadFailed);
  ExpectLost("cudaErrorLaunchFailure");
}

// The device of another runtime of this process, which is gone.
TEST_F(MeshHostOnGpuTest, AGpuThatWasLostBeforeIsToldAgain) {
  Run();
  gpu_.driver().SpoilDevice(0, device::cuda::kIllegalAddress);
  host_->Take(proto::Launch{kGen, LaunchSeq(2), 1, 0, 1});
  EXPECT_FALSE(std::get<proto::LaunchDone>(Next()).error.ok());
  ExpectLost("cudaErrorIllegalAddress");
  Renew();
  lost_.clear();
  host_->Take(MakeLoad());
  EXPECT_EQ(std::get<proto::Loaded>(Next()).error.kind, ErrorKind::kLoadFailed);
  ExpectLost("cudaErrorIllegalAddress");
}

TEST_F(MeshHostOnGpuTest, AGpuThatIsLostWhileItSavesIsTold) {
  Run();
  gpu_.driver().SpoilDevice(0, device::cuda::kIllegalAddress);
  host_->Take(proto::SaveWeights{kGen, {{0, {"x"}}}});
  EXPECT_EQ(std::get<proto::WeightsSaved>(Next()).error.kind, ErrorKind::kSaveFailed);
  ExpectLost("cudaErrorIllegalAddress");
}

// Else the controller could place another job on it.
TEST_F(MeshHostOnGpuTest, AGpuThatDoesNotEndIsToldBeforeTheMeshIsReleased) {
  Run();
  gpu_.driver().Hang(0, true);
  const int64_t before = gpu_.driver().calls("LaunchGraph");
  host_->Take(proto::Launch{kGen, LaunchSeq(2), 1, 0, 1});
  const Deadline deadline = Deadline::After(20'000);
  while (gpu_.driver().calls("LaunchGraph") == before && !deadline.expired()) {
    std::this_thread::yield();
  }
  host_->Abort(Cancelled("by the user"));
  ExpectLost("did not end with the job");
  EXPECT_TRUE(std::holds_alternative<proto::MeshReleased>(Next()));
}

// What another worker says of its hardware is not said of this one's.
TEST_F(MeshHostOnGpuTest, APeersLostDeviceIsNotThisWorkers) {
  Run();
  host_->Abort(Unavailable("rank 1: cuda:0: lost").WithBlame(Blame::kHardware));
  EXPECT_TRUE(std::holds_alternative<proto::MeshReleased>(Next()));
  EXPECT_THAT(lost_, ::testing::IsEmpty());
}

// The workers' setting is what a step waits for a peer that hangs.
TEST_F(MeshHostTest, AStepWaitsForAPeerAsLongAsTheWorkerWasTold) {
  host_.reset();
  ASSERT_TRUE(std::holds_alternative<proto::MeshReleased>(Next()));
  resources_.devices = 2;
  resources_.collective_timeout_ms = 200;
  host_ = std::make_unique<MeshHost>(
      resources_, kGen, [this](proto::UpBody body) { Heard(std::move(body)); }, [] {});
  proto::LoadMesh load = MakeLoad();
  load.members = {load.members[0], load.members[0]};
  load.ranks.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    const auto add = [&](const std::string& name, bool transfer) {
      ProgramMaker maker(name, rank, {{}, {}, 2});
      const SlotId x = maker.Persistent("x", F32({2}));
      if (transfer) {
        const ChannelId channel = maker.Channel(rank == 1, 1 - rank, "c", 8);
        if (rank == 0) maker.Recv(x, channel);
      }
      return link_.Add(ir::FormatProgram(maker.Finish()), name);
    };
    proto::RankPrograms& own = load.ranks[static_cast<size_t>(rank)];
    own.rank = own.local_device = rank;
    own.programs = {add("init", false), add("step", true), add("eval", false)};
  }
  host_->Take(load);
  const auto loaded = std::get<proto::Loaded>(Next());
  ASSERT_TRUE(loaded.error.ok()) << loaded.error.message;
  host_->Take(proto::Connect{kGen, {}});
  ASSERT_TRUE(std::get<proto::CommUp>(Next()).error.ok());
  host_->Take(proto::Launch{kGen, LaunchSeq(1), 1, 0, 1});
  const auto done = std::get<proto::LaunchDone>(Next());
  EXPECT_THAT(done.error.message, HasSubstr("within 200 ms"));
}

}  // namespace
}  // namespace meshwright::worker
