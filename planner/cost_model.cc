#include "planner/cost_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/check.h"
#include "ir/fused.h"
#include "ir/schema.h"

namespace meshwright::planner {
namespace {

using mesh::KernelClass;

constexpr double kNoLimit = 0;

// Ops that only give a value another name or place in the arena.
bool IsFree(ir::Op op) {
  return op == ir::Op::kInput || op == ir::Op::kParam || op == ir::Op::kReshape;
}

bool IsProduct(size_t kernel) {
  const auto k = static_cast<KernelClass>(kernel);
  return k == KernelClass::kProduct || k == KernelClass::kAttention || k == KernelClass::kHead;
}

// Integers select what to do: the type of the first operand that is computed with.
ir::DType ComputeType(const ir::Graph& graph, const ir::Node& node) {
  for (ValueId id : node.inputs) {
    const ir::DType dtype = graph.type(id).dtype;
    if (ir::IsFloating(dtype)) return dtype;
  }
  for (ValueId id : node.outputs) {
    const ir::DType dtype = graph.type(id).dtype;
    if (ir::IsFloating(dtype)) return dtype;
  }
  return ir::DType::kF32;
}

void AddFusedSteps(const ir::Graph& graph, const ir::Node& node, NodeWork& work) {
  std::vector<ir::TensorType> operands;
  for (ValueId id : node.inputs) operands.push_back(graph.type(id));
  const Result<ir::Graph> body = ir::ExpandFused(node.attrs, operands);
  MW_CHECK(body.has_value()) << body.error().message();
  for (const ir::Node& step : body->nodes) {
    if (IsFree(step.op)) continue;
    work.flops[static_cast<size_t>(mesh::KernelClassOf(step.op))] += ir::CostOf(*body, step).flops;
  }
}

double SecondsOf(const NodeWork& work, const mesh::DeviceProfile& profile) {
  if (work.is_free) return 0;
  double compute_s = 0;
  for (size_t k = 0; k < work.flops.size(); ++k) {
    const double flops = work.flops[k];
    if (flops > 0) {
      compute_s += flops / profile.RateOf(static_cast<KernelClass>(k), work.dtype, flops);
    }
  }
  return profile.launch_s + std::max(compute_s, work.bytes / profile.Rates(work.lead).bytes_per_s);
}

// Both ways between two groups of hosts, where the topology has them.
std::vector<std::pair<int, int>> PairsOf(const mesh::SlowLink& slow,
                                         const std::map<std::string, int>& group_of) {
  const auto from = group_of.find(slow.from);
  const auto to = group_of.find(slow.to);
  if (from == group_of.end() || to == group_of.end()) return {};
  return {{from->second, to->second}, {to->second, from->second}};
}

}  // namespace

bool IsCollective(ir::Op op) {
  return op == ir::Op::kAllReduce || op == ir::Op::kAllGather || op == ir::Op::kReduceScatter ||
         op == ir::Op::kAllToAll || op == ir::Op::kRingShift;
}

mesh::CollectiveKind CollectiveKindOf(ir::Op op) {
  MW_CHECK(IsCollective(op)) << ir::OpName(op);
  switch (op) {
    case ir::Op::kAllGather:
      return mesh::CollectiveKind::kAllGather;
    case ir::Op::kReduceScatter:
      return mesh::CollectiveKind::kReduceScatter;
    case ir::Op::kAllToAll:
      return mesh::CollectiveKind::kAllToAll;
    case ir::Op::kRingShift:
      return mesh::CollectiveKind::kRingShift;
    default:
      return mesh::CollectiveKind::kAllReduce;
  }
}

double NodeWork::product_flops() const {
  double sum = 0;
  for (size_t k = 0; k < flops.size(); ++k) sum += IsProduct(k) ? flops[k] : 0;
  return sum;
}

NodeWork WorkOf(const ir::Graph& graph, const ir::Node& node) {
  MW_CHECK(!IsCollective(node.op)) << ir::OpName(node.op) << " is no work of one device";
  NodeWork work;
  work.is_free = IsFree(node.op);
  if (work.is_free) return work;
  const ir::OpCost cost = ir::CostOf(graph, node);
  work.bytes = cost.bytes;
  work.dtype = ComputeType(graph, node);
  if (node.op == ir::Op::kFused) {
    AddFusedSteps(graph, node, work);
    const auto most = std::max_element(work.flops.begin(), work.flops.end());
    work.lead = static_cast<KernelClass>(most - work.flops.begin());
  } else {
    work.lead = mesh::KernelClassOf(node.op);
    work.flops[static_cast<size_t>(work.lead)] = cost.flops;
  }
  return work;
}

int64_t BytesOfBlocks(const ir::TensorType& type, int64_t dim) {
  MW_CHECK(dim >= 0 && dim < type.rank()) << "dim " << dim << " of " << type.ToString();
  const bool are_runs = std::all_of(type.dims.begin(), type.dims.begin() + dim,
                                    [](int64_t size) { return size == 1; });
  return are_runs ? 0 : type.bytes();
}

int64_t PackedBytes(const ir::Graph& graph, const ir::Node& node) {
  MW_CHECK(IsCollective(node.op)) << ir::OpName(node.op) << " moves nothing between devices";
  const ir::TensorType& from = graph.type(node.inputs[0]);
  const ir::TensorType& to = graph.type(node.outputs[0]);
  switch (node.op) {
    case ir::Op::kAllGather:
      return BytesOfBlocks(to, node.attrs.Int("dim"));
    case ir::Op::kReduceScatter:
      return BytesOfBlocks(from, node.attrs.Int("dim"));
    case ir::Op::kAllToAll:
      return BytesOfBlocks(from, node.attrs.Int("split_dim")) +
             BytesOfBlocks(to, node.attrs.Int("concat_dim"));
    default: {
      int64_t bytes = 0;
      for (const ValueId id : node.inputs) bytes += graph.type(id).bytes();
      return node.inputs.size() > 1 ? bytes : 0;
    }
  }
}

NodeWork PackingOf(const ir::Graph& graph, const ir::Node& node) {
  const int64_t packed = PackedBytes(graph, node);
  // What is reduced goes in and comes out again.
  const int times = node.op == ir::Op::kAllReduce ? 2 : 1;
  NodeWork work;
  work.is_free = packed == 0;
  work.bytes = 2.0 * times * static_cast<double>(packed);  // read and written
  return work;
}

CostModel::CostModel(const mesh::Topology& topology) {
  std::map<std::string, int> host_of, group_of, worker_of;
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    const mesh::Device& device = topology.devices[i];
    const auto [at, fresh] = host_of.emplace(device.host, static_cast<int>(hosts_.size()));
    if (fresh) {
      const auto known = topology.hosts.find(device.host);
      const mesh::Host host = known != topology.hosts.end() ? known->second : mesh::Host{};
      const auto [group, added] = group_of.emplace(host.group, static_cast<int>(groups_));
      groups_ += added ? 1 : 0;
      const mesh::LinkCost within = host.links.host.value_or(topology.links.host);
      hosts_.push_back({group->second, 0,
                        host.nic_bytes_per_s > 0 ? 1 / host.nic_bytes_per_s : kNoLimit, within,
                        host.links.process.value_or(within)});
    }
    ++hosts_[static_cast<size_t>(at->second)].devices;
    const mesh::SharedProfile& profile =
        device.profile != nullptr ? device.profile : mesh::DefaultDeviceProfile();
    const int worker =
        worker_of.emplace(device.worker, static_cast<int>(worker_of.size())).first->second;
    devices_.push_back({profile, at->second, worker});
  }
  const auto pairs = static_cast<size_t>(groups_) * static_cast<size_t>(groups_);
  between_.assign(pairs, topology.links.network);
  is_slow_.assign(pairs, false);
  for (const mesh::SlowLink& slow : topology.links.slow) {
    for (const auto& [a, b] : PairsOf(slow, group_of)) {
      const auto pair = static_cast<size_t>(a * groups_ + b);
      between_[pair] = slow.cost;
      is_slow_[pair] = true;
    }
  }
}

