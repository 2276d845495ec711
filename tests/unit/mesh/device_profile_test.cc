#include "mesh/device_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::mesh {
namespace {

using ir::DType;
using ::testing::HasSubstr;

DeviceProfile Small() {
  DeviceProfile profile;
  profile.name = "small";
  profile.source = "made up";
  profile.launch_s = 1;
  profile.peak_flops_per_s[static_cast<size_t>(DType::kF32)] = 100;
  for (KernelRates& rates : profile.kernels) {
    rates.bytes_per_s = 10;
    rates.curves[static_cast<size_t>(DType::kF32)] = {{100, 10}, {10000, 50}};
  }
  return profile;
}

std::string ProfileError(const std::string& text) {
  const auto profile = ParseDeviceProfile(text);
  return profile ? "" : profile.error().message();
}

TEST(DeviceProfile, RatesAreStraightOnTheLogarithmOfTheFlops) {
  const DeviceProfile profile = Small();
  EXPECT_DOUBLE_EQ(profile.RateOf(KernelClass::kProduct, DType::kF32, 100), 10);
  EXPECT_DOUBLE_EQ(profile.RateOf(KernelClass::kProduct, DType::kF32, 1000), 30);
  EXPECT_DOUBLE_EQ(profile.RateOf(KernelClass::kProduct, DType::kF32, 10000), 50);
  EXPECT_DOUBLE_EQ(profile.RateOf(KernelClass::kProduct, DType::kF32, 1e9), 50);
  EXPECT_DOUBLE_EQ(profile.RateOf(KernelClass::kProduct, DType::kBF16, 1000), 30) << "as f32";
}

TEST(DeviceProfile, ACallBelowTheFirstPointTakesAsLongAsIt) {
  const DeviceProfile profile = Small();
  EXPECT_DOUBLE_EQ(profile.Seconds(KernelClass::kProduct, DType::kF32, {100, 0}), 1 + 10);
  EXPECT_DOUBLE_EQ(profile.Seconds(KernelClass::kProduct, DType::kF32, {25, 0}), 1 + 10);
}

TEST(DeviceProfile, SecondsAreTheLongerOfComputingAndMoving) {
  const DeviceProfile profile = Small();
  EXPECT_DOUBLE_EQ(profile.Seconds(KernelClass::kElementwise, DType::kF32, {1000, 100}),
                   1 + 1000. / 30);
  EXPECT_DOUBLE_EQ(profile.Seconds(KernelClass::kElementwise, DType::kF32, {1000, 5000}), 1 + 500);
  EXPECT_DOUBLE_EQ(profile.Seconds(KernelClass::kElementwise, DType::kF32, {0, 0}), 1);
}

TEST(DeviceProfile, ReadsWhatItWrites) {
  for (const auto& [name, profile] : KnownDeviceProfiles()) {
    const auto parsed = ParseDeviceProfile(FormatDeviceProfile(*profile));
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
    EXPECT_EQ(*parsed, *profile) << name;
  }
  DeviceProfile measured = Small();
  measured.links.process = {0, 2.1e-11};
  const auto process_only = ParseDeviceProfile(FormatDeviceProfile(measured));
  ASSERT_TRUE(process_only.has_value()) << process_only.error();
  EXPECT_EQ(*process_only, measured);
  measured.links.host = {4.469229662745099e-05, 7.667411343443629e-10};
  measured.host_bytes_per_s = 3.1e10;
  measured.host_compute_share = 0.87;
  EXPECT_EQ(*ParseDeviceProfile(FormatDeviceProfile(measured)), measured);
}

// Who never said it is what the name says; a GPU may have any name.
TEST(DeviceProfile, SaysWhatKindOfDeviceItIs) {
  for (const auto& [name, profile] : KnownDeviceProfiles()) {
    EXPECT_EQ(profile->kind, name == "cpu" ? DeviceKind::kCpu : DeviceKind::kGpu) << name;
    EXPECT_EQ(FormatDeviceProfile(*profile).find("kind"), std::string::npos) << name;
    DeviceProfile renamed = *profile;
    renamed.name = "ours";
    const std::string text = FormatDeviceProfile(renamed);
    EXPECT_EQ(text.find("kind gpu\n") != std::string::npos, name != "cpu") << name;
    EXPECT_EQ(*ParseDeviceProfile(text), renamed) << name;
  }
  DeviceProfile imitated = *KnownDeviceProfiles().at("a100-80g");
  imitated.kind = DeviceKind::kCpu;
  const std::string text = FormatDeviceProfile(imitated);
  EXPECT_THAT(text, HasSubstr("kind cpu\n"));
  EXPECT_EQ(*ParseDeviceProfile(text), imitated);
  EXPECT_EQ(ParseDeviceProfile(FormatDeviceProfile(Small()))->kind, DeviceKind::kCpu);
  EXPECT_THAT(ProfileError("kind tpu\n"),
              HasSubstr("line 1: kind is 'tpu'; it must be cpu or gpu"));
}

TEST(DeviceProfile, GpusReachTheHostsMemoryOverPciExpress) {
  for (const auto& [name, profile] : KnownDeviceProfiles()) {
    const bool gpu = profile->kind == DeviceKind::kGpu;
    ASSERT_EQ(profile->links.memory.has_value(), gpu) << name;
    if (gpu) {
      EXPECT_DOUBLE_EQ(1 / profile->links.memory->seconds_per_byte, 0.75 * 32e9) << name;
    }
    EXPECT_FALSE(profile->links.process || profile->links.host) << name;
  }
}

TEST(DeviceProfile, LinksAreChecked) {
  const std::string text = FormatDeviceProfile(Small());
  EXPECT_THAT(ProfileError(text + "link network 1 1\n"),
              HasSubstr("unknown link 'network'; known: process, host"));
  EXPECT_THAT(ProfileError(text + "link host 1e-6 0\n"), HasSubstr("0 s per byte"));
  EXPECT_THAT(ProfileError(text + "link host -1 1\n"), HasSubstr("-1 s per message"));
  EXPECT_THAT(ProfileError(text + "link host 1 1\nlink host 1 1\n"),
              HasSubstr("link host was given before"));
  EXPECT_THAT(ProfileError(text + "link host 1\n"), HasSubstr("seconds per byte is ''"));
  EXPECT_THAT(ProfileError(text + "host_bytes_per_s -1\n"), HasSubstr("host_bytes_per_s is -1"));
  EXPECT_THAT(ProfileError(text + "host_compute_share 1.5\n"),
              HasSubstr("host_compute_share is 1.5"));
}

TEST(DeviceProfile, ErrorsNameLineAndNumber) {
  const std::string text = FormatDeviceProfile(Small());
  EXPECT_THAT(ProfileError("profile \"x\"\n\nlaunch_s fast\n"),
              HasSubstr("line 3: launch_s is 'fast', not a number"));
  EXPECT_THAT(ProfileError("rate prodct f32 1:1"),
              HasSubstr("line 1: unknown kernel class 'prodct' (did you mean 'product'?)"));
  EXPECT_THAT(ProfileError("rate product f32 1,1"), HasSubstr("'1,1' is no point"));
  EXPECT_THAT(ProfileError("rate product f33 1:1"), HasSubstr("line 1: "));
  EXPECT_THAT(ProfileError("rate product f32 1:1 # a comment\nrate product f32 2:2"),
              HasSubstr("line 2: this curve was given before"));
  EXPECT_THAT(ProfileError("profile x"), HasSubstr("wants a text in double quotes"));
  EXPECT_THAT(ProfileError("launchs 1"), HasSubstr("did you mean 'launch_s'?"));
  EXPECT_THAT(ProfileError("launch_s 1 2"), HasSubstr("'2' after its end"));
  EXPECT_THAT(ProfileError(text + "peak bf16 -3\n"), HasSubstr("the peak of bf16 is -3"));
  EXPECT_THAT(ProfileError(text + "rate head bf16 5:1 4:1\n"),
              HasSubstr("head: rate of bf16: point 2 has 4 FLOPs after 5; they must ascend"));
  EXPECT_THAT(ProfileError("profile \"x\"\npeak f32 1\n"),
              HasSubstr("product: bytes_per_s is 0; it must be above 0"));
}

TEST(KnownDeviceProfiles, AreSoundAndOrdered) {
  const auto& known = KnownDeviceProfiles();
  for (const auto& [name, profile] : known) {
    EXPECT_TRUE(CheckDeviceProfile(*profile).ok()) << CheckDeviceProfile(*profile).message();
    EXPECT_EQ(profile->name, name);
    EXPECT_FALSE(profile->source.empty());
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      for (const KernelClass kernel :
           {KernelClass::kProduct, KernelClass::kAttention, KernelClass::kHead}) {
        EXPECT_LE(profile->RateOf(kernel, dtype, 1e14), profile->PeakOf(dtype)) << name;
      }
    }
  }
  const ir::OpCost work = {2. * 8192 * 8192 * 8192, 3. * 2 * 8192 * 8192};
  double last_s = 1e9;
  for (const char* name : {"cpu", "v100-32g", "a100-40g", "h100-80g"}) {
    const double seconds = known.at(name)->Seconds(KernelClass::kProduct, DType::kF16, work);
    EXPECT_LT(seconds, last_s) << name;
    last_s = seconds;
  }
  // V100 has no bf16: it computes in f32.
  const DeviceProfile& v100 = *known.at("v100-32g");
  EXPECT_EQ(v100.PeakOf(DType::kBF16), v100.PeakOf(DType::kF32));
  EXPECT_NEAR(known.at("a100-80g")->RateOf(KernelClass::kProduct, DType::kBF16, 137438953472.),
              219.7e12, 1e9);
}

