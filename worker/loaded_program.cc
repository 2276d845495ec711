#include "worker/loaded_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "ir/text.h"
#include "worker/program_check.h"

namespace meshwright::worker {
namespace {

// None for a transfer when the tile is sent from, or received into, its place.
ScratchNeed NeedOf(const StepInstruction& step) {
  if (step.op == ir::Opcode::kRun) return step.executable->scratch(step.binding);
  return {0, step.tile.contiguous() ? 0 : step.tile.bytes()};
}

std::string NameOf(const ir::Program& program, int64_t instruction) {
  MW_CHECK(instruction >= 0 && static_cast<size_t>(instruction) < program.instructions.size())
      << "instruction " << instruction << " of " << program.instructions.size();
  const ir::Instruction& named = program.instructions[static_cast<size_t>(instruction)];
  return fmt::format("instruction {} ({})", instruction, ir::NameInstruction(program, named));
}

Status RunInstruction(StepInstruction& step, const ops::RunContext& context,
                      const FirstCause& cause, InstructionCounter& counter) {
  switch (step.op) {
    case ir::Opcode::kRun:
      return step.executable->Run(step.call, context, cause, counter);
    case ir::Opcode::kSend:
    case ir::Opcode::kRecv:
      return RunMessage(step, context, counter);
    case ir::Opcode::kPrefetch:
    case ir::Opcode::kOffload:
      return OkStatus();  // worker/tier_copies.h
    case ir::Opcode::kFree:
      return OkStatus();  // offsets are static
  }
  return OkStatus();
}

// Per executable: the host runs it, on what is in its memory.
std::vector<bool> OnHost(const ir::Program& program) {
  std::vector<bool> on_host(program.executables.size(), false);
  for (const ir::Instruction& instruction : program.instructions) {
    if (!ir::RunsOnHost(program, instruction)) continue;
    on_host[instruction.executable.index()] = true;
  }
  return on_host;
}

// Who takes an instruction of a CPU device.
TierLane LaneOf(const ir::Program& program, const ir::Instruction& instruction) {
  if (ir::RunsOnHost(program, instruction)) return TierLane::kHostRuns;
  if (!ir::IsTierCopy(instruction.op)) return TierLane::kComputes;
  for (const SlotId id : {instruction.inputs[0], instruction.outputs[0]}) {
    if (program.slot(id).space == ir::Space::kDisk) return TierLane::kDisk;
  }
  return TierLane::kHost;
}

Access AccessTo(const std::byte* data, int64_t bytes, bool writes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + static_cast<uintptr_t>(bytes), writes};
}

void ResolveCopy(const ir::Program& program, const ir::Instruction& copy,
                 const DeviceMemory& memory, StepInstruction& step) {
  const ir::Slot& from = program.slot(copy.inputs[0]);
  const ir::Slot& to = program.slot(copy.outputs[0]);
  step.bytes = from.type.bytes();
  for (const ir::Slot* slot : {&from, &to}) {
    if (slot->space != ir::Space::kDisk) continue;
    step.file = memory.file();
    step.file_offset = memory.FileOffset(*slot);
  }
  if (from.space != ir::Space::kDisk) step.from = memory.Address(from);
  if (to.space != ir::Space::kDisk) step.to = memory.Address(to);
}

}  // namespace

