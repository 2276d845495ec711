#include "worker/gpu_claims.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace meshwright::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<device::cuda::Gpu> Gpus(int count) {
  std::vector<device::cuda::Gpu> gpus;
  for (int i = 0; i < count; ++i) {
    device::cuda::Gpu gpu{i, {}, 80};
    fmt::format_to_n(gpu.description.uuid, sizeof(gpu.description.uuid) - 1, "id-{}", i);
    fmt::format_to_n(gpu.description.name, sizeof(gpu.description.name) - 1, "Some GPU");
    gpu.description.major = 9;
    gpus.push_back(gpu);
  }
  return gpus;
}

std::string RealmOfGpus(const char* name) { return fmt::format("test-{}-{}", name, ::getpid()); }

TEST(GpuClaims, WorkersGetDifferentGpusAndGiveThemBack) {
  const auto all = Gpus(4);
  const std::string realm = RealmOfGpus("share");
  const auto first = GpuClaims::Take(all, 3, {}, realm);
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_THAT(first->indices(), ElementsAre(0, 1, 2));
  EXPECT_THAT(GpuClaims::Take(all, 2, {}, realm).error().message(),
              HasSubstr("1 of the 4 GPUs of this machine are free"));
  {
    const auto rest = GpuClaims::Take(all, 0, {}, realm);
    ASSERT_TRUE(rest.has_value()) << rest.error();
    EXPECT_THAT(rest->indices(), ElementsAre(3));
    EXPECT_EQ(GpuClaims::Take(all, 0, {}, realm).error().code(), StatusCode::kUnavailable);
  }
  EXPECT_TRUE(GpuClaims::Take(all, 1, {}, realm).has_value());
}

TEST(GpuClaims, NamedOnesAreTakenOrRefused) {
  const auto all = Gpus(4);
  const std::string realm = RealmOfGpus("named");
  const auto first = GpuClaims::Take(all, 0, {2, 1}, realm);
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_THAT(first->indices(), ElementsAre(2, 1));
  const auto second = GpuClaims::Take(all, 0, {0, 1}, realm);
  EXPECT_EQ(second.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.error().message(), HasSubstr("GPU 1 is another worker's"));
  EXPECT_TRUE(GpuClaims::Take(all, 0, {0}, realm).has_value()) << "refused calls keep nothing";
  EXPECT_THAT(GpuClaims::Take(all, 0, {4}, realm).error().message(), HasSubstr("0 to 3"));
  EXPECT_EQ(GpuClaims::Take(all, 5, {}, realm).error().code(), StatusCode::kInvalidArgument);
}

TEST(GpuArchitecture, AnOldGpuIsRefusedWithWhatToDo) {
  device::cuda::Gpu gpu = Gpus(1)[0];
  EXPECT_TRUE(device::cuda::CheckArchitecture(gpu).ok());
  gpu.description.major = 7;
  gpu.description.minor = 5;
  const Status status = device::cuda::CheckArchitecture(gpu);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(),
              HasSubstr("GPU 0 (Some GPU) is sm_75, this build has code for sm_80"));
  EXPECT_THAT(status.message(), HasSubstr("-DMESHWRIGHT_CUDA_ARCHITECTURES=75"));
  gpu.oldest = 0;  // not known
  EXPECT_TRUE(device::cuda::CheckArchitecture(gpu).ok());
}

}  // namespace
}  // namespace meshwright::worker
