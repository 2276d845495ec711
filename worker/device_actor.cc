#include "worker/device_actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"

namespace meshwright::worker {
namespace {

// How often a waiting thread looks at its condition without being woken.
constexpr std::chrono::seconds kWaitSlice{1};

// Where the step is to be recorded.
void BeginRecord(std::vector<ir::StepRecord>& records, int64_t step, StepRecorder& recorder) {
  for (ir::StepRecord& record : records) {
    if (record.step == step) recorder.Begin(record);
  }
}

TileCopy PartOf(const DeviceMemory::Persistent& entry) {
  const ir::Box box{ir::Dims(entry.part.dims.size(), 0), entry.part.dims};
  return TileCopy(entry.type.dims, box, ir::DTypeBytes(entry.type.dtype));
}

// Of what a persistent slot holds, from byte `from` on.
Status ReadBytes(const DeviceMemory& memory, const DeviceMemory::Persistent& entry, int64_t from,
                 std::span<std::byte> into, device::Staging& staging) {
  switch (entry.space) {
    case ir::Space::kDevice:
      return staging.Read(into.data(), memory.Address(entry) + from,
                          static_cast<int64_t>(into.size()));
    case ir::Space::kHost:
      std::memcpy(into.data(), memory.Address(entry) + from, into.size());
      return OkStatus();
    case ir::Space::kDisk:
      return memory.file()->Read(entry.offset_bytes + from, into);
  }
  return OkStatus();
}

// All that counts of a persistent slot, which has padding.
Status ReadPart(const DeviceMemory& memory, const DeviceMemory::Persistent& entry,
                std::span<std::byte> into, device::Staging& staging) {
  if (into.empty()) return OkStatus();
  std::vector<std::byte> all(static_cast<size_t>(entry.type.bytes()));
  MW_TRY(ReadBytes(memory, entry, 0, all, staging));
  return PartOf(entry).Pack(all.data(), into.data(), static_cast<ThreadTeam*>(nullptr));
}

// Parts that stay in the cache of a core; of a GPU, that its bus is busy with for a while.
Status CopyInParts(const PersistentCopy& copy, const DeviceMemory::Persistent& entry,
                   const DeviceMemory& memory, const device::Device& device,
                   device::Staging& staging) {
  const auto bytes = static_cast<int64_t>(copy.into.size());
  if (entry.part != entry.type) {
    MW_TRY(ReadPart(memory, entry, copy.into, staging));
    if (copy.copied) copy.copied(0, bytes);
    return OkStatus();
  }
  // Where nobody looks at parts a large copy goes past the cache.
  const bool whole = device.kind() == device::Kind::kCpu && !copy.copied;
  const int64_t part = int64_t{1} << (device.kind() == device::Kind::kCpu ? 20 : 25);
  const int64_t most = whole ? std::max<int64_t>(bytes, 1) : part;
  for (int64_t begin = 0; begin < bytes; begin += most) {
    const int64_t end = std::min(bytes, begin + most);
    MW_TRY(ReadBytes(
        memory, entry, begin,
        copy.into.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), staging));
    if (copy.copied) copy.copied(begin, end);
  }
  return OkStatus();
}

}  // namespace

std::vector<double> LaunchRecord::BusySeconds() const {
  constexpr double kSecondsPerNs = 1e-9;
  std::vector<double> busy;
  for (size_t i = 0; i < seconds.size(); ++i) {
    busy.push_back(std::max(0.0, seconds[i] - static_cast<double>(waited_ns[i]) * kSecondsPerNs));
  }
  return busy;
}

DeviceActor::DeviceActor(ActorOptions options, LocalDevice device, Links& links, FirstCause& cause)
    : options_(options),
      local_(std::move(device)),
      device_(*local_.device),
      links_(links),
      cause_(cause),
      memory_(device_.kind() == device::Kind::kCuda),
      feed_(options.feed, options.mark),
      thread_(fmt::format("mw-dev-{}", options.rank)),
      scheduler_(thread_),
      loop_(scheduler_, kMailbox, [this](Order order) { OnOrder(std::move(order)); }) {
  counter_.SetMark(options_.mark);
}

DeviceActor::~DeviceActor() { Stop(); }

