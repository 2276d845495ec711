#include "worker/queued_step.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "device/cuda/queue.h"

namespace meshwright::worker {
namespace {

using Kind = StepItem::Kind;
using SteadyClock = std::chrono::steady_clock;

// A quarter of what drivers take: StepItem::launches() is an estimate.
constexpr int64_t kMostOutstanding = 256;
// Where the parts of the device's small memory are.
constexpr int64_t kFaultOffset = 64;
constexpr int64_t kMemoryBytes = 128;

constexpr auto kNever = [] { return false; };

// Called by the driver.
void RunOnHost(void* run) {
  const auto& given = *static_cast<const StepInstruction*>(run);
  given.host->RunQueued(given);
}

}  // namespace

// What the host and the device tell each other; the reports' bytes follow.
struct QueuedStep::Mailbox {
  ops::StepState state;
  ops::Fault fault;
  int32_t marks[kQueues] = {};  // of StepProgress
};

QueuedStep::QueuedStep(const Lanes& lanes) : lanes_(lanes) {}

QueuedStep::~QueuedStep() = default;

Result<std::unique_ptr<QueuedStep>> QueuedStep::Make(const Lanes& lanes,
                                                     std::span<const StepInstruction> instructions,
                                                     std::span<const ReportPlace> reports,
                                                     bool overlap, HostRuns* host) {
  std::unique_ptr<QueuedStep> made(new QueuedStep(lanes));
  made->host_ = host;
  MW_TRY(made->Allocate(reports.size()));
  made->list_ = MakeStepList(instructions, reports, const_cast<std::byte*>(made->reports()),
                             overlap ? Collectives::kOwnQueue : Collectives::kInTurn);
  made->progress_ = StepProgress(made->mailbox().marks, made->list_.items.size());
  made->recordings_.resize(made->list_.pieces.size());
  for (int i = 0; i < made->list_.events; ++i) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<device::Event> event, lanes.device->MakeEvent());
    made->events_.push_back(std::move(event));
  }
  return made;
}

Status QueuedStep::Allocate(size_t reports) {
  const auto report_bytes = static_cast<int64_t>(reports) * kReportBytes;
  MW_ASSIGN_OR_RETURN(memory_, lanes_.device->Allocate({ir::MemoryKind::kOther, kMemoryBytes}));
  MW_ASSIGN_OR_RETURN(
      mailbox_, lanes_.device->AllocateHost(static_cast<int64_t>(sizeof(Mailbox)) + report_bytes));
  new (mailbox_->data()) Mailbox();
  return OkStatus();
}

QueuedStep::Mailbox& QueuedStep::mailbox() const {
  return *reinterpret_cast<Mailbox*>(mailbox_->data());
}

const std::byte* QueuedStep::reports() const { return mailbox_->data() + sizeof(Mailbox); }

device::Queue& QueuedStep::QueueOf(int queue) const {
  MW_CHECK(queue >= 0 && queue < kQueues) << "queue " << queue << " of " << kQueues;
  if (queue == kComputing) return lanes_.device->queue();
  if (queue == kCollectives) return *lanes_.collectives;
  return queue == kTierCopies ? *lanes_.tier_copies : *lanes_.host_runs;
}

void QueuedStep::Fill(ops::RunContext& context) const {
  context.queue = &lanes_.device->queue();
  context.state = reinterpret_cast<const ops::StepState*>(memory_->data());
  context.fault = reinterpret_cast<ops::Fault*>(memory_->data() + kFaultOffset);
}

// ---- Recording it -------------------------------------------------------------------------------

Status QueuedStep::Record() {
  if (!lanes_.record || !lanes_.device->queue().can_record()) return OkStatus();
  ops::RunContext context;
  Fill(context);
  Status status = RecordCopies();
  for (size_t i = 0; i < list_.pieces.size() && lanes_.device->status().ok(); ++i) {
    if (!list_.pieces[i].recordable) continue;
    Status recorded = RecordPiece(i, context);
    if (status.ok()) status = std::move(recorded);
    // One item is given as fast as its recording: that was for the kernel to be loaded.
    if (list_.pieces[i].items() == 1) recordings_[i].reset();
  }
  reached_ = -1;
  if (!lanes_.device->status().ok()) return lanes_.device->status();
  if (status.ok()) return status;
  LogWarn(fmt::format("{}: a step cannot be recorded before it has run: {}", lanes_.device->name(),
                      status.message()));
  return OkStatus();
}