Result<std::unique_ptr<LoadedProgram>> LoadedProgram::Load(ir::Program program,
                                                           const ops::Target& target, Links& links,
                                                           DeviceMemory& memory,
                                                           InstructionCounter& counter) {
  MW_TRY(CheckProgram(program));
  MW_TRY(memory.AddProgram(program));
  std::unique_ptr<LoadedProgram> loaded(new LoadedProgram(std::move(program)));
  const std::string name =
      fmt::format("program {}/{}", loaded->program_.name, loaded->program_.device.value());
  const ops::Target of_host =
      target.backend == ops::Backend::kCuda ? ops::Target(ops::Backend::kCpu) : target;
  const std::vector<bool> on_host = OnHost(loaded->program_);
  for (size_t e = 0; e < on_host.size(); ++e) {
    auto made = LoadedExecutable::Load(loaded->program_, loaded->program_.executables[e].graph,
                                       on_host[e] ? of_host : target, links, counter);
    if (!made.has_value()) return Fail(made.error().WithContext(name));
    memory.AddGroupScratch((*made)->group_scratch_bytes());
    loaded->executables_.push_back(std::move(*made));
  }
  for (const ir::Instruction& instruction : loaded->program_.instructions) {
    Result<Step> step = loaded->LoadInstruction(instruction, links);
    if (!step.has_value()) return Fail(step.error().WithContext(name));
    if (ir::RunsOnHost(loaded->program_, instruction)) {
      step->host = &loaded->host_runs_;
      step->host->AddScratch(NeedOf(*step));
    } else if (step->op == ir::Opcode::kRun || IsMessage(step->op)) {
      memory.AddScratch(NeedOf(*step));
    }
    loaded->steps_.push_back(std::move(*step));
  }
  if (target.backend != ops::Backend::kCuda) loaded->StartTierThreads();
  return loaded;
}

Result<LoadedProgram::Step> LoadedProgram::LoadInstruction(const ir::Instruction& instruction,
                                                           Links& links) const {
  Step step;
  step.op = instruction.op;
  step.microbatch = instruction.microbatch;
  if (instruction.op == ir::Opcode::kRun) {
    step.executable = executables_[instruction.executable.index()].get();
    step.binding = step.executable->Bind(instruction.inputs, instruction.outputs);
  } else if (IsMessage(instruction.op)) {
    const ir::TensorType& type = program_.slot(instruction.slot).type;
    step.tile = TileCopy(type.dims, instruction.box, ir::DTypeBytes(type.dtype));
    MW_ASSIGN_OR_RETURN(step.channel,
                        links.ChannelOf(program_, program_.channels[instruction.channel.index()]));
  }
  return step;
}

Status LoadedProgram::Resolve(const DeviceMemory& memory, const Lanes* lanes, TierRates rates,
                              Executor* beside) {
  MW_CHECK(memory.allocated()) << "program " << program_.name << " before its memory";
  MW_CHECK(steps_.size() == program_.instructions.size() && report_places_.empty())
      << "program " << program_.name << " is resolved once";
  for (const auto& executable : executables_) {
    executable->SetGroupScratch(memory.group_scratch(), memory.group_scratch_bytes());
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    MW_TRY(ResolveInstruction(i, memory, lanes != nullptr));
  }
  for (const ir::Program::Report& report : program_.reports) {
    const ir::Slot& slot = program_.slot(report.slot);
    report_places_.push_back({memory.Address(slot), slot.type.bytes()});
  }
  if (lanes == nullptr) {
    MakeTierCopies(memory, rates);
    const bool overlaps = program_.overlap == ir::OverlapMode::kOn && tiers_ == nullptr;
    if (overlaps && beside != nullptr) lanes_ = StepLanes::Make(steps_, *beside);
    return OkStatus();
  }
  const bool on_host = std::any_of(steps_.begin(), steps_.end(),
                                   [](const Step& step) { return step.host != nullptr; });
  if (on_host) host_runs_.SetThreads(lanes->host_threads);
  MW_ASSIGN_OR_RETURN(queued_, QueuedStep::Make(*lanes, steps_, report_places_,
                                                program_.overlap != ir::OverlapMode::kOff,
                                                on_host ? &host_runs_ : nullptr));
  return OkStatus();
}