Status DeviceActor::Drain(const Deadline& deadline) {
  Status status = device_.queue().Finish(deadline);
  if (status.ok() && local_.collectives) status = local_.collectives->Finish(deadline);
  if (status.ok() && local_.tier_copies) status = local_.tier_copies->Finish(deadline);
  if (status.ok() && local_.host_runs) status = local_.host_runs->Finish(deadline);
  if (status.code() == StatusCode::kDeadlineExceeded) {
    device_.GiveUp(Unavailable(fmt::format("{}: its work did not end with the job; this process "
                                           "cannot use the device any more: restart it",
                                           device_.name()))
                       .WithBlame(Blame::kHardware));
  }
  return status;
}

Status DeviceActor::Post(Work what) {
  auto credit = loop_.Reserve();
  if (!credit) {
    return ResourceExhausted(
        fmt::format("rank {}: {} orders wait for the device, the most at once", rank(), kMailbox));
  }
  {
    const MutexLock lock(mutex_);
    ++pending_;
  }
  Order order{std::move(what), actor::ReplySlot<LaunchRecord>([this](Result<LaunchRecord> record) {
                OnDone(std::move(record));
              })};
  (void)loop_.Offer(std::move(*credit), std::move(order));
  return OkStatus();
}

void DeviceActor::OnOrder(Order order) {
  Result<LaunchRecord> record = Run(order);
  // Devices that wait for this one must not wait for their deadlines. Nobody waits for copies.
  const bool awaited = !std::holds_alternative<Copies>(order.what);
  if (!record.has_value() && awaited && !cause_.stopped()) cause_.Record(record.error());
  order.reply.Complete(std::move(record));
}

Result<LaunchRecord> DeviceActor::Run(Order& order) {
  try {
    if (std::holds_alternative<Allocation>(order.what)) {
      MW_TRY(Allocate());
      return LaunchRecord{};
    }
    if (const auto* const copies = std::get_if<Copies>(&order.what)) {
      for (const PersistentCopy& copy : *copies) {
        MW_ASSIGN_OR_RETURN(const DeviceMemory::Persistent* entry, FindPersistent(copy.slot));
        if (static_cast<int64_t>(copy.into.size()) != entry->part.bytes()) {
          return Fail(
              InvalidArgument(fmt::format("rank {}: '{}' of {} bytes is copied to {}", rank(),
                                          copy.slot, entry->part.bytes(), copy.into.size())));
        }
        MW_TRY(CopyInParts(copy, *entry, memory_, device_, *staging_));
      }
      return LaunchRecord{};
    }
    Steps& steps = std::get<Steps>(order.what);
    MW_TRY(RunSteps(steps));
    return std::move(steps.record);
  } catch (const std::exception& error) {
    return Fail(Internal(
        fmt::format("rank {}: exception in the device's thread: {}", rank(), error.what())));
  }
}

void DeviceActor::OnDone(Result<LaunchRecord> record) {
  const MutexLock lock(mutex_);
  if (record.has_value()) {
    std::swap(last_, *record);
  } else if (outcome_.ok()) {
    outcome_ = record.error();
  }
  MW_CHECK(pending_ > 0) << "rank " << rank() << " ends an order that nobody gave";
  if (--pending_ == 0) done_.NotifyAll();
}

Status DeviceActor::Wait() {
  const MutexLock lock(mutex_);
  while (pending_ != 0) (void)done_.WaitFor(mutex_, kWaitSlice);
  return std::exchange(outcome_, OkStatus());
}

Status DeviceActor::AddProgram(ir::Program program) {
  const std::string name = program.name;
  if (programs_.count(name) != 0) {
    return AlreadyExists(fmt::format("rank {} has two programs named '{}'", rank(), name));
  }
  // Started here, it runs on whichever cores the device's own thread is not pinned to.
  const bool cpu = device_.kind() == device::Kind::kCpu;
  if (cpu && program.overlap == ir::OverlapMode::kOn && beside_ == nullptr) {
    beside_ = std::make_unique<Executor>(fmt::format("mw-coll-{}", rank()));
  }
  MW_ASSIGN_OR_RETURN(programs_[name], LoadedProgram::Load(std::move(program), options_.target,
                                                           links_, memory_, counter_));
  return OkStatus();
}

const ir::Program* DeviceActor::FindProgram(const std::string& name) const {
  const auto it = programs_.find(name);
  return it == programs_.end() ? nullptr : &it->second->program();
}

Status DeviceActor::PostAllocate() { return Post(Allocation{}); }