Status QueuedStep::RecordPiece(size_t piece, ops::RunContext& context) {
  MW_CHECK(piece < recordings_.size() && list_.pieces[piece].recordable) << "piece " << piece;
  MW_TRY(context.queue->StartRecording());
  const Status given = EnqueueItems(list_.pieces[piece], context, nullptr);
  // Also after a failure: the queue must not stay in the state of recording.
  Result<std::unique_ptr<device::Recording>> recording = context.queue->FinishRecording();
  MW_TRY(given);
  if (!recording.has_value()) return recording.error();
  recordings_[piece] = std::move(*recording);
  return OkStatus();
}

// The copies around transfers are kernels, too.
Status QueuedStep::RecordCopies() {
  std::map<const void*, const StepItem*> with_copies;  // the first item of each
  for (const StepItem& item : list_.items) {
    if (item.kind == Kind::kCollective) with_copies.emplace(item.node->collective.get(), &item);
    if (item.transfer != nullptr && !item.transfer->tile.contiguous()) {
      with_copies.emplace(item.transfer, &item);
    }
  }
  if (with_copies.empty()) return OkStatus();
  device::Queue& queue = lanes_.device->queue();
  MW_TRY(queue.StartRecording());
  Status given;
  for (const auto& [what, item] : with_copies) {
    if (given.ok()) given = EnqueueCopies(*item, queue);
  }
  const auto recording = queue.FinishRecording();
  MW_TRY(given);
  return recording.has_value() ? OkStatus() : recording.error();
}

Status QueuedStep::EnqueueCopies(const StepItem& item, device::Queue& queue) {
  if (item.kind == Kind::kCollective) {
    return item.node->collective->RunCopies(item.operands, item.results, item.scratch, queue);
  }
  const StepInstruction& transfer = *item.transfer;
  return item.kind == Kind::kSend ? transfer.tile.Pack(transfer.tensor, transfer.message, queue)
                                  : transfer.tile.Unpack(transfer.message, transfer.tensor, queue);
}

// ---- Running it ---------------------------------------------------------------------------------

Status QueuedStep::Run(const ops::RunContext& given, const FirstCause& cause) {
  reached_ = -1;
  ops::RunContext context = given;
  MW_TRY(Begin(context, cause));
  Status status =
      context.observer != nullptr ? RunObserved(context, cause) : EnqueuePieces(context, cause);
  if (status.ok()) status = End(cause);
  if (!status.ok()) return Explain(status, cause);
  ++steps_;
  return ops::FaultStatus(mailbox().fault);
}

Status QueuedStep::Begin(ops::RunContext& context, const FirstCause& cause) {
  if (host_ != nullptr) host_->Begin(context, cause);
  Fill(context);
  mailbox().state = {context.seed, context.step};
  progress_.Start();
  for (const StepInstruction* run : list_.prepared) {
    context.microbatch = run->microbatch;
    for (const LoadedExecutable::Node& node : run->executable->nodes()) {
      if (node.kernel == nullptr || !node.kernel->prepares()) continue;
      MW_TRY(node.kernel->Prepare(context).WithContext(run->executable->NodeName(node)));
    }
  }
  return context.queue->CopyIn(memory_->data(), &mailbox().state, sizeof(ops::StepState));
}

Status QueuedStep::Enqueue(const StepItem& item, ops::RunContext& context) {
  device::Queue& queue = QueueOf(item.queued.queue);
  switch (item.kind) {
    case Kind::kKernel:
      context.scratch = item.scratch;
      context.microbatch = item.microbatch;
      return item.node->kernel->Run(context, item.operands, item.results)
          .WithContext(item.executable->NodeName(*item.node));
    case Kind::kCollective:
      return item.node->collective->Run(item.operands, item.results, item.scratch, queue)
          .WithContext(item.executable->NodeName(*item.node));
    case Kind::kCopy:
      return queue.Copy(item.to, item.from, item.bytes);
    case Kind::kPrefetch:
      return queue.CopyIn(item.to, item.from, item.bytes);
    case Kind::kOffload:
    case Kind::kReport:
      return queue.CopyOut(item.to, item.from, item.bytes);
    case Kind::kSend: {
      const StepInstruction& send = *item.transfer;
      if (!send.tile.contiguous()) MW_TRY(send.tile.Pack(send.tensor, send.message, queue));
      return send.channel->Send(send.message, send.tile.bytes());
    }
    case Kind::kReceive: {
      const StepInstruction& receive = *item.transfer;
      MW_TRY(receive.channel->Receive(receive.message, receive.tile.bytes()));
      if (receive.tile.contiguous()) return OkStatus();
      return receive.tile.Unpack(receive.message, receive.tensor, queue);
    }
    case Kind::kHostRun:
      return device::cuda::CallHost(queue, &RunOnHost, const_cast<StepInstruction*>(item.run));
    case Kind::kMark:
      return queue.Mark(&mailbox().marks[item.queued.queue], item.mark);
  }
  return OkStatus();
}