const mesh::DeviceProfile& CostModel::ProfileOf(int device) const {
  MW_CHECK(device >= 0 && device < device_count())
      << "device " << device << " of " << device_count();
  return *devices_[static_cast<size_t>(device)].profile;
}

double CostModel::NodeSeconds(const NodeWork& work, int device) const {
  return SecondsOf(work, ProfileOf(device));
}

double CostModel::NodeSeconds(const ir::Graph& local, const ir::Node& node, int device) const {
  return NodeSeconds(WorkOf(local, node), device);
}

double CostModel::CollectiveSeconds(mesh::CollectiveKind kind, double local_bytes,
                                    std::span<const int> devices) const {
  return mesh::CostOfCollective(kind, local_bytes, ShapeOf(devices)).seconds;
}

mesh::GroupShape CostModel::ShapeOf(std::span<const int> devices) const {
  std::vector<std::pair<int, int>> places;  // host, worker
  places.reserve(devices.size());
  for (int device : devices) {
    MW_CHECK(device >= 0 && device < device_count())
        << "device " << device << " of " << device_count();
    const DeviceInfo& info = devices_[static_cast<size_t>(device)];
    places.emplace_back(info.host, info.worker);
  }
  std::sort(places.begin(), places.end());
  mesh::GroupShape shape;
  shape.within = {0, 0};
  shape.members = std::max<int64_t>(1, static_cast<int64_t>(devices.size()));
  shape.hosts = 0;
  int64_t least = shape.members;
  std::map<int, int64_t> hosts_of_group;
  for (auto begin = places.begin(); begin != places.end();) {
    const auto end = std::find_if(
        begin, places.end(), [host = begin->first](const auto& at) { return at.first != host; });
    const HostInfo& host = hosts_[static_cast<size_t>(begin->first)];
    if (end - begin > 1) {
      shape.within = mesh::Slower(shape.within,
                                  begin->second == (end - 1)->second ? host.process : host.within);
    }
    const int64_t members = end - begin;
    ++shape.hosts;
    ++hosts_of_group[host.group];
    shape.members_per_host = std::max(shape.members_per_host, members);
    least = std::min(least, members);
    shape.nic_seconds_per_byte = std::max(shape.nic_seconds_per_byte, host.nic_seconds_per_byte);
    shape.groups_per_host = std::max(shape.groups_per_host, host.devices);  // SPMD: as many as fit
    begin = end;
  }
  shape.hosts = std::max<int64_t>(1, shape.hosts);
  shape.is_even = least == shape.members_per_host;
  shape.groups_per_host = std::max<int64_t>(1, shape.groups_per_host / shape.members_per_host);
  shape.between = SlowestBetween(hosts_of_group);
  return shape;
}