Status DeviceActor::Allocate() {
  MW_TRY(device_.EnterThread());
  MW_TRY(memory_.Allocate(device_, options_.scratch).WithContext(fmt::format("rank {}", rank())));
  MW_ASSIGN_OR_RETURN(staging_, device::Staging::Make(device_));
  const Lanes lanes{
      &device_,      local_.collectives.get(), options_.record,        options_.stall_timeout_ms,
      options_.mark, local_.tier_copies.get(), local_.host_runs.get(), local_.host_threads};
  const bool queued = device_.kind() == device::Kind::kCuda;
  const TierRates rates{device_.host_link_bytes_per_s(), options_.scratch.bytes_per_s};
  for (auto& [name, program] : programs_) {
    MW_TRY(program->Resolve(memory_, queued ? &lanes : nullptr, rates, beside_.get())
               .WithContext(fmt::format("rank {}, program '{}'", rank(), name)));
  }
  for (auto& [name, program] : programs_) {
    MW_TRY(program->Record().WithContext(fmt::format("rank {}, program '{}'", rank(), name)));
  }
  return OkStatus();
}

Status DeviceActor::ShareMemory(collective::Fabric& fabric) const {
  MW_CHECK(memory_.allocated()) << "rank " << rank() << " has no memory to share";
  for (const device::Memory* memory : memory_.memories()) MW_TRY(fabric.Share(*memory));
  return OkStatus();
}

Status DeviceActor::PostSteps(const LaunchRequest& request, size_t most_marks) {
  MW_CHECK(request.count >= 1 && FindProgram(request.program) != nullptr)
      << "rank " << rank() << ": " << request.count << " steps of '" << request.program << "'";
  Steps steps;
  steps.program = programs_.at(request.program).get();
  steps.first_step = request.first_step;
  const auto count = static_cast<size_t>(request.count);
  steps.record.report_count = steps.program->program().reports.size();
  steps.record.seconds.assign(count, 0);
  steps.record.waited_ns.assign(count, 0);
  steps.record.values.assign(count * steps.record.report_count, 0);
  const ir::StepRange recorded =
      request.record.And({request.first_step, static_cast<int64_t>(count)});
  for (int64_t step = recorded.first; step < recorded.end(); ++step) {
    ir::StepRecord& record = steps.record.recorded.emplace_back();
    record.rank = rank();
    record.program = request.program;
    record.step = step;
    record.marks.reserve(std::min(most_marks, steps.program->marks()));
  }
  return Post(std::move(steps));
}

void DeviceActor::PostCopies(const std::vector<PersistentCopy>& copies) {
  Copies mine;
  for (const PersistentCopy& copy : copies) {
    if (copy.rank == rank()) mine.push_back(copy);
  }
  const Status posted = mine.empty() ? OkStatus() : Post(std::move(mine));
  const MutexLock lock(mutex_);
  if (outcome_.ok()) outcome_ = posted;
}

Status DeviceActor::RunSteps(Steps& steps) {
  using Clock = std::chrono::steady_clock;
  ops::RunContext context;
  context.seed = options_.seed;
  context.feed = feed_.source();
  context.observer = options_.observer;
  context.team = device_.team();
  LaunchRecord& record = steps.record;
  for (size_t i = 0; i < record.seconds.size(); ++i) {
    const Clock::time_point start = Clock::now();
    context.step = steps.first_step + static_cast<int64_t>(i);
    counter_.Enter(rank(), steps.program->program().name, context.step);
    BeginRecord(record.recorded, context.step, counter_.recorder());
    const Status ran = steps.program->RunStep(context, cause_, counter_);
    counter_.recorder().End();
    counter_.Leave();
    MW_TRY(ran);
    steps.program->ReadReports(
        {record.values.data() + i * record.report_count, record.report_count});
    record.seconds[i] = std::chrono::duration<double>(Clock::now() - start).count();
    record.waited_ns[i] = counter_.TakeWaitedNs();
  }
  const Clock::time_point end = Clock::now();
  MW_TRY(steps.program->EndSteps(context.step, cause_));
  record.seconds.back() += std::chrono::duration<double>(Clock::now() - end).count();
  return OkStatus();
}

std::span<const double> DeviceActor::values(int64_t index) const {
  MW_CHECK(index >= 0 && static_cast<size_t>(index) < last_.seconds.size())
      << "step " << index << " of " << last_.seconds.size();
  return {last_.values.data() + static_cast<size_t>(index) * last_.report_count,
          last_.report_count};
}

