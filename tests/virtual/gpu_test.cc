// The same jobs on emulated GPUs: the real worker, kernels and NCCL fabric above a driver,
// libraries and a NCCL that compute on the host, in an order drawn from a seed; or on those of the
// machine (tests/machine_gpu.h). One CPU device is the oracle.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "mesh/topology.h"
#include "planner/host_update.h"
#include "planner/plan.h"
#include "tests/emulated/libraries.h"
#include "tests/emulated/nccl.h"
#include "tests/emulated/sdpa.h"
#include "tests/machine_gpu.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

// What computes for long: threads are looked at in shorter tests, of the ends of jobs, of
// tests/unit/worker and of tests/conformance/collective.
#define MW_NOT_FOR_THREADS() \
  if (kThreadSanitizedBuild) GTEST_SKIP() << "takes minutes under the thread sanitizer"

// The GPUs of one process and all that they need.
struct EmulatedGpus {
  explicit EmulatedGpus(int count, uint64_t seed = 1)
      : driver({.devices = count, .memory_bytes = int64_t{64} << 20, .seed = seed}) {
    libraries.AddTo(toolkit);
  }

  worker::GpuOptions Options(bool record = true) {
    worker::GpuOptions options;
    options.record = record;
    if (machine::OnMachineGpus()) {
      const worker::Gpus& gpus = *machine::MachineGpus();
      options.driver = gpus.driver;
      options.toolkit = gpus.toolkit;
      options.nccl = gpus.nccl;
      options.no_nccl = gpus.no_nccl;
      options.combiner = gpus.combiner;
      options.indices.assign(gpus.indices.begin(), gpus.indices.begin() + CountOf(driver));
      return options;
    }
    options.driver = &driver;
    options.toolkit = &toolkit;
    options.nccl = &nccl;
    options.combiner = &combiner;
    for (int i = 0; i < CountOf(driver); ++i) options.indices.push_back(i);
    return options;
  }

  static int CountOf(emulated::EmulatedDriver& driver) {
    int32_t count = 0;
    (void)driver.CountDevices(&count);
    return count;
  }

  emulated::EmulatedDriver driver;
  emulated::EmulatedLibraries libraries;
  emulated::EmulatedSdpa sdpa;  // of toolkit where a test says so
  ops::cuda::Toolkit toolkit;
  emulated::EmulatedNetwork network;
  emulated::EmulatedNccl nccl{network};
  emulated::EmulatedCombiner combiner;
};

Result<std::unique_ptr<VirtualCluster>> StartOn(EmulatedGpus& gpus, const ir::JobRequest& job,
                                                int devices, ops::FeedSource* feed,
                                                bool record = true) {
  MW_ASSIGN_OR_RETURN(planner::Plan plan, planner::MakePlan(job, mesh::Topology::Local(devices)));
  worker::GpuOptions options = gpus.Options(record);
  return VirtualCluster::StartPlan(std::move(plan), job.train.seed, feed, ops::Backend::kCpu,
                                   options);
}

TinyOptions SmallModel(const std::string& family = "gpt2") {
  TinyOptions options;
  options.family = family;
  options.dtype = ir::DType::kF32;
  options.layers = 2;
  options.batch = 8;
  options.adam_eps = 1e-3;  // updates that rounding cannot turn around
  return options;
}

Result<RunResult> RunOnGpus(const ir::JobRequest& job, int devices, const TinyOptions& options,
                            uint64_t seed = 1, bool record = true) {
  EmulatedGpus gpus(devices, seed);
  SyntheticTokens tokens(static_cast<int>(options.vocabulary));
  Result<RunResult> result;
  {
    MW_ASSIGN_OR_RETURN(const auto cluster, StartOn(gpus, job, devices, &tokens, record));
    result = RunOn(*cluster);
  }
  EXPECT_THAT(gpus.network.misuse(), ::testing::IsEmpty());
  EXPECT_THAT(gpus.driver.misuse(), ::testing::IsEmpty());
  for (const char* kind : {"allocation", "host", "stream", "event", "graph"}) {
    EXPECT_EQ(gpus.driver.alive(kind), 0) << kind;
  }
  return result;
}

