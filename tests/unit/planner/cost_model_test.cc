#include "planner/cost_model.h"

#include <gtest/gtest.h>

#include "compile/compile.h"
#include "ir/builder.h"
#include "ir/fused.h"
#include "mesh/cluster.h"

namespace meshwright::planner {
namespace {

using ir::DType;
using ir::Op;
using mesh::KernelClass;

mesh::Topology TwoSites() {
  mesh::Cluster cluster;
  cluster.name = "two sites";
  for (const char* name : {"near", "far"}) {
    mesh::HostGroup group;
    group.name = name;
    group.count = 2;
    group.devices = 4;
    group.profile = group.name == "near" ? "h100-80g" : "v100-32g";
    group.nic_bytes_per_s = 1e10;
    cluster.hosts.push_back(group);
  }
  cluster.links.host = {1e-6, 1e-11};
  cluster.links.network = {1e-5, 1e-10};
  cluster.links.slow = {{"far", "near", {1e-3, 1e-9}}};
  auto topology = mesh::TopologyOfCluster(cluster);
  EXPECT_TRUE(topology.has_value());
  return *topology;
}

ir::Graph Product(DType dtype) {
  ir::Builder b("f");
  const auto input = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", name}}, {{dtype, std::move(dims)}});
  };
  const ValueId y = b.AddOne(Op::kEinsum, {input("x", {512, 256}), input("w", {256, 128})},
                             {{"equation", "sk,kn->sn"}});
  b.SetOutput("y", b.AddOne(Op::kGelu, {b.AddOne(Op::kAdd, {y, input("b", {128})})}));
  return *b.Finish();
}

TEST(CostModel, ANodeTakesWhatTheProfileOfItsDeviceSays) {
  const CostModel model(TwoSites());
  const ir::Graph graph = Product(DType::kF16);
  const ir::Node& einsum = graph.nodes[2];
  ASSERT_EQ(einsum.op, Op::kEinsum);
  const ir::OpCost cost = ir::CostOf(graph, einsum);
  const auto& known = mesh::KnownDeviceProfiles();
  for (const auto& [device, name] : {std::pair{0, "h100-80g"}, {8, "v100-32g"}}) {
    EXPECT_DOUBLE_EQ(model.NodeSeconds(graph, einsum, device),
                     known.at(name)->Seconds(KernelClass::kProduct, DType::kF16, cost));
  }
  EXPECT_EQ(model.NodeSeconds(graph, graph.nodes[0], 0), 0) << "inputs run nothing";
  const ir::Graph wide = Product(DType::kF32);
  EXPECT_GT(model.NodeSeconds(wide, wide.nodes[2], 0), model.NodeSeconds(graph, einsum, 0));
}

TEST(CostModel, AFusedNodeStartsOnceAndKeepsTheFlopsOfItsSteps) {
  const ir::Graph graph = Product(DType::kF32);
  const auto compiled = compile::CompileExecutable(graph);
  ASSERT_TRUE(compiled.has_value());
  const auto fused = compiled->NodesOf(Op::kFused);
  ASSERT_EQ(fused.size(), 1u);
  const NodeWork work = WorkOf(*compiled, compiled->node(fused[0]));
  EXPECT_EQ(work.lead, KernelClass::kProduct);
  EXPECT_EQ(work.product_flops(), 2. * 512 * 256 * 128);
  EXPECT_GT(work.flops[static_cast<size_t>(KernelClass::kElementwise)], 0);
  const CostModel model(mesh::Topology::Local(1));
  double apart_s = 0;
  for (const ir::Node& node : graph.nodes) apart_s += model.NodeSeconds(graph, node, 0);
  EXPECT_LT(model.NodeSeconds(work, 0), apart_s);
}

// As worker/collective_node.h moves them: read and written, where a dim lies behind others.
TEST(PackingOf, CountsTheBlocksThatAreNoRuns) {
  ir::Builder b("f");
  const auto input = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", name}}, {{DType::kF32, std::move(dims)}});
  };
  const auto attrs = [](std::initializer_list<std::pair<const char*, int64_t>> dims) {
    ir::Attrs all;
    all.Set("axes", std::vector<std::string>{"tensor"});
    for (const auto& [name, dim] : dims) all.Set(name, dim);
    return all;
  };
  const auto packed = [&](Op op, const std::vector<ValueId>& inputs, const ir::Attrs& with,
                          std::vector<ir::TensorType> results = {}) {
    const ValueId made = b.Add(op, inputs, with, std::move(results)).front();
    const NodeWork work = PackingOf(b.graph(), b.graph().producer(made));
    EXPECT_EQ(work.is_free, work.bytes == 0);
    return work.bytes;
  };
  const double bytes = 4 * 4 * 6 * 8;
  const ValueId rows = input("rows", {4, 6, 8});
  const ValueId one_row = input("one row", {1, 6, 8});
  const auto of = [](ir::Dims dims) { return std::vector<ir::TensorType>{{DType::kF32, dims}}; };
  EXPECT_EQ(packed(Op::kAllGather, {rows}, attrs({{"dim", 0}}), of({8, 6, 8})), 0);
  EXPECT_EQ(packed(Op::kAllGather, {rows}, attrs({{"dim", 1}}), of({4, 12, 8})), 2 * 2 * bytes);
  EXPECT_EQ(packed(Op::kAllGather, {one_row}, attrs({{"dim", 1}}), of({1, 12, 8})), 0);
  EXPECT_EQ(packed(Op::kReduceScatter, {rows}, attrs({{"dim", 2}}), of({4, 6, 4})), 2 * bytes);
  EXPECT_EQ(
      packed(Op::kAllToAll, {rows}, attrs({{"split_dim", 0}, {"concat_dim", 2}}), of({2, 6, 16})),
      2 * bytes);
  EXPECT_EQ(packed(Op::kAllReduce, {rows}, attrs({})), 0);
  EXPECT_EQ(packed(Op::kAllReduce, {rows, rows}, attrs({})), 2 * 2 * 2 * bytes) << "a bucket";
}