Result<const DeviceMemory::Persistent*> DeviceActor::FindPersistent(const std::string& slot) const {
  const auto it = memory_.persistent().find(slot);
  if (it != memory_.persistent().end()) return &it->second;
  return Fail(NotFound(fmt::format("rank {} has no persistent slot '{}' among its {}", rank(), slot,
                                   memory_.persistent().size())));
}

Status DeviceActor::ReadOutputs(const std::string& program,
                                std::vector<OutputBlock>& blocks) const {
  const ir::Program* const found = FindProgram(program);
  if (found == nullptr) {
    return NotFound(fmt::format("rank {} has no program '{}'", rank(), program));
  }
  for (const ir::Program::Report& output : found->outputs) {
    const ir::Slot& slot = found->slot(output.slot);
    OutputBlock& block = blocks.emplace_back();
    block.name = output.name;
    block.type = {slot.type.dtype, slot.global_dims};
    block.box = slot.box;
    block.bytes.resize(static_cast<size_t>(slot.type.bytes()));
    MW_TRY(staging_->Read(block.bytes.data(), memory_.Address(slot), slot.type.bytes()));
  }
  return OkStatus();
}

Result<ops::HostTensor> DeviceActor::ReadPersistent(const std::string& slot) const {
  MW_ASSIGN_OR_RETURN(const DeviceMemory::Persistent* entry, FindPersistent(slot));
  ops::HostTensor tensor{entry->part, {}};
  tensor.data.resize(static_cast<size_t>(entry->part.bytes()));
  MW_TRY(CopyPersistent(slot, tensor.data));
  return tensor;
}

Status DeviceActor::CopyPersistent(const std::string& slot, std::span<std::byte> into) const {
  MW_ASSIGN_OR_RETURN(const DeviceMemory::Persistent* entry, FindPersistent(slot));
  MW_CHECK(staging_ != nullptr) << "rank " << rank() << " reads '" << slot << "' before its memory";
  if (static_cast<int64_t>(into.size()) != entry->part.bytes()) {
    return InvalidArgument(fmt::format("rank {}: '{}' of {} bytes is read into {}", rank(), slot,
                                       entry->part.bytes(), into.size()));
  }
  if (entry->part != entry->type) return ReadPart(memory_, *entry, into, *staging_);
  return ReadBytes(memory_, *entry, 0, into, *staging_);
}

Status DeviceActor::FillPersistent(const std::string& slot, const FillBlock& fill) {
  MW_ASSIGN_OR_RETURN(const DeviceMemory::Persistent* entry, FindPersistent(slot));
  MW_CHECK(staging_ != nullptr) << "rank " << rank() << " fills '" << slot << "' before its memory";
  const bool in_place = entry->space == ir::Space::kHost || (entry->space == ir::Space::kDevice &&
                                                             device_.kind() == device::Kind::kCpu);
  const auto bytes = static_cast<size_t>(entry->type.bytes());
  const bool padded = entry->part != entry->type;
  if (in_place && !padded) return fill({memory_.Address(*entry), bytes});
  std::vector<std::byte> copy(bytes);
  if (!padded) {
    MW_TRY(fill(copy));
  } else if (entry->part.bytes() > 0) {
    std::vector<std::byte> part(static_cast<size_t>(entry->part.bytes()));
    MW_TRY(fill(part));
    MW_TRY(PartOf(*entry).Unpack(part.data(), copy.data(), static_cast<ThreadTeam*>(nullptr)));
  }
  if (in_place) {
    std::copy(copy.begin(), copy.end(), memory_.Address(*entry));
    return OkStatus();
  }
  if (entry->space == ir::Space::kDisk) return memory_.file()->Write(entry->offset_bytes, copy);
  return staging_->Write(memory_.Address(*entry), copy.data(), entry->type.bytes());
}

DeviceStats DeviceActor::stats() const {
  DeviceStats stats;
  stats.rank = rank();
  stats.instructions = counter_.Read();
  const device::MemoryUse use = device_.memory();
  for (int i = 0; i < device::kMemoryKindCount; ++i) {
    const auto kind = static_cast<ir::MemoryKind>(i);
    if (use[kind] != 0) stats.memory_bytes[kind] = use[kind];
  }
  stats.host_bytes = memory_.host_bytes();
  stats.disk_bytes = memory_.disk_bytes();
  stats.collectives = links_.Stats(rank());
  return stats;
}

}  // namespace meshwright::worker
