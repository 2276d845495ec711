// expert_slots, dispatch, combine and its gradient for weights, grouped_matmul and its gradient.
#include <fmt/format.h>

#include <algorithm>

#include "ops/cuda/cuda.h"
#include "ops/expert_runs.h"

namespace meshwright::ops::cuda {
namespace {

SlotPlaces PlacesOf(const SlotBlock& block) {
  return {block.rows,   block.groups, block.capacity,   block.width,
          block.tokens, block.k,      block.first_group};
}

KernelResult MakeDispatchOf(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.outputs[0], spec.inputs[1]));
  DispatchArgs args;
  args.at = PlacesOf(block);
  args.type = TypeOf(spec.inputs[0]);
  if (spec.inputs.size() > 2) args.weight = TypeOf(spec.inputs[2]);
  if (args.at.choices() > INT32_MAX) {
    return Fail(Unimplemented(fmt::format(
        "{}: GPUs take at most 2^31 choices here; use more microbatches", spec.ToString())));
  }
  return MakeCall(maker, args.at.slots() * static_cast<int64_t>(sizeof(int32_t)),
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    DispatchArgs call = args;
                    call.x = inputs[0].data;
                    call.slots = inputs[1].as<int32_t>();
                    call.weights = inputs.size() > 2 ? inputs[2].data : nullptr;
                    call.to = outputs[0].data;
                    call.choice_of = ScratchOf<int32_t>(context);
                    return kernels.Dispatch(call, stream);
                  });
}

KernelResult MakeCombineOf(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[0], spec.inputs[1]));
  CombineArgs args;
  args.at = PlacesOf(block);
  args.type = TypeOf(spec.inputs[0]);
  if (spec.inputs.size() > 2) args.weight = TypeOf(spec.inputs[2]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    CombineArgs call = args;
                    call.y = inputs[0].data;
                    call.slots = inputs[1].as<int32_t>();
                    call.weights = inputs.size() > 2 ? inputs[2].data : nullptr;
                    call.to = outputs[0].data;
                    return kernels.Combine(call, stream);
                  });
}

KernelResult MakeCombineGradWeightsOf(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[1], spec.inputs[2]));
  CombineGradWeightsArgs args;
  args.at = PlacesOf(block);
  args.type = TypeOf(spec.inputs[0]);
  args.result = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    CombineGradWeightsArgs call = args;
                    call.dy = inputs[0].data;
                    call.y = inputs[1].data;
                    call.slots = inputs[2].as<int32_t>();
                    call.to = outputs[0].data;
                    return kernels.CombineGradWeights(call, stream);
                  });
}

GroupedRuns RunsOf(const KernelSpec& spec) {
  const ir::Dims& x = spec.inputs[0].dims;
  return {nullptr, x[0], x[1], x[2], spec.inputs[1].dims[1]};
}

KernelResult MakeGroupedProduct(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  GroupedMatmulArgs args;
  args.runs = RunsOf(spec);
  args.d = spec.inputs[0].dims[3];
  args.f = spec.outputs[0].dims[3];
  args.transposed = spec.attrs.Int("transposed") != 0;
  args.type = TypeOf(spec.inputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    GroupedMatmulArgs call = args;
                    call.x = inputs[0].data;
                    call.runs.counts = inputs[1].as<int32_t>();
                    call.w = inputs[2].data;
                    call.to = outputs[0].data;
                    return kernels.GroupedMatmul(call, stream);
                  });
}

KernelResult MakeGroupedGrad(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  GroupedMatmulGradArgs args;
  args.runs = RunsOf(spec);
  args.d = spec.inputs[0].dims[3];
  args.f = spec.inputs[2].dims[3];
  args.type = TypeOf(spec.inputs[0]);
  args.result = TypeOf(spec.outputs[0]);
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    GroupedMatmulGradArgs call = args;
                    call.x = inputs[0].data;
                    call.runs.counts = inputs[1].as<int32_t>();
                    call.dy = inputs[2].data;
                    call.accumulator = inputs.size() > 3 ? inputs[3].data : nullptr;
                    call.to = outputs[0].data;
                    return kernels.GroupedMatmulGrad(call, stream);
                  });
}

}  // namespace

namespace {

KernelResult MakeHostPlaces(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  const ir::Dims& slots = spec.inputs[0].dims;
  const ir::Dims& within = spec.outputs[1].dims;
  ExpertSlotsArgs args;
  args.rows = slots[0];
  args.tokens = slots[1];
  args.k = slots[2];
  args.hosts = within[1];
  args.host_slots = spec.attrs.Int("groups") / within[1] * spec.attrs.Int("capacity");
  args.host_capacity = within[2];
  // A kernel cannot say that a host has no place left.
  if (args.host_capacity < std::min(args.tokens, args.host_slots)) {
    return Fail(Unimplemented(
        fmt::format("{}: GPUs want a place on each host for every token that may have slots there",
                    spec.ToString())));
  }
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext&, Inputs inputs,
                         Outputs outputs) {
                    ExpertSlotsArgs call = args;
                    call.ids = inputs[0].as<int32_t>();
                    call.slots = outputs[0].as<int32_t>();
                    call.used = outputs[1].as<int32_t>();
                    call.chosen = outputs[2].as<int32_t>();
                    return kernels.ExpertSlots(call, stream);
                  });
}

}  // namespace

KernelResult MakeExpertSlots(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  if (spec.attrs.Has("hosts")) return MakeHostPlaces(maker);
  const ir::Dims& ids = spec.inputs[0].dims;
  if (spec.inputs.size() > 1) {
    return Fail(Unimplemented(
        fmt::format("{}: GPUs give room in the order of tokens, not of scores; use another router",
                    spec.ToString())));
  }
  ExpertSlotsArgs args;
  args.rows = ids[0];
  args.tokens = ids[1];
  args.k = ids[2];
  args.experts = spec.attrs.Int("experts");
  args.groups = spec.attrs.Int("groups");
  args.capacity = spec.attrs.Int("capacity");
  args.by_choice = spec.attrs.Int("by_choice") != 0;
  // A kernel cannot say that the slots of a group are full; so there must be room for all choices.
  if (spec.attrs.Int("drop") == 0 && args.capacity < args.tokens * args.k) {
    return Fail(
        Unimplemented(fmt::format("{}: without dropping, GPUs want slots for all {} choices of a "
                                  "row in each group; leave out "
                                  "model.expert_slots_factor, or set model.capacity_factor",
                                  spec.ToString(), args.tokens * args.k)));
  }
  return MakeCall(maker, 0,
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    ExpertSlotsArgs call = args;
                    call.ids = inputs[0].as<int32_t>();
                    call.slots = outputs[0].as<int32_t>();
                    call.used = outputs[1].as<int32_t>();
                    call.chosen = outputs[2].as<int32_t>();
                    call.fault = FaultOf(context, ir::Op::kExpertSlots, args.experts);
                    return kernels.ExpertSlots(call, stream);
                  });
}

KernelResult MakeDispatch(const Maker& maker) {
  switch (maker.spec.op) {
    case ir::Op::kDispatch:
      return MakeDispatchOf(maker);
    case ir::Op::kCombine:
      return MakeCombineOf(maker);
    default:
      return MakeCombineGradWeightsOf(maker);
  }
}

KernelResult MakeGroupedMatmul(const Maker& maker) {
  return maker.spec.op == ir::Op::kGroupedMatmul ? MakeGroupedProduct(maker)
                                                 : MakeGroupedGrad(maker);
}

}  // namespace meshwright::ops::cuda