Result<RunResult> Oracle(ir::JobRequest job, const TinyOptions& options) {
  return RunJob(WithLayout(std::move(job), {}), 1, static_cast<int>(options.vocabulary));
}

void ExpectTrains(const TinyOptions& options, const LayoutCase& layout, double tolerance,
                  uint64_t seed = 1) {
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = Oracle(job, options);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  const auto actual = RunOnGpus(WithLayout(job, layout), layout.devices(), options, seed);
  ASSERT_TRUE(actual.has_value()) << actual.error();
  ExpectEqual(*expected, *actual, tolerance, layout.ToString());
}

TEST(Gpus, OneTrainsTheModelOfACpu) {
  MW_NOT_FOR_THREADS();
  for (const char* family : {"gpt2", "llama"}) ExpectTrains(SmallModel(family), {}, 1e-4);
}

TEST(Gpus, MicrobatchesAndDropout) {
  MW_NOT_FOR_THREADS();
  TinyOptions options = SmallModel();
  options.dropout = 0.1;
  ExpectTrains(options, {1, 1, 1, 4}, 1e-4);
}

// Copies have a queue of their own, which events order with the others.
TEST(Gpus, WhatIsOnTheHostChangesNothing) {
  MW_NOT_FOR_THREADS();
  const TinyOptions options = SmallModel();
  ir::JobRequest job = MakeTinyJob(options);
  const auto device = RunOnGpus(job, 1, options);
  ASSERT_TRUE(device.has_value()) << device.error();
  job.parallel.optimizer_memory = "host";
  job.parallel.offload_chunk_bytes = 4096;
  for (const uint64_t seed : {1, 2, 3}) {
    for (const bool record : {false, true}) {
      job.parallel.weights_memory = seed == 1 ? "device" : "host";
      job.parallel.gradients_memory = job.parallel.activations_memory =
          seed == 3 ? "host" : "device";
      const auto host = RunOnGpus(job, 1, options, seed, record);
      ASSERT_TRUE(host.has_value()) << host.error();
      ExpectEqual(*device, *host, 0, fmt::format("seed {}, recorded {}", seed, record));
    }
  }
}

// Host calls have a queue of their own, too; the host cannot touch the device's memory in them.
TEST(Gpus, TheHostRenewsItsShareOfTheState) {
  MW_NOT_FOR_THREADS();
  const TinyOptions options = SmallModel();
  for (const char* optimizer : {"adamw", "sgd"}) {
    ir::JobRequest job = MakeTinyJob(options);
    job.optimizer.name = optimizer;
    const auto device = RunOnGpus(job, 1, options);
    ASSERT_TRUE(device.has_value()) << device.error();
    job.parallel.optimizer_memory = "host";
    job.parallel.offload_chunk_bytes = 4096;
    for (const uint64_t seed : {1, 2, 3}) {
      if (kSanitizedBuild && seed > 1) continue;
      job.parallel.host_update = seed == 1 ? 100 : 50;
      job.parallel.weights_memory = job.parallel.gradients_memory = seed == 3 ? "host" : "device";
      const auto host = RunOnGpus(job, 1, options, seed, seed != 2);
      ASSERT_TRUE(host.has_value()) << host.error();
      // Kernels of the two are not of one compiler: the last bit of a root or a quotient may
      // differ.
      ExpectEqual(*device, *host, 1e-6, fmt::format("{}, seed {}", optimizer, seed));
      const auto groups = planner::UpdateGroupsOf(host->plan.Main()[0]);
      const auto by_host = std::count_if(groups.begin(), groups.end(),
                                         [](const auto& group) { return group.on_host; });
      EXPECT_GT(by_host, 0) << seed;
      EXPECT_EQ(static_cast<size_t>(by_host) < groups.size(), seed > 1) << seed;
    }
  }
}

// Blocks of replicas go out, are renewed by the host and come back to be gathered.
TEST(Gpus, HostsOfReplicasRenewTheirBlocks) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_GPUS(2);
  const TinyOptions options = SmallModel();
  ir::JobRequest job = WithLayout(MakeTinyJob(options), {2, 1, 1, 2});
  const auto expected = Oracle(job, options);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  job.parallel.optimizer_memory = "host";
  job.parallel.offload_chunk_bytes = 4096;
  job.parallel.host_update = 50;
  for (const int zero : {1, 2}) {
    job.parallel.zero = zero;
    const auto actual = RunOnGpus(job, 2, options, static_cast<uint64_t>(zero));
    ASSERT_TRUE(actual.has_value()) << actual.error();
    ExpectEqual(*expected, *actual, 1e-4, fmt::format("zero={}", zero));
  }
}

