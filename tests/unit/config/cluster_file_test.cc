#include "config/cluster_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace meshwright::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<mesh::Cluster> Parse(const std::string& text) {
  ClusterSource source;
  source.text = text;
  source.file = "dir/c.toml";
  source.read_file = [](const std::string& path) -> Result<std::string> {
    if (path != "dir/own.profile") return Fail(NotFound(path + " is not there"));
    return mesh::FormatDeviceProfile(*mesh::DefaultDeviceProfile());
  };
  return ParseClusterFile(source);
}

std::string Refusal(const std::string& text) {
  const auto cluster = Parse(text);
  return cluster ? "" : cluster.error().message();
}

constexpr const char* kHosts = "[[hosts]]\nname = \"a\"\ndevices = 2\ndevice = \"a100-40g\"\n";

TEST(ClusterFile, SaysHostsProfilesAndLinks) {
  const auto cluster = Parse(R"(
[[profiles]]
name = "half"
like = "a100-40g"
speed = 0.5
memory_gib = 20
memory_reserve_gib = 1.5
memory_gbyte_per_s = 700
[[profiles]]
name = "own"
file = "own.profile"
[[hosts]]
name = "a"
count = 3
devices = 8
device = "half"
nic_gbyte_per_s = 100
host_memory_gib = 512
disk_gib = 1.5
[[hosts]]
name = "b"
devices = 2
device = "own"
cores = 4
threads_per_device = 2
[links.host]
latency_us = 4
gbyte_per_s = 200
[links.network]
gbyte_per_s = 25
[[links.slow]]
from = "b"
to = "a"
latency_us = 1000
gbyte_per_s = 1
)");
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  EXPECT_EQ(cluster->name, "c") << "of the file";
  ASSERT_EQ(cluster->hosts.size(), 2u);
  EXPECT_EQ(cluster->hosts[0].count, 3);
  EXPECT_EQ(cluster->hosts[0].nic_bytes_per_s, 100e9);
  EXPECT_EQ(cluster->hosts[0].memory_bytes, int64_t{512} << 30);
  EXPECT_EQ(cluster->hosts[0].disk_bytes, int64_t{3} << 29);
  EXPECT_EQ(cluster->hosts[1].memory_bytes, 0) << "not said: not checked";
  EXPECT_EQ(cluster->hosts[1].count, 1);
  EXPECT_EQ(cluster->hosts[1].cores, 4);
  EXPECT_DOUBLE_EQ(cluster->links.host.alpha_s, 4e-6);
  EXPECT_DOUBLE_EQ(cluster->links.network.seconds_per_byte, 1 / 25e9);
  EXPECT_EQ(cluster->links.network.alpha_s, mesh::Links().network.alpha_s);
  EXPECT_DOUBLE_EQ(cluster->links.slow[0].cost.alpha_s, 1e-3);
  const mesh::DeviceProfile& half = *cluster->profiles.at("half");
  const mesh::DeviceProfile& whole = *mesh::KnownDeviceProfiles().at("a100-40g");
  EXPECT_EQ(half.name, "half");
  EXPECT_EQ(half.memory_bytes, int64_t{20} << 30);
  EXPECT_EQ(half.reserve_bytes, int64_t{3} << 29);
  EXPECT_EQ(whole.reserve_bytes, int64_t{4} << 30);
  EXPECT_DOUBLE_EQ(half.PeakOf(ir::DType::kBF16), 156e12);
  EXPECT_DOUBLE_EQ(half.RateOf(mesh::KernelClass::kAttention, ir::DType::kBF16, 1e11),
                   whole.RateOf(mesh::KernelClass::kAttention, ir::DType::kBF16, 1e11) / 2);
  EXPECT_DOUBLE_EQ(half.Rates(mesh::KernelClass::kElementwise).bytes_per_s, 700e9);
  EXPECT_DOUBLE_EQ(half.Rates(mesh::KernelClass::kGather).bytes_per_s, 350e9);
  EXPECT_EQ(cluster->profiles.at("own")->name, "own");
  EXPECT_EQ(half.kind, mesh::DeviceKind::kGpu) << "as what it is like";
  EXPECT_EQ(half.links.memory, whole.links.memory);
  EXPECT_EQ(cluster->profiles.at("own")->kind, mesh::DeviceKind::kCpu) << "as the file says";
}

TEST(ClusterFile, AProfileMaySayWhatKindOfDeviceItIs) {
  const auto cluster = Parse(std::string(kHosts) +
                             "[[profiles]]\nname = \"own\"\nfile = \"own.profile\"\n"
                             "kind = \"gpu\"\n");
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  EXPECT_EQ(cluster->profiles.at("own")->kind, mesh::DeviceKind::kGpu);
  EXPECT_EQ(Refusal("[[profiles]]\nname = \"p\"\nlike = \"cpu\"\nkind = \"tpu\"\n"),
            "dir/c.toml:4:8: kind of [[profiles]] is \"tpu\"; it must be cpu or gpu");
}