Status QueuedStep::EnqueuePieces(ops::RunContext& context, const FirstCause& cause) {
  for (size_t i = 0; i < list_.pieces.size(); ++i) {
    if (cause.stopped()) return cause.status();
    MW_TRY(EnqueuePiece(i, context, cause));
  }
  return OkStatus();
}

Status QueuedStep::EnqueuePiece(size_t index, ops::RunContext& context, const FirstCause& cause) {
  StepPiece& piece = list_.pieces[index];
  MW_CHECK(index < recordings_.size() && piece.event < list_.events)
      << "piece " << index << ", event " << piece.event;
  device::Queue& queue = QueueOf(piece.queue);
  if (lanes_.mark != nullptr) lanes_.mark->At(list_.items[piece.begin].instruction);
  for (const int event : piece.waits) MW_TRY(queue.WaitFor(*events_[static_cast<size_t>(event)]));
  const bool worth = lanes_.record && piece.recordable && piece.items() > 1 && queue.can_record();
  if (worth && recordings_[index] == nullptr && steps_ > 0 && !RecordPiece(index, context).ok()) {
    MW_TRY(lanes_.device->status());
    piece.recordable = false;  // twice is enough: it is given item by item
    reached_ = -1;
  }
  if (worth && recordings_[index] != nullptr) {
    MW_TRY(MakeRoom(1, cause));
    MW_TRY(queue.Replay(*recordings_[index]));
    progress_.Give(piece.queue, piece.begin, piece.end, 1);
  } else {
    MW_TRY(EnqueueItems(piece, context, &cause));
  }
  return piece.event < 0 ? OkStatus() : queue.Record(*events_[static_cast<size_t>(piece.event)]);
}

Status QueuedStep::EnqueueItems(const StepPiece& piece, ops::RunContext& context,
                                const FirstCause* cause) {
  for (size_t i = piece.begin; i < piece.end; ++i) {
    const StepItem& item = list_.items[i];
    if (cause != nullptr) MW_TRY(MakeRoom(item.launches(), *cause));
    if (Status status = Enqueue(item, context); !status.ok()) {
      reached_ = item.instruction;
      return status;
    }
    if (cause != nullptr) progress_.Give(piece.queue, i, i + 1, item.launches());
  }
  return OkStatus();
}

// Item by item, so that each can be timed.
Status QueuedStep::RunObserved(ops::RunContext& context, const FirstCause& cause) {
  for (size_t i = 0; i < list_.items.size(); ++i) {
    const StepItem& item = list_.items[i];
    const SteadyClock::time_point start = SteadyClock::now();
    StepPiece piece;
    piece.begin = i;
    piece.end = i + 1;
    piece.queue = item.queued.queue;
    MW_TRY(EnqueueItems(piece, context, &cause));
    MW_TRY(Await(item.queued.queue, cause, kNever));
    if (item.node == nullptr) continue;
    const std::chrono::duration<double> taken = SteadyClock::now() - start;
    context.observer->OnNode(item.executable->graph(), item.node->ids[0], taken.count());
  }
  return OkStatus();
}

Status QueuedStep::End(const FirstCause& cause) {
  MW_TRY(lanes_.device->queue().CopyOut(&mailbox().fault, memory_->data() + kFaultOffset,
                                        sizeof(ops::Fault)));
  MW_TRY(Await(kComputing, cause, kNever));
  MW_TRY(Await(kCollectives, cause, kNever));
  MW_TRY(Await(kTierCopies, cause, kNever));
  MW_TRY(Await(kHostCalls, cause, kNever));
  MW_TRY(HostStatus());
  // An abort ends what waits for a peer: the queues are empty then, and the results are not there.
  return cause.status();
}