mesh::LinkCost CostModel::SlowestBetween(const std::map<int, int64_t>& hosts_of_group) const {
  mesh::LinkCost slowest{0, 0};
  for (const auto& [a, hosts] : hosts_of_group) {
    for (const auto& [b, others] : hosts_of_group) {
      if (a == b && hosts == 1) continue;
      slowest = mesh::Slower(slowest, BetweenGroups(a, b));
    }
  }
  return slowest;
}

const mesh::LinkCost& CostModel::BetweenGroups(int a, int b) const {
  MW_CHECK(a >= 0 && a < groups_ && b >= 0 && b < groups_)
      << a << " and " << b << " of " << groups_;
  return between_[static_cast<size_t>(a * groups_ + b)];
}

double CostModel::MessageSeconds(int64_t bytes, int from, int to) const {
  const mesh::LinkCost link = LinkOf(from, to);
  return link.alpha_s + static_cast<double>(bytes) * link.seconds_per_byte;
}

mesh::LinkClass CostModel::ClassOf(int from, int to) const {
  if (from == to) return mesh::LinkClass::kDevice;
  const int a = devices_[static_cast<size_t>(from)].host;
  const int b = devices_[static_cast<size_t>(to)].host;
  if (a == b) return mesh::LinkClass::kHost;
  const int from_group = hosts_[static_cast<size_t>(a)].group;
  const int to_group = hosts_[static_cast<size_t>(b)].group;
  return is_slow_[static_cast<size_t>(from_group * groups_ + to_group)] ? mesh::LinkClass::kSlow
                                                                        : mesh::LinkClass::kNetwork;
}

mesh::LinkCost CostModel::LinkOf(int from, int to) const {
  MW_CHECK(from >= 0 && from < device_count() && to >= 0 && to < device_count())
      << "a link of " << from << " and " << to << " among " << device_count() << " devices";
  const HostInfo& host = hosts_[static_cast<size_t>(devices_[static_cast<size_t>(from)].host)];
  switch (ClassOf(from, to)) {
    case mesh::LinkClass::kDevice:
      return {0, 0};
    case mesh::LinkClass::kHost:
      return devices_[static_cast<size_t>(from)].worker == devices_[static_cast<size_t>(to)].worker
                 ? host.process
                 : host.within;
    case mesh::LinkClass::kNetwork:
    case mesh::LinkClass::kSlow:
      break;
  }
  const HostInfo& other = hosts_[static_cast<size_t>(devices_[static_cast<size_t>(to)].host)];
  mesh::LinkCost link = BetweenGroups(host.group, other.group);
  link.seconds_per_byte =
      std::max({link.seconds_per_byte, host.nic_seconds_per_byte, other.nic_seconds_per_byte});
  return link;
}

mesh::LinkClass CostModel::ClassOf(std::span<const int> devices) const {
  if (devices.size() < 2) return mesh::LinkClass::kDevice;
  std::set<int> hosts, groups;
  for (int device : devices) {
    const int host = devices_[static_cast<size_t>(device)].host;
    hosts.insert(host);
    groups.insert(hosts_[static_cast<size_t>(host)].group);
  }
  if (hosts.size() == 1) return mesh::LinkClass::kHost;
  for (int a : groups) {
    for (int b : groups) {
      if (is_slow_[static_cast<size_t>(a * groups_ + b)]) return mesh::LinkClass::kSlow;
    }
  }
  return mesh::LinkClass::kNetwork;
}

double ModelFlops(const ir::Graph& step_graph) {
  // Five products, one of which forward has done already.
  constexpr double kAttentionGradOnce = 4.0 / 5;
  double flops = 0;
  for (const ir::Node& node : step_graph.nodes) {
    if (node.phase == ir::Phase::kUpdate || IsCollective(node.op)) continue;
    const mesh::KernelClass kernel = mesh::KernelClassOf(node.op);
    const bool is_grad = node.op == ir::Op::kAttentionGrad || node.op == ir::Op::kAttentionQkvGrad;
    if (kernel == mesh::KernelClass::kProduct || kernel == mesh::KernelClass::kHead ||
        kernel == mesh::KernelClass::kAttention) {
      flops += ir::CostOf(step_graph, node).flops * (is_grad ? kAttentionGradOnce : 1);
    }
  }
  return flops;
}

}  // namespace meshwright::planner
