#include "worker/loaded_executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "device/device.h"
#include "ir/factored.h"
#include "ir/schema.h"
#include "ops/kernel_spec.h"

namespace meshwright::worker {
namespace {

using SteadyClock = std::chrono::steady_clock;

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

// The slot that a place is in; invalid for those of one RUN alone.
SlotId SlotOf(const Place& place, const ir::Instruction& run) {
  MW_CHECK(place.position >= 0) << "a place at " << place.position;
  const auto position = static_cast<size_t>(place.position);
  if (place.area == Place::Area::kInput) return run.inputs[position];
  if (place.area == Place::Area::kOutput) return run.outputs[position];
  return SlotId(-1);
}

// Of the operands that a kernel for several updates takes in one type each.
std::vector<ir::DType> TypesOf(const ir::Graph& graph, const ir::Node& node) {
  std::vector<ir::DType> types;
  for (ValueId value : node.inputs) types.push_back(graph.type(value).dtype);
  return types;
}

// All operands, node by node, then all results.
ops::KernelSpec SpecOf(const ir::Graph& graph, const std::vector<NodeId>& ids,
                       ops::DeviceCoords coords) {
  MW_CHECK(!ids.empty()) << "a kernel of no node";
  ops::KernelSpec spec;
  spec.op = graph.node(ids[0]).op;
  spec.attrs = graph.node(ids[0]).attrs;
  spec.coords = std::move(coords);
  for (NodeId id : ids) {
    for (ValueId value : graph.node(id).inputs) spec.inputs.push_back(graph.type(value));
    for (ValueId value : graph.node(id).outputs) spec.outputs.push_back(graph.type(value));
  }
  return spec;
}

Status RunNode(const LoadedExecutable::Node& node, std::span<const ops::Tensor> operands,
               std::span<const ops::Tensor> results, const LoadedExecutable::Call& call,
               const ops::RunContext& context, InstructionCounter& counter) {
  if (node.kernel) return node.kernel->Run(context, operands, results);
  std::byte* const scratch = call.ScratchOf(*node.collective);
  if (node.group == nullptr) {
    return node.collective->Run(operands, results, scratch, context.team);
  }
  counter.Meet(node.mark);
  MW_TRY(node.collective->Run(operands, results, scratch, context.team));
  counter.Part(node.mark);
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<LoadedExecutable>> LoadedExecutable::Load(
    const ir::Program& program, std::shared_ptr<const ir::Graph> graph, const ops::Target& target,
    Links& links, InstructionCounter& counter) {
  std::unique_ptr<LoadedExecutable> loaded(new LoadedExecutable(std::move(graph)));
  const std::vector<BoundRun> runs = loaded->RunsIn(program);
  for (size_t i = 0; i < loaded->graph_->nodes.size();) {
    const NodeId id(static_cast<int32_t>(i));
    if (loaded->graph_->node(id).op == ir::Op::kInput) {
      ++i;
      continue;
    }
    std::vector<NodeId> ids = loaded->EqualUpdates(id, target, runs);
    i += ids.size();
    const Status status = loaded->AddNode(program, std::move(ids), target, links, counter);
    if (!status.ok()) return Fail(status.WithContext(loaded->NameOf(id)));
  }
  return loaded;
}

std::vector<LoadedExecutable::BoundRun> LoadedExecutable::RunsIn(const ir::Program& program) const {
  std::vector<BoundRun> runs;
  for (const ir::Instruction& run : program.instructions) {
    if (run.op != ir::Opcode::kRun) continue;
    const auto executable = run.executable.index();
    if (program.executables[executable].graph != graph_) continue;
    runs.push_back({Bind(run.inputs, run.outputs), &run});
  }
  return runs;
}

// A slot lives from its first node to its last: that of a result may have the bytes of what another
// update, which comes first, has read. Only where every result takes the place of an operand of its
// own can the order be given up.
bool LoadedExecutable::UpdatesInPlace(const ir::Node& node,
                                      const std::vector<BoundRun>& runs) const {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::optional<size_t> operand = ir::InPlaceOperand(node.op, i);
    if (!operand.has_value()) return false;
    for (const BoundRun& of : runs) {
      const auto slot = [&](ValueId value) {
        return SlotOf(of.binding.values[value.index()], *of.run);
      };
      const SlotId result = slot(node.outputs[i]);
      if (result.value() < 0 || result != slot(node.inputs[*operand])) return false;
    }
  }
  return true;
}

std::vector<NodeId> LoadedExecutable::EqualUpdates(NodeId first, const ops::Target& target,
                                                   const std::vector<BoundRun>& runs) const {
  const ir::Node& node = graph_->node(first);
  std::vector<NodeId> ids = {first};
  const bool update =
      (node.op == ir::Op::kAdamW && !ir::IsFactored(node.attrs)) || node.op == ir::Op::kSgd;
  if (target.backend != ops::Backend::kCuda || !update || !UpdatesInPlace(node, runs)) return ids;
  // The last two operands are the same scalars.
  const auto scalars = [](const ir::Node& of) { return std::span(of.inputs).last(2); };
  for (int32_t next = first.value() + 1; next < static_cast<int32_t>(graph_->nodes.size());
       ++next) {
    const ir::Node& other = graph_->node(NodeId(next));
    if (other.op != node.op || other.attrs != node.attrs || !UpdatesInPlace(other, runs) ||
        !std::ranges::equal(scalars(other), scalars(node)) ||
        !std::ranges::equal(TypesOf(*graph_, other), TypesOf(*graph_, node))) {
      break;
    }
    ids.push_back(NodeId(next));
  }
  return ids;
}

Status LoadedExecutable::AddNode(const ir::Program& program, std::vector<NodeId> ids,
                                 const ops::Target& target, Links& links,
                                 InstructionCounter& counter) {
  const ir::Node& node = graph_->node(ids[0]);
  MW_CHECK(!node.outputs.empty()) << ir::OpName(node.op) << " makes nothing";
  Node loaded;
  loaded.operands = node.inputs.size() * ids.size();
  loaded.results = node.outputs.size() * ids.size();
  if (IsCollective(node.op)) {
    MW_ASSIGN_OR_RETURN(const GroupRef group, links.GroupOf(program, node.attrs.Strs("axes")));
    MW_ASSIGN_OR_RETURN(loaded.collective, MakeCollectiveNode(*graph_, node, group));
    loaded.group = group.group;
    if (group.group != nullptr) loaded.mark = counter.Group(group.group->name());
    int64_t& scratch_bytes =
        loaded.collective->bucket() ? bucket_scratch_bytes_ : collective_scratch_bytes_;
    scratch_bytes = std::max(scratch_bytes, device::AlignUp(loaded.collective->scratch_bytes()));
    group_scratch_bytes_ = std::max(group_scratch_bytes_, loaded.collective->group_scratch_bytes());
  } else if (ids.size() == 1) {
    MW_ASSIGN_OR_RETURN(loaded.kernel, ops::MakeKernel(target, *graph_, node, CoordsOf(program)));
  } else {
    MW_ASSIGN_OR_RETURN(loaded.kernel,
                        ops::MakeKernel(target, SpecOf(*graph_, ids, CoordsOf(program))));
  }
  if (loaded.kernel != nullptr) {
    kernel_scratch_bytes_ =
        std::max(kernel_scratch_bytes_, device::AlignUp(loaded.kernel->scratch_bytes()));
  }
  loaded.ids = std::move(ids);
  nodes_.push_back(std::move(loaded));
  return OkStatus();
}

void LoadedExecutable::SetGroupScratch(std::byte* memory, int64_t bytes) {
  for (const Node& node : nodes_) {
    if (node.collective == nullptr || node.collective->group_scratch_bytes() == 0) continue;
    node.collective->SetGroupScratch(memory, bytes);
  }
}

std::string LoadedExecutable::NameOf(NodeId id) const {
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
  MW_CHECK(binding.values.size() == graph_->values.size())
      << binding.values.size() << " places for the " << graph_->values.size() << " values of "
      << graph_->name;
  Call call;
  call.collective_scratch = areas.collective_scratch;
  call.bucket_scratch = areas.bucket_scratch;
  call.kernel_scratch = areas.scratch;
  std::byte* const own_scratch = areas.scratch + kernel_scratch_bytes_;
  const auto add = [&](ValueId id) {
    const Place& place = binding.values[id.index()];
    call.tensors.push_back({AddressOf(place, areas, own_scratch), &graph_->type(id)});
  };
  for (const Node& loaded : nodes_) {
    for (NodeId id : loaded.ids) {
      std::for_each(graph_->node(id).inputs.begin(), graph_->node(id).inputs.end(), add);
    }
    for (NodeId id : loaded.ids) {
      std::for_each(graph_->node(id).outputs.begin(), graph_->node(id).outputs.end(), add);
    }
  }
  for (const PlannedCopy& copy : binding.copies) {
    call.copies.push_back({AddressOf(copy.from, areas, own_scratch),
                           AddressOf(copy.to, areas, own_scratch), copy.bytes});
  }
  return call;
}

Status LoadedExecutable::Run(const Call& call, const ops::RunContext& context,
                             const FirstCause& cause, InstructionCounter& counter) {
  const ops::Tensor* next = call.tensors.data();
  for (const Node& node : nodes_) {
    if (cause.stopped()) return cause.status();
    const std::span<const ops::Tensor> operands(next, node.operands);
    const std::span<const ops::Tensor> results(next + node.operands, node.results);
    next += node.operands + node.results;
    const SteadyClock::time_point start =
        context.observer ? SteadyClock::now() : SteadyClock::time_point();
    const Status status = RunNode(node, operands, results, call, context, counter);
    if (!status.ok()) return status.WithContext(NodeName(node));
    counter.Passed(node.ids[0].value());
    if (context.observer != nullptr) {
      const std::chrono::duration<double> taken = SteadyClock::now() - start;
      context.observer->OnNode(*graph_, node.ids[0], taken.count());
    }
  }
  MW_CHECK(next == call.tensors.data() + call.tensors.size())
      << "tensors of " << graph_->name << " are left";
  for (const Copy& copy : call.copies) {
    std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  }
  return OkStatus();
}

}  // namespace meshwright::worker
