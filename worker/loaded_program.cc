#include "worker/loaded_program.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "ir/text.h"
#include "worker/program_check.h"

namespace meshwright::worker {
namespace {

// Scratch bytes of a transfer: none when the tile is sent from, or received into, its place.
int64_t TransferScratch(const TileCopy& tile) { return tile.contiguous() ? 0 : tile.bytes(); }

}  // namespace

InstructionCounts InstructionCounter::Read() const {
  const auto read = [&](ir::Opcode op) {
    return counts_[static_cast<size_t>(op)].load(std::memory_order_relaxed);
  };
  return {read(ir::Opcode::kRun), read(ir::Opcode::kSend), read(ir::Opcode::kRecv),
          read(ir::Opcode::kFree)};
}

Result<std::unique_ptr<LoadedProgram>> LoadedProgram::Load(ir::Program program,
                                                           ops::Backend backend, Links& links,
                                                           DeviceMemory& memory) {
  MW_TRY(CheckProgram(program));
  MW_TRY(memory.AddProgram(program));
  std::unique_ptr<LoadedProgram> loaded(new LoadedProgram(std::move(program)));
  const std::string name =
      fmt::format("program {}/{}", loaded->program_.name, loaded->program_.device.value());
  for (const ir::Executable& executable : loaded->program_.executables) {
    auto made = LoadedExecutable::Load(loaded->program_, executable.graph, backend, links);
    if (!made.has_value()) return Fail(made.error().WithContext(name));
    loaded->executables_.push_back(std::move(*made));
  }
  for (const ir::Instruction& instruction : loaded->program_.instructions) {
    Result<Step> step = loaded->LoadInstruction(instruction, links);
    if (!step.has_value()) return Fail(step.error().WithContext(name));
    memory.AddScratch(step->op == ir::Opcode::kRun ? step->executable->scratch_bytes(step->binding)
                                                   : TransferScratch(step->tile));
    loaded->steps_.push_back(std::move(*step));
  }
  return loaded;
}

Result<LoadedProgram::Step> LoadedProgram::LoadInstruction(const ir::Instruction& instruction,
                                                           Links& links) const {
  Step step;
  step.op = instruction.op;
  if (instruction.op == ir::Opcode::kRun) {
    step.executable = executables_[static_cast<size_t>(instruction.executable.value())].get();
    step.binding = step.executable->Bind(instruction.inputs, instruction.outputs);
  } else if (instruction.op != ir::Opcode::kFree) {
    const ir::TensorType& type = program_.slot(instruction.slot).type;
    step.tile = TileCopy(type.dims, instruction.box, ir::DTypeBytes(type.dtype));
    MW_ASSIGN_OR_RETURN(
        step.channel,
        links.ChannelOf(program_,
                        program_.channels[static_cast<size_t>(instruction.channel.value())]));
  }
  return step;
}

void LoadedProgram::Resolve(const DeviceMemory& memory) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const ir::Instruction& instruction = program_.instructions[i];
    Step& step = steps_[i];
    if (step.op == ir::Opcode::kRun) {
      ResolveRun(instruction, memory, step);
    } else if (step.op != ir::Opcode::kFree) {
      step.tensor = memory.Address(program_.slot(instruction.slot));
      step.message =
          step.tile.contiguous() ? step.tensor + step.tile.offset_bytes() : memory.scratch();
    }
  }
  for (const ir::Program::Report& report : program_.reports) {
    report_places_.push_back(memory.Address(program_.slot(report.slot)));
  }
}

void LoadedProgram::ResolveRun(const ir::Instruction& run, const DeviceMemory& memory,
                               Step& step) const {
  LoadedExecutable::Areas areas;
  for (SlotId id : run.inputs) areas.inputs.push_back(memory.Address(program_.slot(id)));
  for (SlotId id : run.outputs) areas.outputs.push_back(memory.Address(program_.slot(id)));
  areas.workspace = memory.arena() + program_.workspace_offset;
  areas.scratch = memory.scratch();
  step.call = step.executable->Resolve(step.binding, areas);
  step.binding = {};
}

Status LoadedProgram::RunStep(const ops::RunContext& context, FirstCause& cause,
                              InstructionCounter& counter) {
  ops::RunContext run_context = context;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (cause.stopped()) return cause.status();
    run_context.microbatch = program_.instructions[i].microbatch;
    if (const Status status = RunInstruction(steps_[i], run_context, cause); !status.ok()) {
      if (!cause.stopped()) cause.Record(Locate(status, i, context.step, cause));
      return cause.status();
    }
    counter.Count(steps_[i].op);
  }
  return OkStatus();
}

Status LoadedProgram::RunInstruction(Step& step, const ops::RunContext& context,
                                     const FirstCause& cause) {
  switch (step.op) {
    case ir::Opcode::kRun:
      return step.executable->Run(step.call, context, cause);
    case ir::Opcode::kSend:
      if (!step.tile.contiguous()) step.tile.Pack(step.tensor, step.message, context.team);
      return step.channel->Send(step.message, step.tile.bytes());
    case ir::Opcode::kRecv:
      MW_TRY(step.channel->Receive(step.message, step.tile.bytes()));
      if (!step.tile.contiguous()) step.tile.Unpack(step.message, step.tensor, context.team);
      return OkStatus();
    case ir::Opcode::kFree:
      return OkStatus();  // offsets are static
  }
  return OkStatus();
}

Status LoadedProgram::Locate(const Status& failure, size_t instruction, int64_t step,
                             const FirstCause& cause) const {
  const std::string place = fmt::format(
      "rank {}, program '{}', step {}, instruction {} ({})", program_.device.value(), program_.name,
      step, instruction, ir::FormatInstruction(program_, program_.instructions[instruction]));
  // A transfer that failed because the fabric did repeats the fabric's cause, which has its own
  // place: somewhere else.
  const Status fabric = cause.fabric().status();
  if (!fabric.ok() && failure.message().find(fabric.message()) != std::string::npos) {
    return Status(fabric.code(), fmt::format("{} (seen by {})", fabric.message(), place))
        .WithBlame(fabric.blame());
  }
  return failure.WithContext(place);
}

void LoadedProgram::ReadReports(std::span<double> values) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const bool wide = program_.slot(program_.reports[i].slot).type.dtype == ir::DType::kF64;
    values[i] = wide ? *reinterpret_cast<const double*>(report_places_[i])
                     : static_cast<double>(*reinterpret_cast<const float*>(report_places_[i]));
  }
}

}  // namespace meshwright::worker