TEST(KernelClassOf, SaysWhichRoofAnOpHas) {
  EXPECT_EQ(KernelClassOf(ir::Op::kEinsum), KernelClass::kProduct);
  EXPECT_EQ(KernelClassOf(ir::Op::kGroupedMatmulGrad), KernelClass::kProduct);
  EXPECT_EQ(KernelClassOf(ir::Op::kDispatch), KernelClass::kGather);
  EXPECT_EQ(KernelClassOf(ir::Op::kAttentionQkvGrad), KernelClass::kAttention);
  EXPECT_EQ(KernelClassOf(ir::Op::kHeadLoss), KernelClass::kHead);
  EXPECT_EQ(KernelClassOf(ir::Op::kEmbedding), KernelClass::kGather);
  EXPECT_EQ(KernelClassOf(ir::Op::kAdamW), KernelClass::kOptimizer);
  EXPECT_EQ(KernelClassOf(ir::Op::kLayerNorm), KernelClass::kElementwise);
}

TEST(DeviceProfile, AGpuIsFoundByItsNameAndTheNearestMemory) {
  constexpr int64_t kGb = 1'000'000'000;
  const auto& known = KnownDeviceProfiles();
  EXPECT_EQ(ProfileOfGpu("NVIDIA A100-SXM4-80GB", 80 * kGb), known.at("a100-80g"));
  EXPECT_EQ(ProfileOfGpu("NVIDIA A100-PCIE-40GB", 39 * kGb), known.at("a100-40g"));
  EXPECT_EQ(ProfileOfGpu("NVIDIA H200", 140 * kGb), known.at("h200-141g"));
  EXPECT_EQ(ProfileOfGpu("NVIDIA H800", 80 * kGb), known.at("h800-80g"));
  EXPECT_EQ(ProfileOfGpu("NVIDIA GeForce RTX 4090", 24 * kGb), nullptr);
}

TEST(DeviceProfile, GpusOfAHostAreConnectedByWhatTheirModulesHave) {
  const DeviceProfile& h200 = *KnownDeviceProfiles().at("h200-141g");
  const DeviceProfile& a100 = *KnownDeviceProfiles().at("a100-40g");
  const auto rate = [](const MeasuredLinks& links) { return 1 / links.process->seconds_per_byte; };
  EXPECT_DOUBLE_EQ(rate(LinksOfGpu("NVIDIA H200", h200)), 0.75 * 450e9);
  EXPECT_DOUBLE_EQ(rate(LinksOfGpu("NVIDIA H800", *KnownDeviceProfiles().at("h800-80g"))),
                   0.75 * 200e9);
  EXPECT_DOUBLE_EQ(rate(LinksOfGpu("NVIDIA A100-SXM4-40GB", a100)), 0.75 * 300e9);
  EXPECT_DOUBLE_EQ(rate(LinksOfGpu("NVIDIA A100-PCIE-40GB", a100)), 0.75 * 32e9);
  EXPECT_EQ(LinksOfGpu("NVIDIA H200", h200).host, LinksOfGpu("NVIDIA H200", h200).process);
}

}  // namespace
}  // namespace meshwright::mesh
