#include "report/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::report {
namespace {

TEST(DryRunTopology, HasTheDevicesThatItWasAskedFor) {
  const auto topology = DryRunTopology(4, 2);
  ASSERT_TRUE(topology.has_value()) << topology.error();
  EXPECT_EQ(topology->devices.size(), 4u);
  EXPECT_EQ(topology->devices[3].worker, "worker1");
}

TEST(DryRunTopology, RefusesProductsThatDoNotFitAnInt) {
  for (const int64_t devices : {int64_t{1} << 48, (int64_t{1} << 32) + 4, int64_t{65537}}) {
    const auto topology = DryRunTopology(devices, 1);
    ASSERT_FALSE(topology.has_value()) << devices;
    EXPECT_EQ(topology.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(topology.error().message().find(std::to_string(devices)), std::string::npos)
        << topology.error();
    EXPECT_NE(topology.error().message().find("smaller degrees"), std::string::npos);
  }
  EXPECT_FALSE(DryRunTopology(4, 0).has_value());
}

TEST(DescribeDevices, SaysWhatIsAssumed) {
  EXPECT_EQ(DescribeDevices(mesh::Topology::Local(4)),
            "4 x cpu, 50 GFLOP/s in f32, memory not limited. Assumed: --cluster FILE or --address "
            "HOST:PORT plans for others");
  mesh::Topology mixed = mesh::Topology::Local(3);
  for (mesh::Device& device : mixed.devices) {
    device.profile = mesh::KnownDeviceProfiles().at("a100-40g");
    device.memory_bytes = int64_t{40} << 30;
  }
  mixed.devices[1].memory_bytes = int64_t{80} << 30;
  EXPECT_EQ(DescribeDevices(mixed),
            "2 x a100-40g, 19500 GFLOP/s in f32, 40.00 GiB; 1 x a100-40g, 19500 GFLOP/s in f32, "
            "80.00 GiB");
  for (mesh::Device& device : mixed.devices) device.memory_bytes = int64_t{36} << 30;
  EXPECT_EQ(DescribeDevices(mixed),
            "3 x a100-40g, 19500 GFLOP/s in f32, 36.00 GiB (40.00 GiB less 4.00 GiB for driver, "
            "NCCL and workspaces)");
}

TEST(TopologyOf, TakesWhatWorkersMeasured) {
  client::WorkerInfo worker;
  worker.name = "w";
  worker.host = "h";
  worker.state = "READY";
  worker.devices = 2;
  worker.threads_per_device = 3;
  worker.host_cores = 4;
  mesh::DeviceProfile profile = *mesh::DefaultDeviceProfile();
  profile.name = "measured";
  profile.links = {mesh::LinkCost{1e-6, 1e-11}, mesh::LinkCost{2e-6, 2e-11}, {}, {}};
  worker.device_profile = mesh::FormatDeviceProfile(profile);
  const auto topology = TopologyOf({worker});
  ASSERT_TRUE(topology.has_value()) << topology.error();
  EXPECT_EQ(topology->ProfileOf(1), profile);
  EXPECT_EQ(topology->devices[1].threads, 3);
  EXPECT_EQ(topology->hosts.at("h").cores, 4);
  EXPECT_EQ(topology->hosts.at("h").links, profile.links);
  worker.device_profile = "x";
  EXPECT_EQ(TopologyOf({worker}).error().code(), StatusCode::kInternal);
}

TEST(TopologyOf, KnowsWhichWorkersHaveNoFolderOnADisk) {
  std::vector<client::WorkerInfo> workers(2);
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].name = i == 0 ? "a" : "b";
    workers[i].state = "READY";
    workers[i].devices = 1;
  }
  workers[1].no_scratch_dir = true;
  const auto topology = TopologyOf(workers);
  ASSERT_TRUE(topology.has_value()) << topology.error();
  for (const mesh::Device& device : topology->devices) {
    EXPECT_EQ(device.disk, device.worker == "a" ? mesh::Disk::kPerhaps : mesh::Disk::kNoFolder);
  }
}

TEST(TopologyOf, IsOfOneKindAsJobsAre) {
  std::vector<client::WorkerInfo> workers(2);
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].name = i == 0 ? "c" : "g";
    workers[i].host = "h";
    workers[i].state = "READY";
    workers[i].devices = i == 0 ? 4 : 2;
    workers[i].device_kind = i == 0 ? "cpu" : "cuda";
  }
  EXPECT_EQ(TopologyOf(workers)->devices.size(), 2u);
  EXPECT_EQ(TopologyOf(workers, "auto", 2)->devices[0].worker, "g");
  EXPECT_EQ(TopologyOf(workers, "auto", 3)->devices[0].worker, "c") << "too few GPUs";
  EXPECT_EQ(TopologyOf(workers, "cpu")->devices.size(), 4u);
  workers.pop_back();
  const auto none = TopologyOf(workers, "cuda");
  EXPECT_EQ(none.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(none.error().message().find("devices of the kind cuda"), std::string::npos);
}

TEST(TopologyOf, HasTheOrderInWhichJobsGetDevices) {
  std::vector<client::WorkerInfo> workers(3);
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].name = std::vector<std::string>{"w1", "w10", "w2"}[i];
    workers[i].host = i == 0 ? "a" : "b";
    workers[i].state = "READY";
    workers[i].devices = 1;
  }
  const auto topology = TopologyOf(workers);
  ASSERT_TRUE(topology.has_value()) << topology.error();
  std::string order;
  for (const mesh::Device& device : topology->devices) order += device.worker + " ";
  EXPECT_EQ(order, "w2 w10 w1 ");
}

TEST(FormatForecast, ShowsUtilisationWaitingAndTraffic) {
  planner::Forecast forecast;
  forecast.step_s = 0.5;
  forecast.tokens_per_s = 4096;
  forecast.model_flops_utilization = 0.412;
  forecast.hardware_flops_utilization = 0.5;
  forecast.peak_flops_per_s = 312e12;
  forecast.idle_of_total = 0.2;
  forecast.idle_of_busy = 0.25;
  forecast.collective_s = 1e-3;
  forecast.by_axes["data"] = {1 << 20, 1e-3};
  forecast.by_axes["pipeline"] = {1 << 10, 0};
  forecast.bytes_by_link[static_cast<size_t>(mesh::LinkClass::kNetwork)] = 1 << 20;
  EXPECT_EQ(FormatForecast(forecast),
            "forecast   step 500 ms, 4,096 tokens/s, MFU 41.2 %, HFU 50.0 % of 312.0 TFLOP/s\n"
            "  waiting for stages and members 20.0 % of the time, 25.0 % of the work\n"
            "  collectives 1 ms a device\n"
            "  over data             1.00 MiB  1 ms a device\n"
            "  over pipeline         1.00 KiB\n"
            "  network links         1.00 MiB\n");
  // What waits for copies does not wait for others.
  forecast.copies_of_total = 0.15;
  EXPECT_THAT(FormatForecast(forecast),
              testing::HasSubstr(
                  "\n  waiting 20.0 % of the time, 25.0 % of the work; of the time "
                  "15.0 % for the host and copies from its memory or a disk, 5.0 % for stages and "
                  "members\n"));
}

}  // namespace
}  // namespace meshwright::report