TEST(Gpus, ExpertsTrainTheModelOfOneCpu) {
  MW_NOT_FOR_THREADS();
  TinyOptions options = SmallModel("mixtral");
  ExpectTrains(options, {}, 1e-4);
  options.capacity_factor = 1;
  MW_NEEDS_GPUS(2);
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = Oracle(job, options);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  ir::JobRequest shared = WithLayout(job, {2, 1, 1, 1});
  shared.parallel.expert = 2;
  const auto actual = RunOnGpus(shared, 2, options);
  ASSERT_TRUE(actual.has_value()) << actual.error();
  ExpectEqual(*expected, *actual, 1e-4, "experts on two GPUs");
}

TEST(Gpus, MeshesTrainTheModelOfOneCpu) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_GPUS(4);
  for (const LayoutCase& layout : std::vector<LayoutCase>{
           {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 4}, {2, 2, 1, 2}, {1, 2, 2, 4}}) {
    for (const uint64_t seed : {1, 2}) {
      if (!LeavesOut(3)) ExpectTrains(SmallModel(), layout, 1e-4, seed);
    }
  }
}

// What is gathered and summed up in chunks, beside products, in an order drawn from a seed.
TEST(Gpus, ProductsInChunksTrainTheModelOfOneCpu) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_GPUS(4);
  const TinyOptions options = SmallModel("llama");
  const ir::JobRequest job = MakeTinyJob(options);
  ir::JobRequest cut = WithLayout(job, {2, 2, 1, 1});
  cut.parallel.sequence_parallel = true;
  cut.parallel.tensor_chunks = 2;
  cut.parallel.overlap = true;
  const auto expected = Oracle(job, options);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  const auto actual = RunOnGpus(cut, 4, options, 5);
  ASSERT_TRUE(actual.has_value()) << actual.error();
  EXPECT_EQ(actual->plan.layout.tensor_chunks, 2);
  ExpectEqual(*expected, *actual, 1e-4, "products in chunks");
}

// Heads and words that three GPUs do not divide.
TEST(Gpus, PaddingTrainsTheModelOfOneCpu) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_GPUS(3);
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = SmallModel(family);
    options.dropout = 0.1;
    if (!LeavesOut(3)) ExpectTrains(options, {1, 3, 1, 1}, 1e-4);
  }
}

// Which queue goes first changes no bit, and neither does a recording.
TEST(Gpus, OrderAndRecordingsChangeNothing) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_GPUS(2);
  const TinyOptions options = SmallModel();
  const ir::JobRequest job = WithLayout(MakeTinyJob(options), {1, 2, 1, 2});
  const auto first = RunOnGpus(job, 2, options, 1, true);
  const auto second = RunOnGpus(job, 2, options, 2, false);
  ASSERT_TRUE(first.has_value()) << first.error();
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_EQ(first->losses, second->losses);
  EXPECT_EQ(first->tensors, second->tensors);
}

TEST(Gpus, HalfPrecisionStaysNearSinglePrecision) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_GPUS(2);
  for (const char* family : {"llama", "mixtral"}) {
    const TinyOptions options = SmallModel(family);
    const auto expected = Oracle(MakeTinyJob(options), options);
    ASSERT_TRUE(expected.has_value()) << expected.error();
    ir::JobRequest job = WithLayout(MakeTinyJob(options), {2, 1, 1, 2});
    job.train.compute_dtype = ir::DType::kBF16;
    if (std::string(family) == "mixtral") job.parallel.expert = 2;
    const auto actual = RunOnGpus(job, 2, options);
    ASSERT_TRUE(actual.has_value()) << family << ": " << actual.error();
    for (size_t i = 0; i < expected->losses.size(); ++i) {
      EXPECT_NEAR(actual->losses[i] / expected->losses[i], 1, 0.02) << family;
    }
  }
}