TEST(ClusterFile, RefusalsNamePlaceKeyAndWhatWouldDo) {
  const std::string hosts = kHosts;
  EXPECT_EQ(Refusal(hosts + "count = 0\n"),
            "dir/c.toml:5:9: count of [[hosts]] is 0; it must be in [1, 65536]");
  EXPECT_EQ(Refusal(hosts + "devics = 3\n"),
            "dir/c.toml:5:1: unknown key 'devics' in [[hosts]] (did you mean 'devices'?); known: "
            "name, count, devices, device, cores, threads_per_device, nic_gbyte_per_s, "
            "host_memory_gib, disk_gib");
  EXPECT_THAT(Refusal("[[hosts]]\ndevices = 1\ndevice = \"a100-40gb\"\n"),
              StartsWith("dir/c.toml:3:10: device of [[hosts]] names the unknown device "
                         "'a100-40gb' (did you mean 'a100-40g'?); known: "));
  EXPECT_THAT(
      Refusal("[[profiles]]\nname = \"p\"\nlike = \"a100-40g\"\n"
              "memory_reserve_gib = 40\n" +
              hosts),
      StartsWith("dir/c.toml:4:22: memory_reserve_gib of [[profiles]] leaves nothing of the "
                 "40 GiB that the device has"));
  EXPECT_EQ(Refusal(hosts + "nic_gbyte_per_s = \"fast\"\n"),
            "dir/c.toml:5:19: nic_gbyte_per_s of [[hosts]] must be a number, is 'fast'");
  EXPECT_THAT(Refusal(hosts + "nic_gbyte_per_s = nan\n"), HasSubstr("it must be in (0, "));
  EXPECT_EQ(Refusal("[[hosts]]\ndevice = \"cpu\"\n"),
            "dir/c.toml:1:1: [[hosts]] needs devices, how many each host has");
  EXPECT_EQ(Refusal("name = \"empty\"\n"), "dir/c.toml:1:1: the file needs [[hosts]]");
  EXPECT_THAT(Refusal("hosts = 3\n"), HasSubstr("'hosts' is a list of tables; write [[hosts]]"));
  EXPECT_THAT(Refusal("[hosts\n"), StartsWith("dir/c.toml:1:"));
  EXPECT_THAT(Refusal(hosts + "[[links.slow]]\nfrom = \"a\"\nto = \"c\"\n"),
              StartsWith("dir/c.toml:7:6: to of [[links.slow]] names unknown hosts 'c'"));
  EXPECT_THAT(Refusal(hosts + "[links.host]\ngbyte_per_s = 0\n"),
              StartsWith("dir/c.toml:6:15: gbyte_per_s of [links.host] is 0"));
  EXPECT_THAT(Refusal(hosts + "[links.hots]\n"), HasSubstr("did you mean 'host'?"));
  EXPECT_THAT(Refusal(hosts + "count = 40000\n"), HasSubstr("there are 80000 devices; at most"));
  EXPECT_THAT(Refusal(hosts + hosts), HasSubstr("hosts \"a\" are there twice"));
  EXPECT_THAT(Refusal(hosts + "[[profiles]]\nname = \"x\"\n"),
              HasSubstr("[[profiles]] needs one of like and file"));
  EXPECT_THAT(Refusal(hosts + "[[profiles]]\nname = \"x\"\nfile = \"no.profile\"\n"),
              HasSubstr("dir/c.toml:7:8: file of [[profiles]] : dir/no.profile is not there"));
}

TEST(ClusterFile, TheExamplesAreWhatTheirNamesSay) {
  for (const auto& [name, devices, hosts] : {std::tuple{"laptop", 4u, 1u},
                                             {"a100-8x8", 64u, 8u},
                                             {"a100-128x8", 1024u, 128u},
                                             {"h100-32x8", 256u, 32u},
                                             {"two-clusters", 64u, 12u}}) {
    const auto cluster =
        LoadClusterFile(fmt::format("{}/examples/clusters/{}.toml", MESHWRIGHT_SOURCE_DIR, name));
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    EXPECT_EQ(cluster->name, name);
    const auto topology = mesh::TopologyOfCluster(*cluster);
    ASSERT_TRUE(topology.has_value()) << topology.error();
    EXPECT_EQ(topology->devices.size(), devices) << name;
    EXPECT_EQ(topology->hosts.size(), hosts) << name;
  }
}

}  // namespace
}  // namespace meshwright::config
