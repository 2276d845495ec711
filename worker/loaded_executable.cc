#include "worker/loaded_executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "device/device.h"

namespace meshwright::worker {
namespace {

using Clock = std::chrono::steady_clock;

ops::DeviceCoords CoordsOf(const ir::Program& program) {
  ops::DeviceCoords coords;
  for (const ir::MeshAxis& axis : program.axes) {
    coords.axes.push_back(axis.name);
    coords.sizes.push_back(axis.size);
  }
  coords.coords = program.coords;
  coords.microbatches = program.microbatches;
  return coords;
}

std::byte* AddressOf(const Place& place, const LoadedExecutable::Areas& areas,
                     std::byte* binding_scratch) {
  const auto position = static_cast<size_t>(place.position);
  switch (place.area) {
    case Place::Area::kInput:
      return areas.inputs[position];
    case Place::Area::kOutput:
      return areas.outputs[position];
    case Place::Area::kWorkspace:
      return areas.workspace + place.position;
    case Place::Area::kScratch:
      return binding_scratch + place.position;
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<LoadedExecutable>> LoadedExecutable::Load(
    const ir::Program& program, std::shared_ptr<const ir::Graph> graph, ops::Backend backend,
    Links& links) {
  std::unique_ptr<LoadedExecutable> loaded(new LoadedExecutable(std::move(graph)));
  for (size_t i = 0; i < loaded->graph_->nodes.size(); ++i) {
    const NodeId id(static_cast<int32_t>(i));
    if (loaded->graph_->node(id).op == ir::Op::kInput) continue;
    if (Status status = loaded->AddNode(program, id, backend, links); !status.ok()) {
      return Fail(status.WithContext(loaded->NodeName(id)));
    }
  }
  return loaded;
}

Status LoadedExecutable::AddNode(const ir::Program& program, NodeId id, ops::Backend backend,
                                 Links& links) {
  const ir::Node& node = graph_->node(id);
  LoadedNode loaded;
  loaded.id = id;
  loaded.operands = node.inputs.size();
  loaded.results = node.outputs.size();
  if (IsCollective(node.op)) {
    MW_ASSIGN_OR_RETURN(const GroupRef group, links.GroupOf(program, node.attrs.Strs("axes")));
    MW_ASSIGN_OR_RETURN(loaded.collective, MakeCollectiveNode(*graph_, node, group));
    collective_scratch_bytes_ =
        std::max(collective_scratch_bytes_, device::AlignUp(loaded.collective->scratch_bytes()));
  } else {
    MW_ASSIGN_OR_RETURN(loaded.kernel, ops::MakeKernel(backend, *graph_, node, CoordsOf(program)));
  }
  nodes_.push_back(std::move(loaded));
  return OkStatus();
}

std::string LoadedExecutable::NodeName(NodeId id) const {
  const ir::Node& node = graph_->node(id);
  const int32_t value = node.outputs.empty() ? -1 : node.outputs[0].value();
  return fmt::format("%{} = {} of '{}'", value, ir::OpName(node.op), graph_->name);
}

RunBinding LoadedExecutable::Bind(std::span<const SlotId> inputs,
                                  std::span<const SlotId> outputs) const {
  return BindRun(*graph_, workspace_, inputs, outputs);
}

LoadedExecutable::Call LoadedExecutable::Resolve(const RunBinding& binding,
                                                 const Areas& areas) const {
  Call call;
  call.scratch = areas.scratch;
  std::byte* const own_scratch = areas.scratch + collective_scratch_bytes_;
  const auto add = [&](ValueId id) {
    const Place& place = binding.values[static_cast<size_t>(id.value())];
    call.tensors.push_back({AddressOf(place, areas, own_scratch), &graph_->type(id)});
  };
  for (const LoadedNode& loaded : nodes_) {
    const ir::Node& node = graph_->node(loaded.id);
    std::for_each(node.inputs.begin(), node.inputs.end(), add);
    std::for_each(node.outputs.begin(), node.outputs.end(), add);
  }
  for (const PlannedCopy& copy : binding.copies) {
    call.copies.push_back({AddressOf(copy.from, areas, own_scratch),
                           AddressOf(copy.to, areas, own_scratch), copy.bytes});
  }
  return call;
}

Status LoadedExecutable::Run(const Call& call, const ops::RunContext& context,
                             const FirstCause& cause) {
  const ops::Tensor* next = call.tensors.data();
  for (const LoadedNode& node : nodes_) {
    if (cause.stopped()) return cause.status();
    const std::span<const ops::Tensor> operands(next, node.operands);
    const std::span<const ops::Tensor> results(next + node.operands, node.results);
    next += node.operands + node.results;
    const Clock::time_point start = context.observer ? Clock::now() : Clock::time_point();
    const Status status = node.kernel
                              ? node.kernel->Run(context, operands, results)
                              : node.collective->Run(operands, results, call.scratch, context.team);
    if (!status.ok()) return status.WithContext(NodeName(node.id));
    if (context.observer != nullptr) {
      const std::chrono::duration<double> taken = Clock::now() - start;
      context.observer->OnNode(*graph_, node.id, taken.count());
    }
  }
  for (const Copy& copy : call.copies) {
    std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  }
  return OkStatus();
}

}  // namespace meshwright::worker
