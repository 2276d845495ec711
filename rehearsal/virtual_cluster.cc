#include "rehearsal/virtual_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/philox.h"
#include "ir/element_value.h"
#include "planner/memory.h"

namespace meshwright::rehearsal {
namespace {

double ElementAt(const std::vector<std::byte>& data, ir::DType dtype, size_t index) {
  return ir::LoadElement(data.data() + index * static_cast<size_t>(ir::DTypeBytes(dtype)), dtype);
}

// Copies a box into the logical tensor; elements seen before must be equal.
Status Place(const StateBlock& block, LogicalTensor& tensor, std::vector<bool>& seen) {
  Status status = OkStatus();
  ForEachElement(block.dims, block.box, [&](size_t i, size_t flat) {
    const double value = block.values[i];
    if (seen[flat] && status.ok() &&
        std::memcmp(&tensor.values[flat], &value, sizeof(double)) != 0) {
      status = Internal(fmt::format("replicas of {} differ at element {}: {} and {}", block.name,
                                    flat, tensor.values[flat], value));
    }
    tensor.values[flat] = value;
    seen[flat] = true;
  });
  return status;
}

}  // namespace

void ForEachElement(const ir::Dims& dims, const ir::Box& box,
                    const std::function<void(size_t in_box, size_t in_tensor)>& visit) {
  MW_CHECK(box.offset.size() == dims.size() && box.size.size() == dims.size())
      << "a box of " << box.size.size() << " dims in a tensor of " << dims.size();
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    MW_CHECK(box.offset[d] >= 0 && box.offset[d] + box.size[d] <= dims[d])
        << "dim " << d << " of a box ends behind " << dims[d];
    elements *= box.size[d];
  }
  std::vector<int64_t> index(dims.size(), 0);
  for (size_t i = 0; i < static_cast<size_t>(elements); ++i) {
    size_t flat = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      flat = flat * static_cast<size_t>(dims[d]) + static_cast<size_t>(box.offset[d] + index[d]);
    }
    visit(i, flat);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < box.size[d]) break;
      index[d] = 0;
    }
  }
}

Status SyntheticTokens::ReadSample(const std::string& source, int64_t sample,
                                   std::span<int32_t> row) {
  const uint64_t stream = StreamOf(source);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint32_t bits = PhiloxBits(seed_, stream, static_cast<uint64_t>(sample), i);
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
  // A device has what the plan says that the fullest takes; a GPU has buffers beside it.
  const bool on_gpus = options.gpus.driver != nullptr;
  if (!on_gpus) options.memory_limit_bytes = planner::FullestBytes(cluster->plan_.memory);
  options.fabric.cluster_id = "test";
  const auto uses_disk = [](const planner::DeviceMemory& memory) {
    return memory.disk.total_bytes > 0;
  };
  if (std::any_of(cluster->plan_.memory.begin(), cluster->plan_.memory.end(), uses_disk)) {
    MW_ASSIGN_OR_RETURN(cluster->scratch_, TempDir::Make());
    options.scratch.folder = cluster->scratch_->path();
  }
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

Result<std::vector<StateBlock>> VirtualCluster::ReadState() {
  std::vector<StateBlock> blocks;
  for (const ir::Program& program : plan_.Main()) {
    for (const ir::Slot& slot : program.slots) {
      if (!slot.persistent) continue;
      MW_ASSIGN_OR_RETURN(const ops::HostTensor tensor,
                          runtime_->ReadPersistent(program.device.value(), slot.name));
      StateBlock block{program.device.value(), slot.name, slot.global_dims, slot.box, {}};
      MW_CHECK(tensor.type == slot.part()) << slot.name << " is of another type than its slot";
      block.values.resize(static_cast<size_t>(tensor.type.elements()));
      for (size_t i = 0; i < block.values.size(); ++i) {
        block.values[i] = ElementAt(tensor.data, tensor.type.dtype, i);
      }
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

Result<std::map<std::string, LogicalTensor>> VirtualCluster::Gather() {
  MW_ASSIGN_OR_RETURN(const std::vector<StateBlock> blocks, ReadState());
  return Assemble(blocks);
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

Result<std::map<std::string, LogicalTensor>> Assemble(const std::vector<StateBlock>& blocks) {
  std::map<std::string, LogicalTensor> tensors;
  std::map<std::string, std::vector<bool>> seen;
  for (const StateBlock& block : blocks) {
    LogicalTensor& tensor = tensors[block.name];
    std::vector<bool>& flags = seen[block.name];
    if (tensor.values.empty()) {
      tensor.dims = block.dims;
      int64_t elements = 1;
      for (const int64_t size : block.dims) elements *= size;
      tensor.values.resize(static_cast<size_t>(elements));
      flags.resize(static_cast<size_t>(elements));
    }
    MW_TRY(Place(block, tensor, flags));
  }
  for (const auto& [name, flags] : seen) {
    if (std::count(flags.begin(), flags.end(), false) > 0) {
      return Fail(Internal(fmt::format("{} is not covered by the devices", name)));
    }
  }
  return tensors;
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

}  // namespace meshwright::rehearsal
