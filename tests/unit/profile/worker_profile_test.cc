#include "profile/worker_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/file_lock.h"

namespace meshwright::profile {
namespace {

using ir::DType;
using ir::Op;
using mesh::KernelClass;
using ::testing::HasSubstr;

// A machine with 10 us of start, 1 GFLOP/s (twice that in bf16) and 2 GB/s.
std::vector<worker::KernelTiming> Timings() {
  const auto timing = [](Op op, DType dtype, double flops, double bytes) {
    const double rate = dtype == DType::kBF16 ? 2e9 : 1e9;
    return worker::KernelTiming{
        op, dtype, {flops, bytes}, 1e-5 + std::max(flops / rate, bytes / 2e9)};
  };
  std::vector<worker::KernelTiming> timings = {{Op::kAdd, DType::kF32, {4, 48}, 1e-5},
                                               timing(Op::kAdd, DType::kF32, 1e6, 4e9),
                                               timing(Op::kGelu, DType::kF32, 1e6, 1e4)};
  for (const Op op : {Op::kEinsum, Op::kAttention, Op::kHeadLoss}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      timings.push_back(timing(op, dtype, 1e4, 100));
      timings.push_back(timing(op, dtype, 1e8, 100));
    }
  }
  timings.push_back(timing(Op::kAdamW, DType::kF32, 1e6, 1e9));
  timings.push_back(timing(Op::kEmbedding, DType::kF32, 0, 1e9));
  return timings;
}

struct Measured {
  TempDir dir = *TempDir::Make("mw-profile");
  int calls = 0;
  double host_bytes_per_s = 3e9;
  ProfileRequest request;

  Measured() {
    request.cache_dir = dir.File("profiles");
    request.machine = "a machine";
    request.measure = [this](int) -> Result<worker::MachineTimings> {
      ++calls;
      return worker::MachineTimings{Timings(), host_bytes_per_s, 0.75};
    };
  }
};

TEST(MakeMeasuredProfile, FindsTheNumbersOfTheMachine) {
  const auto profile = MakeMeasuredProfile("m", Timings());
  ASSERT_TRUE(profile.has_value()) << profile.error();
  EXPECT_DOUBLE_EQ(profile->launch_s, 1e-5);
  EXPECT_NEAR(profile->PeakOf(DType::kF32), 1e9, 1);
  EXPECT_NEAR(profile->PeakOf(DType::kBF16), 2e9, 1);
  EXPECT_NEAR(profile->RateOf(KernelClass::kAttention, DType::kBF16, 1e6), 2e9, 1);
  EXPECT_NEAR(profile->Rates(KernelClass::kElementwise).bytes_per_s, 2e9, 1);
  EXPECT_NEAR(profile->RateOf(KernelClass::kElementwise, DType::kF32, 10), 1e9, 1);
  EXPECT_NEAR(profile->Rates(KernelClass::kGather).bytes_per_s, 2e9, 1);
  const auto none = MakeMeasuredProfile("m", {Timings()[0]});
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message(), HasSubstr("no timing of"));
}

TEST(MakeMeasuredProfile, ShapesOfAsManyFlopsAreOnePoint) {
  std::vector<worker::KernelTiming> timings = Timings();
  const auto add = [&](double seconds) {
    timings.push_back({Op::kEinsum, DType::kF64, {1e6, 1e3}, 1e-5 + seconds});
  };
  add(1e-3);
  add(3e-3);
  const auto profile = MakeMeasuredProfile("m", timings);
  ASSERT_TRUE(profile.has_value()) << profile.error();
  EXPECT_NEAR(profile->RateOf(KernelClass::kProduct, DType::kF64, 1e6), 2e6 / 4e-3, 1);
  EXPECT_NEAR(profile->PeakOf(DType::kF64), 1e9, 1) << "the best of them";
}

TEST(WorkerProfileText, MeasuresOncePerMachineAndThreads) {
  Measured measured;
  measured.request.memory_bytes = 1 << 30;
  const auto first = WorkerProfileText(measured.request);
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_EQ(mesh::ParseDeviceProfile(*first)->memory_bytes, 1 << 30);
  EXPECT_EQ(*WorkerProfileText(measured.request), *first);
  EXPECT_EQ(measured.calls, 1);
  measured.request.threads = 2;
  EXPECT_TRUE(WorkerProfileText(measured.request).has_value());
  measured.request.machine = "another";
  EXPECT_TRUE(WorkerProfileText(measured.request).has_value());
  EXPECT_EQ(measured.calls, 3);
  measured.request.mode = "measure";
  EXPECT_TRUE(WorkerProfileText(measured.request).has_value());
  EXPECT_EQ(measured.calls, 4);
}