// The graphs that cuDNN gets, in whole jobs: recorded, and with grouped heads.
TEST(Gpus, AttentionOfALibraryTrainsTheModelToo) {
  MW_NOT_FOR_THREADS();
  if (machine::OnMachineGpus()) GTEST_SKIP() << "all other tests use the library where it is";
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = SmallModel(family);
    options.gpt2_heads = 4;  // heads that a library takes
    options.llama_head_size = 8;
    const auto expected = Oracle(MakeTinyJob(options), options);
    ASSERT_TRUE(expected.has_value()) << expected.error();
    ir::JobRequest job = MakeTinyJob(options);
    job.train.compute_dtype = ir::DType::kBF16;
    EmulatedGpus gpus(1);
    gpus.toolkit.sdpa = &gpus.sdpa;
    SyntheticTokens tokens(static_cast<int>(options.vocabulary));
    const auto cluster = StartOn(gpus, job, 1, &tokens);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    const auto actual = RunOn(**cluster);
    ASSERT_TRUE(actual.has_value()) << actual.error();
    EXPECT_GT(gpus.sdpa.runs(), 0);
    for (size_t i = 0; i < expected->losses.size(); ++i) {
      EXPECT_NEAR(actual->losses[i] / expected->losses[i], 1, 0.02);
    }
  }
}

TEST(Gpus, ZeroAndRecomputationTrainTheModelOfOneCpu) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_GPUS(4);
  const TinyOptions options = SmallModel();
  ir::JobRequest job = MakeTinyJob(options);
  const auto expected = Oracle(job, options);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const int zero : {1, 3}) {
    job.parallel.zero = zero;
    job.parallel.recompute = "full";
    const LayoutCase layout{2, 1, 2, 2};
    const auto actual = RunOnGpus(WithLayout(job, layout), layout.devices(), options);
    ASSERT_TRUE(actual.has_value()) << actual.error();
    ExpectEqual(*expected, *actual, 1e-4, fmt::format("zero={}", zero));
  }
}

// Gradients are reduced in buckets beside the backward of the layers before them.
TEST(Gpus, KernelsRunWhileGradientsAreReduced) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_EMULATION();
  TinyOptions options = SmallModel();
  options.layers = 4;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), {2, 1, 1, 1});
  std::vector<int64_t> overlaps;
  for (const int64_t bucket_bytes : {int64_t{1} << 12, int64_t{1} << 30}) {
    job.parallel.bucket_bytes = bucket_bytes;
    EmulatedGpus gpus(2);
    SyntheticTokens tokens(static_cast<int>(options.vocabulary));
    const auto cluster = StartOn(gpus, job, 2, &tokens);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    ASSERT_TRUE((*cluster)->Train(0, 3).has_value());
    overlaps.push_back(gpus.driver.overlaps());
  }
  EXPECT_GT(overlaps[0], 10);
  EXPECT_LT(overlaps[1], overlaps[0] / 4);
}

TEST(Gpus, InTurnNothingRunsBesideCollectives) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_EMULATION();
  const TinyOptions options = SmallModel();
  ir::JobRequest job = WithLayout(MakeTinyJob(options), {2, 1, 1, 1});
  job.parallel.bucket_bytes = 1 << 12;
  std::vector<RunResult> results;
  std::vector<int64_t> overlaps;
  for (const bool overlap : {true, false}) {
    job.parallel.overlap = overlap;
    EmulatedGpus gpus(2);
    SyntheticTokens tokens(static_cast<int>(options.vocabulary));
    const auto cluster = StartOn(gpus, job, 2, &tokens);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    auto result = RunOn(**cluster);
    ASSERT_TRUE(result.has_value()) << result.error();
    results.push_back(*std::move(result));
    overlaps.push_back(gpus.driver.overlaps());
  }
  // Rows of the next step may be copied to a device beside the last collective of this one.
  EXPECT_GT(overlaps[0], 4);
  EXPECT_LT(4 * overlaps[1], overlaps[0]) << overlaps[0];
  EXPECT_EQ(results[0].losses, results[1].losses);
  EXPECT_EQ(results[0].tensors, results[1].tensors);
}