Status LoadedProgram::ResolveInstruction(size_t index, const DeviceMemory& memory, bool queued) {
  const ir::Instruction& instruction = program_.instructions[index];
  Step& step = steps_[index];
  if (step.op == ir::Opcode::kRun) {
    ResolveRun(instruction, memory, step);
  } else if (ir::IsTierCopy(step.op)) {
    ResolveCopy(program_, instruction, memory, step);
    if (queued && step.file != nullptr) {
      return Unimplemented(
          "GPUs keep nothing on a disk: optimizer and weights can be in the memory of the host, "
          "parallelism.optimizer_memory = \"host\"");
    }
  } else if (IsMessage(step.op)) {
    step.tensor = memory.Address(program_.slot(instruction.slot));
    step.message = step.tile.contiguous() ? step.tensor + step.tile.offset_bytes()
                                          : memory.scratch(NeedOf(step));
  }
  return OkStatus();
}

void LoadedProgram::StartTierThreads() {
  std::vector<TierLane> lanes;
  for (const ir::Instruction& instruction : program_.instructions) {
    lanes.push_back(LaneOf(program_, instruction));
  }
  tier_threads_ = worker::StartTierThreads(lanes, std::to_string(program_.device.value()));
}

// What an instruction touches: its slots, and for a RUN the workspace that others' slots may have
// had before, unless the host does it. What is on a disk is touched by one thread alone.
void LoadedProgram::MakeTierCopies(const DeviceMemory& memory, TierRates rates) {
  const auto is_there = [](const auto& thread) { return thread != nullptr; };
  if (std::none_of(tier_threads_.begin(), tier_threads_.end(), is_there)) return;
  std::vector<TierItem> items(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const ir::Instruction& instruction = program_.instructions[i];
    if (instruction.op == ir::Opcode::kFree) continue;
    TierItem& item = items[i];
    const auto add = [&](SlotId id, bool writes) {
      const ir::Slot& slot = program_.slot(id);
      if (slot.space == ir::Space::kDisk) return;
      item.accesses.push_back(AccessTo(memory.Address(slot), slot.type.bytes(), writes));
    };
    for (const SlotId id : instruction.inputs) add(id, false);
    for (const SlotId id : instruction.outputs) add(id, true);
    if (instruction.slot.valid()) add(instruction.slot, instruction.op == ir::Opcode::kRecv);
    item.lane = LaneOf(program_, instruction);
    if (item.lane == TierLane::kHostRuns) {
      item.run = [this, i](int64_t step) { return host_runs_.Run(steps_[i], step); };
      continue;
    }
    if (instruction.op == ir::Opcode::kRun) {
      item.accesses.push_back(
          AccessTo(memory.arena() + program_.workspace_offset, program_.workspace_bytes, true));
    }
    if (item.lane == TierLane::kComputes) continue;
    item.from = steps_[i].from;
    item.to = steps_[i].to;
    item.bytes = steps_[i].bytes;
    item.file = steps_[i].file;
    item.file_offset = steps_[i].file_offset;
  }
  tiers_ = std::make_unique<TierCopies>(items, rates, std::move(tier_threads_));
}

Status LoadedProgram::Record() {
  if (queued_ == nullptr) return OkStatus();
  const Status recorded = queued_->Record();
  const int64_t instruction = queued_->reached();
  return instruction < 0 ? recorded : recorded.WithContext(NameOf(program_, instruction));
}

void LoadedProgram::ResolveRun(const ir::Instruction& run, const DeviceMemory& memory, Step& step) {
  LoadedExecutable::Areas areas;
  for (SlotId id : run.inputs) areas.inputs.push_back(memory.Address(program_.slot(id)));
  for (SlotId id : run.outputs) areas.outputs.push_back(memory.Address(program_.slot(id)));
  areas.workspace = memory.arena() + program_.workspace_offset;
  areas.collective_scratch = memory.collective_scratch();
  areas.bucket_scratch = memory.bucket_scratch();
  areas.scratch = memory.scratch(NeedOf(step));
  if (step.host != nullptr) areas.scratch = step.host->scratch();
  step.call = step.executable->Resolve(step.binding, areas);
  step.binding = {};
}