TEST(WorkerProfileText, OneMeasuresAtATimeWhateverTheCaches) {
  Measured measured;
  measured.request.lock_path = measured.dir.File("measuring.lock");
  const auto measure = measured.request.measure;
  StatusCode of_another = StatusCode::kOk;
  measured.request.measure = [&](int threads) {
    const auto another = LockFile(measured.request.lock_path, 0);
    of_another = another ? StatusCode::kOk : another.error().code();
    return measure(threads);
  };
  ASSERT_TRUE(WorkerProfileText(measured.request).has_value());
  EXPECT_EQ(of_another, StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(LockFile(measured.request.lock_path, 0).has_value()) << "given back";
}

TEST(WorkerProfileText, ALockThatIsNotHadInTimeCostsNoWorker) {
  Measured measured;
  measured.request.lock_path = measured.dir.File("measuring.lock");
  measured.request.lock_timeout_ms = 1;
  const auto another = LockFile(measured.request.lock_path, 0);
  ASSERT_TRUE(another.has_value()) << another.error();
  EXPECT_TRUE(WorkerProfileText(measured.request).has_value());
  EXPECT_EQ(measured.calls, 1);
}

TEST(WorkerProfileText, LinksAreMeasuredAndKept) {
  Measured measured;
  int calls = 0;
  measured.request.measure_links = [&]() -> Result<worker::LinkTimings> {
    ++calls;
    return worker::LinkTimings{{1e-6, 2e-11}, {3e-6, 4e-11}};
  };
  const mesh::MeasuredLinks links = {
      mesh::LinkCost{1e-6, 2e-11}, mesh::LinkCost{3e-6, 4e-11}, {}, {}};
  for (int i = 0; i < 2; ++i) {
    const auto text = WorkerProfileText(measured.request);
    ASSERT_TRUE(text.has_value()) << text.error();
    EXPECT_EQ(mesh::ParseDeviceProfile(*text)->links, links);
  }
  EXPECT_EQ(calls, 1) << "the second is from the cache";
  measured.request.transport = "tcp";
  EXPECT_TRUE(WorkerProfileText(measured.request).has_value());
  EXPECT_EQ(calls, 2) << "other transports have other links";
  measured.request.mode = "off";
  EXPECT_EQ(*WorkerProfileText(measured.request), "");
  EXPECT_EQ(calls, 2);
}

TEST(WorkerProfileText, TheRatesOfTheHostAreKeptToo) {
  Measured measured;
  const auto host_bytes_per_s = [&] {
    return mesh::ParseDeviceProfile(*WorkerProfileText(measured.request))->host_bytes_per_s;
  };
  EXPECT_EQ(host_bytes_per_s(), 3e9);
  EXPECT_EQ(mesh::ParseDeviceProfile(*WorkerProfileText(measured.request))->host_compute_share,
            0.75);
  measured.request.mode = "measure";
  measured.host_bytes_per_s = 1e9;
  EXPECT_NEAR(host_bytes_per_s(), 2e9, 1) << "what one core streams";
  measured.host_bytes_per_s = 0;
  EXPECT_EQ(host_bytes_per_s(), 0) << "not measured";
}

TEST(WorkerProfileText, LinksThatCannotBeMeasuredCostTheLinksOnly) {
  Measured measured;
  measured.request.measure_links = []() -> Result<worker::LinkTimings> {
    return Fail(DeadlineExceeded("nobody came"));
  };
  const auto text = WorkerProfileText(measured.request);
  ASSERT_TRUE(text.has_value()) << text.error();
  EXPECT_EQ(mesh::ParseDeviceProfile(*text)->links, mesh::MeasuredLinks{});
}

TEST(WorkerProfileText, AShareOfTheCoresCountsNowAndIsNotKept) {
  Measured measured;
  measured.request.measure_share = [](int) { return 0.5; };
  measured.request.mode = "measure";
  const auto now = mesh::ParseDeviceProfile(*WorkerProfileText(measured.request));
  measured.request.mode = "cached";
  const auto kept = mesh::ParseDeviceProfile(*WorkerProfileText(measured.request));
  ASSERT_TRUE(now.has_value() && kept.has_value());
  EXPECT_EQ(measured.calls, 1);
  EXPECT_THAT(now->name, HasSubstr("50 % of its cores"));
  for (const KernelClass kernel : {KernelClass::kProduct, KernelClass::kElementwise}) {
    const ir::OpCost cost{1e6, 1e5};
    EXPECT_NEAR(now->Seconds(kernel, DType::kF32, cost),
                2 * kept->Seconds(kernel, DType::kF32, cost), 1e-12);
  }
  EXPECT_EQ(now->PeakOf(DType::kF32), kept->PeakOf(DType::kF32)) << "the measure of utilisation";
}

TEST(WorkerProfileText, ABadCacheCostsAMeasurementOnly) {
  Measured measured;
  ASSERT_TRUE(WriteFileAtomic(measured.dir.File("profiles"), "no folder").ok());
  EXPECT_TRUE(WorkerProfileText(measured.request).has_value());
  EXPECT_TRUE(WorkerProfileText(measured.request).has_value());
  EXPECT_EQ(measured.calls, 2);
}

TEST(WorkerProfileText, TakesAFileOrNothing) {
  Measured measured;
  measured.request.mode = "off";
  EXPECT_EQ(*WorkerProfileText(measured.request), "");
  measured.request.mode = measured.dir.File("own.profile");
  ASSERT_TRUE(WriteFileAtomic(measured.request.mode, "launch_s x\n").ok());
  const auto bad = WorkerProfileText(measured.request);
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().message(), HasSubstr("own.profile: line 1: launch_s is 'x'"));
  const std::string text = mesh::FormatDeviceProfile(*mesh::DefaultDeviceProfile());
  ASSERT_TRUE(WriteFileAtomic(measured.request.mode, text).ok());
  EXPECT_EQ(*WorkerProfileText(measured.request), text);
  EXPECT_EQ(measured.calls, 0);
}