// One graph holds a whole step of a GPU alone. It is made at load, as are those of the other
// programs: kernels that are loaded later wait for devices that may wait for this one.
TEST(Gpus, AStepIsOneRecording) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_EMULATION();
  EmulatedGpus gpus(1);
  const TinyOptions options = SmallModel();
  SyntheticTokens tokens(static_cast<int>(options.vocabulary));
  const auto cluster = StartOn(gpus, MakeTinyJob(options), 1, &tokens);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const int64_t captures = gpus.driver.calls("StartCapture");
  const int64_t replays = gpus.driver.calls("LaunchGraph");
  EXPECT_GT(captures, 2);
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  EXPECT_EQ(gpus.driver.calls("LaunchGraph"), replays + 1);
  ASSERT_TRUE((*cluster)->Train(1, 4).has_value());
  EXPECT_EQ(gpus.driver.calls("LaunchGraph"), replays + 5);
  ASSERT_TRUE((*cluster)->Validate(1).has_value());
  EXPECT_EQ(gpus.driver.calls("StartCapture"), captures);
}

// Whatever a step is made of, a driver has room for what it is given.
TEST(Gpus, TheHostDoesNotRunAheadWithoutBounds) {
  MW_NOT_FOR_THREADS();
  MW_NEEDS_EMULATION();
  TinyOptions options = SmallModel();
  const ir::JobRequest job = WithLayout(MakeTinyJob(options), {2, 1, 2, 4});
  for (const bool record : {true, false}) {
    EmulatedGpus gpus(4);
    SyntheticTokens tokens(static_cast<int>(options.vocabulary));
    const auto cluster = StartOn(gpus, job, 4, &tokens, record);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    ASSERT_TRUE((*cluster)->Train(0, 2).has_value());
    EXPECT_LE(gpus.driver.most_outstanding(), 256) << record;
  }
}