Status QueuedStep::HostStatus() {
  const HostRuns::Failure failure = host_ == nullptr ? HostRuns::Failure() : host_->failure();
  for (const StepItem& item : list_.items) {
    if (failure.run != nullptr && item.run == failure.run) reached_ = item.instruction;
  }
  return failure.status;
}

// ---- Waiting for it -----------------------------------------------------------------------------

Status QueuedStep::MakeRoom(int64_t launches, const FirstCause& cause) {
  const auto enough = [&] {
    const int64_t outstanding = progress_.outstanding();
    return outstanding == 0 || outstanding + launches <= kMostOutstanding;
  };
  for (int queue = 0; queue < kQueues && !enough(); ++queue) {
    MW_TRY(Await(queue, cause, enough));
  }
  return OkStatus();
}

Status QueuedStep::Await(int queue, const FirstCause& cause, FunctionRef<bool()> enough) {
  const bool is_there = queue == kTierCopies ? lanes_.tier_copies != nullptr
                                             : queue != kHostCalls || lanes_.host_runs != nullptr;
  if (!is_there) return OkStatus();
  bool patient = false;
  while (true) {
    const int64_t before = progress_.Sum();
    bool may_go_on = false;
    bool stopped = false;
    const auto interrupted = [&]() -> Status {
      static const Status end_of_wait = Cancelled("the host may go on");
      const Status stop = cause.stopped() ? cause.status() : cause.fabric().Poll();
      stopped = !stop.ok();
      may_go_on = !stopped && enough();
      return may_go_on ? end_of_wait : stop;
    };
    const Status status =
        QueueOf(queue).Finish(Deadline::After(lanes_.stall_timeout_ms), interrupted);
    if (status.ok()) progress_.Empty(queue);
    if (may_go_on) return OkStatus();
    if (stopped || status.code() != StatusCode::kDeadlineExceeded) return status;
    if (progress_.Sum() != before) {
      patient = false;
      continue;
    }
    const bool by_peer = AwaitedPeer() != nullptr;
    if (!by_peer || patient) return Stalled(by_peer);
    patient = true;
  }
}

Status QueuedStep::Stalled(bool by_peer) {
  MW_CHECK(!by_peer || AwaitedPeer() != nullptr) << "nobody is waited for";
  const int64_t waited_ms = lanes_.stall_timeout_ms * (by_peer ? 2 : 1);
  const Status stalled = DeadlineExceeded(fmt::format(
      "{} has finished no work for {} s{}", lanes_.device->name(),
      static_cast<double>(waited_ms) / 1000, by_peer ? "; it waits for another device" : ""));
  reached_ = by_peer ? AwaitedPeer()->instruction : InstructionBehindMark();
  return by_peer ? stalled.WithBlame(Blame::kPeerVictim) : stalled;
}

// One look at the device: its own error is the reason for all others, and comes from where it is,
// not from what was being given to it.
Status QueuedStep::Explain(const Status& failure, const FirstCause& cause) {
  (void)lanes_.device->queue().Finish(Deadline::After(0));
  const Status lost = lanes_.device->status();
  if (!lost.ok() || reached_ < 0) reached_ = InstructionBehindMark();
  return lost.ok() || cause.stopped() ? failure : lost;
}

const StepItem* QueuedStep::Front(int queue) const {
  const size_t end = progress_.given(queue);
  for (size_t i = progress_.done(queue); i < end; ++i) {
    const StepItem& item = list_.items[i];
    if (item.queued.queue == queue && item.kind != Kind::kMark) return &item;
  }
  return nullptr;
}

// A collective of an earlier instruction, or of this one, is what the computing queue waits for: it
// is not through what it could do before it.
const StepItem* QueuedStep::AwaitedPeer() const {
  const StepItem* const computing = Front(kComputing);
  if (computing != nullptr && computing->meets_peers()) return computing;
  const StepItem* const collective = Front(kCollectives);
  if (collective == nullptr) return nullptr;
  const bool first = computing == nullptr || collective->instruction <= computing->instruction;
  return first ? collective : nullptr;
}

int64_t QueuedStep::InstructionBehindMark() const {
  for (size_t i = progress_.done(kComputing); i < list_.items.size(); ++i) {
    const StepItem& item = list_.items[i];
    if (item.kind == Kind::kMark) continue;
    return item.kind == Kind::kReport ? -1 : item.instruction;
  }
  return -1;
}

}  // namespace meshwright::worker