TEST(GpuProfileText, IsThePublishedOneWithTheMemoryAndLinksOfTheGpu) {
  const auto text = GpuProfileText("cached", "NVIDIA H200", 120'000'000'000);
  ASSERT_TRUE(text.has_value()) << text.error();
  const auto profile = mesh::ParseDeviceProfile(*text);
  ASSERT_TRUE(profile.has_value()) << profile.error();
  EXPECT_EQ(profile->name, "h200-141g");
  EXPECT_EQ(profile->memory_bytes, 120'000'000'000);
  EXPECT_EQ(profile->reserve_bytes, 0) << "what a worker registers is usable";
  EXPECT_EQ(profile->links, mesh::LinksOfGpu("NVIDIA H200", *profile));
  EXPECT_TRUE(profile->links.process.has_value());
  EXPECT_EQ(profile->kind, mesh::DeviceKind::kGpu);
  EXPECT_EQ(*GpuProfileText("cached", "NVIDIA GeForce RTX 4090", 24'000'000'000), "");
  EXPECT_EQ(*GpuProfileText("off", "NVIDIA H200", 1), "");
  EXPECT_FALSE(GpuProfileText("/no/such/file", "NVIDIA H200", 1).has_value());
}

// Whatever a file is of and is called: a worker knows what its devices are.
TEST(ProfileTexts, OfAFileAreOfTheWorkersKind) {
  Measured measured;
  mesh::DeviceProfile own = *mesh::DefaultDeviceProfile();
  own.name = "ours";
  const std::string path = measured.dir.File("own.profile");
  ASSERT_TRUE(WriteFileAtomic(path, mesh::FormatDeviceProfile(own)).ok());
  const auto of_gpu = GpuProfileText(path, "NVIDIA GeForce RTX 4090", 24'000'000'000);
  ASSERT_TRUE(of_gpu.has_value()) << of_gpu.error();
  EXPECT_EQ(mesh::ParseDeviceProfile(*of_gpu)->kind, mesh::DeviceKind::kGpu);
  const mesh::DeviceProfile& a100 = *mesh::KnownDeviceProfiles().at("a100-80g");
  ASSERT_TRUE(WriteFileAtomic(path, mesh::FormatDeviceProfile(a100)).ok());
  measured.request.mode = path;
  const auto of_cpu = WorkerProfileText(measured.request);
  ASSERT_TRUE(of_cpu.has_value()) << of_cpu.error();
  EXPECT_EQ(mesh::ParseDeviceProfile(*of_cpu)->kind, mesh::DeviceKind::kCpu);
}

}  // namespace
}  // namespace meshwright::profile