// One of two pipeline stages gives up while it reads its rows; the other has given its device work.
TEST(Gpus, AnAbortInAStepFreesNothingThatIsInUse) {
  MW_NEEDS_EMULATION();
  class Aborter final : public SyntheticTokens {
   public:
    using SyntheticTokens::SyntheticTokens;
    Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override {
      if (sample == 9 && !aborts.exchange(true)) {
        const Deadline deadline = Deadline::After(20'000);
        while (transfers() == before && !deadline.expired()) std::this_thread::yield();
        runtime->Abort(Aborted("by the user"));
      }
      return SyntheticTokens::ReadSample(source, sample, row);
    }
    int transfers() const { return nccl->count("Recv") + nccl->count("Send"); }
    worker::JobRuntime* runtime = nullptr;
    emulated::EmulatedNccl* nccl = nullptr;
    int before = 0;
    std::atomic<bool> aborts{false};
  };
  const TinyOptions options = SmallModel();
  for (const uint64_t seed : {1, 2, 3}) {
    if (kThreadSanitizedBuild && seed > 1) continue;
    EmulatedGpus gpus(2, seed);
    Aborter tokens(static_cast<int>(options.vocabulary));
    auto cluster = StartOn(gpus, WithLayout(MakeTinyJob(options), {1, 1, 2, 4}), 2, &tokens);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
    tokens.runtime = &(*cluster)->runtime();
    tokens.nccl = &gpus.nccl;
    tokens.before = tokens.transfers();
    EXPECT_EQ((*cluster)->Train(1, 2).error(), Aborted("by the user"));
    cluster->reset();
    EXPECT_THAT(gpus.driver.misuse(), ::testing::IsEmpty());
    EXPECT_THAT(gpus.network.misuse(), ::testing::IsEmpty());
    for (const char* kind : {"allocation", "host", "stream", "event", "graph"}) {
      EXPECT_EQ(gpus.driver.alive(kind), 0) << kind;
    }
  }
}

// Each node has its time, and what is computed is the same.
TEST(Gpus, NodesAreTimedOneByOne) {
  MW_NOT_FOR_THREADS();
  struct Times : ops::NodeObserver {
    void OnNode(const ir::Graph&, NodeId, double seconds) override {
      ++nodes;
      least = std::min(least, seconds);
    }
    int nodes = 0;
    double least = 1;
  } times;
  const TinyOptions options = SmallModel();
  const ir::JobRequest job = MakeTinyJob(options);
  SyntheticTokens tokens(static_cast<int>(options.vocabulary));
  std::vector<double> losses;
  for (ops::NodeObserver* observer : std::vector<ops::NodeObserver*>{nullptr, &times}) {
    EmulatedGpus gpus(1);
    auto plan = planner::MakePlan(job, mesh::Topology::Local(1));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const auto cluster = VirtualCluster::StartPlan(std::move(*plan), job.train.seed, &tokens,
                                                   ops::Backend::kCpu, gpus.Options(), observer);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    const auto reports = (*cluster)->Train(0, 2);
    ASSERT_TRUE(reports.has_value()) << reports.error();
    losses.push_back(reports->back().values.at("loss"));
  }
  EXPECT_GT(times.nodes, 50);
  EXPECT_GT(times.least, 0);
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Gpus, ABadTokenIsNamedAsOnACpu) {
  class BadTokens final : public SyntheticTokens {
   public:
    using SyntheticTokens::SyntheticTokens;
    Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override {
      MW_TRY(SyntheticTokens::ReadSample(source, sample, row));
      if (sample == 3) row[0] = 1000;
      return OkStatus();
    }
  };
  EmulatedGpus gpus(1);
  const TinyOptions options = SmallModel();
  BadTokens tokens(static_cast<int>(options.vocabulary));
  const auto cluster = StartOn(gpus, MakeTinyJob(options), 1, &tokens);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto failed = (*cluster)->Train(0, 1);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(failed.error().message(),
              HasSubstr("rank 0, program 'step', step 0: embedding: id 1000 at position"));
}

TEST(Gpus, AJobThatNeedsNcclSaysWhyThereIsNone) {
  MW_NEEDS_GPUS(2);
  EmulatedGpus gpus(2);
  const TinyOptions options = SmallModel();
  SyntheticTokens tokens(static_cast<int>(options.vocabulary));
  auto plan =
      planner::MakePlan(WithLayout(MakeTinyJob(options), {2, 1, 1, 1}), mesh::Topology::Local(2));
  ASSERT_TRUE(plan.has_value());
  worker::GpuOptions without = gpus.Options();
  without.nccl = nullptr;
  without.no_nccl = "libnccl.so.2: not found";
  const auto cluster =
      VirtualCluster::StartPlan(std::move(*plan), 1, &tokens, ops::Backend::kCpu, without);
  ASSERT_FALSE(cluster.has_value());
  EXPECT_EQ(cluster.error().message(),
            "2 GPUs need NCCL to talk to one another: libnccl.so.2: not found");
}

// The first sticky error is the cause, with rank, step, instruction and CUDA's name.
TEST(Gpus, ALostDeviceEndsTheJobWithItsCause) {
  MW_NEEDS_EMULATION();
  EmulatedGpus gpus(1);
  const TinyOptions options = SmallModel();
  SyntheticTokens tokens(static_cast<int>(options.vocabulary));
  const auto cluster = StartOn(gpus, MakeTinyJob(options), 1, &tokens);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  gpus.driver.SpoilDevice(0, device::cuda::kIllegalAddress);
  const auto lost = (*cluster)->Train(1, 1);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().blame(), Blame::kHardware);
  EXPECT_THAT(lost.error().message(), HasSubstr("rank 0, program 'step', step 1, instruction 0"));
  EXPECT_THAT(lost.error().message(), HasSubstr("cuda:0 (rank 0)"));
  EXPECT_THAT(lost.error().message(), HasSubstr("cudaErrorIllegalAddress"));
  const auto again = (*cluster)->Train(2, 1);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().message(), lost.error().message());
}

TEST(Gpus, OutOfMemoryIsAnErrorOfTheLoad) {
  MW_NEEDS_EMULATION();
  EmulatedGpus gpus(1);
  gpus.driver.Fail("Allocate", device::cuda::kOutOfMemory);
  const TinyOptions options = SmallModel();
  SyntheticTokens tokens(static_cast<int>(options.vocabulary));
  const auto cluster = StartOn(gpus, MakeTinyJob(options), 1, &tokens);
  ASSERT_FALSE(cluster.has_value());
  EXPECT_EQ(cluster.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(cluster.error().message(), HasSubstr("rank 0"));
}

}  // namespace
}  // namespace meshwright::testing