Status LoadedProgram::RunStep(const ops::RunContext& context, FirstCause& cause,
                              InstructionCounter& counter) {
  if (queued_ != nullptr || lanes_ != nullptr) {
    MW_TRY(queued_ != nullptr ? RunQueued(context, cause) : RunLanes(context, cause, counter));
    for (const Step& step : steps_) counter.Count(step.op);
    return OkStatus();
  }
  if (tiers_ == nullptr) return RunInstructions(context, cause, counter);
  if (tiers_->idle()) host_runs_.Begin(context, cause);
  const Status begun = tiers_->Begin(context.step);
  if (begun.ok()) {
    const Status ran = RunInstructions(context, cause, counter);
    if (!ran.ok()) tiers_->Stop();
    return ran;
  }
  tiers_->Stop();
  if (!cause.stopped()) cause.Record(Locate(begun, -1, context.step - 1, cause));
  return cause.status();
}

Status LoadedProgram::EndSteps(int64_t last_step, FirstCause& cause) {
  if (tiers_ == nullptr) return OkStatus();
  const Status copied = tiers_->End();
  if (copied.ok()) return copied;
  if (!cause.stopped()) cause.Record(Locate(copied, -1, last_step, cause));
  return cause.status();
}

Status LoadedProgram::RunInstructions(const ops::RunContext& context, FirstCause& cause,
                                      InstructionCounter& counter) {
  ops::RunContext run_context = context;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (cause.stopped()) return cause.status();
    run_context.microbatch = steps_[i].microbatch;
    counter.At(i);
    const bool beside = ir::IsTierCopy(steps_[i].op) || steps_[i].host != nullptr;
    const bool computes = tiers_ != nullptr && !beside;
    Status status = computes ? tiers_->Await(i) : OkStatus();
    if (computes) counter.Passed(ir::StepMark::kAwaited);
    if (status.ok() && !beside) {
      status = RunInstruction(steps_[i], run_context, cause, counter);
    }
    if (!status.ok()) {
      if (!cause.stopped()) {
        cause.Record(Locate(status, static_cast<int64_t>(i), context.step, cause));
      }
      return cause.status();
    }
    if (computes) tiers_->Passed(i);
    counter.Passed(ir::StepMark::kWhole);
    counter.Count(steps_[i].op);
  }
  return OkStatus();
}

size_t LoadedProgram::marks() const {
  size_t marks = 2 * steps_.size();  // each may wait for a copy
  for (const Step& step : steps_) {
    if (step.op == ir::Opcode::kRun) marks += step.executable->nodes().size();
  }
  return marks;
}

Status LoadedProgram::RunLanes(const ops::RunContext& context, FirstCause& cause,
                               InstructionCounter& counter) {
  const auto failed = [&](int64_t instruction, const Status& failure) {
    if (!cause.stopped()) cause.Record(Locate(failure, instruction, context.step, cause));
  };
  return lanes_->Run(context, cause, counter, failed);
}

Status LoadedProgram::RunQueued(const ops::RunContext& context, FirstCause& cause) {
  if (cause.stopped()) return cause.status();
  const Status status = queued_->Run(context, cause);
  if (status.ok()) return status;
  if (!cause.stopped()) cause.Record(Locate(status, queued_->reached(), context.step, cause));
  return cause.status();
}

Status LoadedProgram::Locate(const Status& failure, int64_t instruction, int64_t step,
                             const FirstCause& cause) const {
  std::string place =
      fmt::format("rank {}, program '{}', step {}", program_.device.value(), program_.name, step);
  if (instruction >= 0) place += fmt::format(", {}", NameOf(program_, instruction));
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
  MW_CHECK(values.size() == program_.reports.size())
      << values.size() << " places for " << program_.reports.size() << " reports";
  for (size_t i = 0; i < values.size(); ++i) {
    const std::byte* const place =
        queued_ == nullptr ? report_places_[i].data : queued_->reports() + i * kReportBytes;
    if (program_.slot(program_.reports[i].slot).type.dtype == ir::DType::kF64) {
      std::memcpy(&values[i], place, sizeof(double));
    } else {
      float value = 0;
      std::memcpy(&value, place, sizeof(value));
      values[i] = static_cast<double>(value);
    }
  }
}

}  // namespace meshwright::worker
