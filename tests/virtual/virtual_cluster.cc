#include "tests/virtual/virtual_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/philox.h"

namespace meshwright::testing {
namespace {

double ElementAt(const std::vector<std::byte>& data, ir::DType dtype, size_t index) {
  if (dtype == ir::DType::kF64) {
    double value;
    std::memcpy(&value, data.data() + index * sizeof(double), sizeof(double));
    return value;
  }
  float value;
  std::memcpy(&value, data.data() + index * sizeof(float), sizeof(float));
  return value;
}

// Copies a box into the logical tensor; elements seen before must be equal.
Status Place(const ops::HostTensor& block, const ir::Box& box, const std::string& name,
             LogicalTensor& tensor, std::vector<bool>& seen) {
  const size_t rank = tensor.dims.size();
  std::vector<int64_t> index(rank, 0);
  for (size_t i = 0; i < static_cast<size_t>(block.type.elements()); ++i) {
    size_t flat = 0;
    for (size_t d = 0; d < rank; ++d) {
      flat = flat * static_cast<size_t>(tensor.dims[d]) +
             static_cast<size_t>(box.offset[d] + index[d]);
    }
    const double value = ElementAt(block.data, block.type.dtype, i);
    if (seen[flat] && std::memcmp(&tensor.values[flat], &value, sizeof(double)) != 0) {
      return Internal(fmt::format("replicas of {} differ at element {}: {} and {}", name, flat,
                                  tensor.values[flat], value));
    }
    tensor.values[flat] = value;
    seen[flat] = true;
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < box.size[d]) break;
      index[d] = 0;
    }
  }
  return OkStatus();
}

}  // namespace

Status SyntheticTokens::ReadSample(const std::string& source, int64_t sample,
                                   std::span<int32_t> row) {
  const uint64_t stream = StreamOf(source);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint32_t bits = PhiloxBits(7, stream, static_cast<uint64_t>(sample), i);
    row[i] = static_cast<int32_t>(bits % static_cast<uint32_t>(vocabulary_));
  }
  return OkStatus();
}

Result<std::unique_ptr<VirtualCluster>> VirtualCluster::Start(const ir::JobRequest& job,
                                                              int devices, ops::FeedSource* feed,
                                                              ops::Backend backend,
                                                              int64_t memory_bytes) {
  mesh::Topology topology = mesh::Topology::Local(devices);
  for (mesh::Device& device : topology.devices) device.memory_bytes = memory_bytes;
  MW_ASSIGN_OR_RETURN(planner::Plan plan, planner::MakePlan(job, topology));
  return StartPlan(std::move(plan), job.train.seed, feed, backend);
}

Result<std::unique_ptr<VirtualCluster>> VirtualCluster::StartPlan(planner::Plan plan, uint64_t seed,
                                                                  ops::FeedSource* feed,
                                                                  ops::Backend backend,
                                                                  const worker::GpuOptions& gpus,
                                                                  ops::NodeObserver* observer) {
  auto cluster = std::make_unique<VirtualCluster>();
  cluster->plan_ = std::move(plan);
  worker::RuntimeOptions options;
  options.feed = feed;
  options.seed = seed;
  options.backend = backend;
  options.gpus = gpus;
  options.observer = observer;
  options.fabric.cluster_id = "test";
  for (size_t i = 0; i < cluster->plan_.Main().size(); ++i) {
    for (const auto& [name, programs] : cluster->plan_.programs) {
      options.programs.push_back(programs[i]);
    }
    options.fabric.members.push_back({"local", "", "host", 1});
    options.fabric.local_ranks.push_back(static_cast<int>(i));
  }
  MW_ASSIGN_OR_RETURN(cluster->runtime_, worker::JobRuntime::Load(std::move(options)));
  MW_ASSIGN_OR_RETURN(const std::string invitation, cluster->runtime_->Invitation());
  MW_TRY(cluster->runtime_->Connect({invitation}));
  MW_TRY(cluster->runtime_->Launch({"init", 0, 1}));
  return cluster;
}

Result<std::vector<worker::StepReport>> VirtualCluster::Train(int64_t first_step, int64_t count) {
  return runtime_->Launch({"step", first_step, count});
}

Result<double> VirtualCluster::Validate(int64_t batches) {
  MW_ASSIGN_OR_RETURN(const std::vector<worker::StepReport> reports,
                      runtime_->Launch({"eval", 0, batches}));
  double sum = 0;
  double count = 0;
  for (const worker::StepReport& report : reports) {
    sum += report.values.at("loss_sum");
    count += report.values.at("count");
  }
  return sum / count;
}

Result<std::map<std::string, LogicalTensor>> VirtualCluster::Gather() {
  std::map<std::string, LogicalTensor> tensors;
  std::map<std::string, std::vector<bool>> seen;
  for (const ir::Program& program : plan_.Main()) {
    for (const ir::Slot& slot : program.slots) {
      if (!slot.persistent) continue;
      MW_ASSIGN_OR_RETURN(const ops::HostTensor block,
                          runtime_->ReadPersistent(program.device.value(), slot.name));
      LogicalTensor& tensor = tensors[slot.name];
      if (tensor.values.empty()) {
        tensor.dims = slot.global_dims;
        const int64_t elements = ir::TensorType{slot.type.dtype, slot.global_dims}.elements();
        tensor.values.resize(static_cast<size_t>(elements));
        seen[slot.name].resize(static_cast<size_t>(elements));
      }
      MW_TRY(Place(block, slot.box, slot.name, tensor, seen[slot.name]));
    }
  }
  for (const auto& [name, flags] : seen) {
    if (std::count(flags.begin(), flags.end(), false) > 0) {
      return Fail(Internal(fmt::format("{} is not covered by the devices", name)));
    }
  }
  return tensors;
}

std::map<std::pair<std::string, collective::Kind>, collective::Counters> VirtualCluster::Traffic()
    const {
  std::map<std::pair<std::string, collective::Kind>, collective::Counters> traffic;
  for (const worker::DeviceStats& stats : runtime_->Stats()) {
    for (const worker::CollectiveStat& stat : stats.collectives) {
      collective::Counters& total = traffic[{stat.axis, stat.kind}];
      total.calls += stat.counters.calls;
      total.bytes += stat.counters.bytes;
      total.seconds += stat.counters.seconds;
    }
  }
  return traffic;
}

double LargestDifference(const std::map<std::string, LogicalTensor>& a,
                         const std::map<std::string, LogicalTensor>& b, std::string* where) {
  double largest = 0;
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.dims != tensor.dims)
      return std::numeric_limits<double>::infinity();
    double scale = std::numeric_limits<double>::min();
    for (const double value : tensor.values) scale = std::max(scale, std::abs(value));
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const double x = tensor.values[i];
      const double y = other->second.values[i];
      const double difference = std::abs(x - y) / scale;
      if (!(difference <= largest)) {
        largest = difference;
        if (where) *where = fmt::format("{}[{}]: {} vs {}, scale {}", name, i, x, y, scale);
      }
    }
  }
  return largest;
}

}  // namespace meshwright::testing