TEST(CostModel, ShapesOfGroupsSayWhichLinksTheyUse) {
  const CostModel model(TwoSites());
  const std::vector<int> host = {0, 1, 2, 3};
  EXPECT_EQ(model.ShapeOf(host).hosts, 1);
  EXPECT_EQ(model.ShapeOf(host).groups_per_host, 1);
  EXPECT_EQ(model.ClassOf(host), mesh::LinkClass::kHost);
  // One of each host, in any order; four such groups share a host's cards.
  const std::vector<int> across = {5, 1};
  EXPECT_EQ(model.ShapeOf(across).hosts, 2);
  EXPECT_EQ(model.ShapeOf(across).groups_per_host, 4);
  // One member here and three there: what neighbours form of four devices are no four groups.
  const std::vector<int> uneven = {3, 4, 5, 6};
  EXPECT_EQ(model.ShapeOf(uneven).groups_per_host, 1);
  EXPECT_EQ(model.ShapeOf(across).between.alpha_s, 1e-5);
  EXPECT_EQ(model.ClassOf(across), mesh::LinkClass::kNetwork);
  EXPECT_DOUBLE_EQ(model.CollectiveSeconds(mesh::CollectiveKind::kReduceScatter, 1e9, across),
                   1e-5 + 0.5e9 * 4e-10)
      << "four flows out of 10 GB/s";
  const std::vector<int> sites = {0, 9, 13};
  EXPECT_EQ(model.ShapeOf(sites).between.seconds_per_byte, 1e-9);
  EXPECT_EQ(model.ClassOf(sites), mesh::LinkClass::kSlow);
  EXPECT_TRUE(model.ShapeOf(sites).is_even);
  EXPECT_FALSE(model.ShapeOf(std::vector<int>{0, 1, 4}).is_even);
  EXPECT_EQ(model.ClassOf(std::vector<int>{3}), mesh::LinkClass::kDevice);
}

TEST(CostModel, MessagesTakeTheLinkBetweenTheirDevices) {
  const CostModel model(TwoSites());
  EXPECT_EQ(model.MessageSeconds(1000, 2, 2), 0);
  EXPECT_DOUBLE_EQ(model.MessageSeconds(1000, 0, 1), 1e-6 + 1000 * 1e-11);
  EXPECT_DOUBLE_EQ(model.MessageSeconds(1000, 0, 4), 1e-5 + 1000 * 1e-10);
  EXPECT_DOUBLE_EQ(model.MessageSeconds(1000, 0, 8), 1e-3 + 1000 * 1e-9);
  EXPECT_EQ(model.ClassOf(8, 0), mesh::LinkClass::kSlow);
}

// Two workers of two devices on one host, one elsewhere.
mesh::Topology MeasuredHost() {
  mesh::Topology topology = mesh::Topology::Local(4, 2);
  mesh::Device far = topology.devices[3];
  far.worker = "far";
  far.host = "far";
  topology.devices.push_back(far);
  topology.links.host = {1e-5, 1e-10};
  topology.links.network = {1e-4, 1e-9};
  mesh::DeviceProfile fast = *mesh::DefaultDeviceProfile();
  fast.links = {mesh::LinkCost{1e-6, 1e-12}, mesh::LinkCost{2e-6, 2e-11}, {}, {}};
  mesh::DeviceProfile slow = fast;
  slow.links.host = {3e-6, 1e-11};
  for (size_t i = 0; i < 4; ++i) {
    topology.devices[i].profile = std::make_shared<const mesh::DeviceProfile>(i < 2 ? fast : slow);
  }
  mesh::TakeMeasuredLinks(topology);
  return topology;
}

TEST(CostModel, MeasuredLinksGoBeforeTheDefaults) {
  const CostModel model(MeasuredHost());
  EXPECT_EQ(model.LinkOf(0, 1), (mesh::LinkCost{1e-6, 1e-12})) << "one worker";
  const mesh::LinkCost middle{(2e-6 + 3e-6) / 2, (1e-11 + 2e-11) / 2};
  EXPECT_EQ(model.LinkOf(1, 2), middle) << "of what two workers measured";
  EXPECT_EQ(model.LinkOf(0, 4), (mesh::LinkCost{1e-4, 1e-9})) << "never measured";
  EXPECT_EQ(model.ShapeOf(std::vector<int>{1, 0}).within, (mesh::LinkCost{1e-6, 1e-12}));
  EXPECT_EQ(model.ShapeOf(std::vector<int>{0, 1, 2}).within, middle);
  EXPECT_EQ(model.ShapeOf(std::vector<int>{0, 4}).within, (mesh::LinkCost{0, 0}));
  mesh::Topology unmeasured = MeasuredHost();
  unmeasured.hosts.clear();
  EXPECT_EQ(CostModel(unmeasured).LinkOf(0, 1), (mesh::LinkCost{1e-5, 1e-10}));
  EXPECT_EQ(CostModel(unmeasured).LinkOf(0, 2), (mesh::LinkCost{1e-5, 1e-10}));
}

}  // namespace
}  // namespace meshwright::planner
