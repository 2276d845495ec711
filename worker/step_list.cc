#include "worker/step_list.h"

#include <utility>

#include "base/check.h"

namespace meshwright::worker {
namespace {

using Kind = StepItem::Kind;

// Few, for they cost a launch each; enough for a device to be kept busy while the host waits for
// one of them.
constexpr int kItemsPerMark = 64;
// A recording is made and sent to the device as a whole: larger ones save nothing any more.
constexpr size_t kMostRecorded = 2000;

Access Touching(const void* data, int64_t bytes, bool writes) {
  MW_CHECK(bytes >= 0) << bytes << " bytes are touched";
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + static_cast<uintptr_t>(bytes), writes};
}

void AddTensors(std::span<const ops::Tensor> tensors, bool writes, std::vector<Access>& accesses) {
  for (const ops::Tensor& tensor : tensors) {
    accesses.push_back(Touching(tensor.data, tensor.type->bytes(), writes));
  }
}

// Bytes that stand for the right to run, where one thing does at a time.
constexpr std::byte kTurn{};

class Builder {
 public:
  Builder(StepList& list, Collectives collectives) : list_(list), collectives_(collectives) {}

  void AddInstruction(const StepInstruction& instruction, int64_t index) {
    const size_t before = list_.items.size();
    index_ = index;
    if (instruction.host != nullptr) {
      AddHostRun(instruction);
    } else if (instruction.op == ir::Opcode::kRun) {
      AddRun(instruction);
    } else if (ir::IsTierCopy(instruction.op)) {
      AddTierCopy(instruction);
    } else if (instruction.op != ir::Opcode::kFree) {
      AddTransfer(instruction);
    }
    if (list_.items.size() == before) return;
    const StepItem& last = list_.items.back();
    if (last.kind != Kind::kMark && last.queued.queue == kComputing) AddMark(kComputing);
  }

  void AddReport(const ReportPlace& report, std::byte* to, int64_t index) {
    index_ = index;
    AddCopy(report.data, to, report.bytes);
    list_.items.back().kind = Kind::kReport;
  }

 private:
  bool by_threads() const { return collectives_ == Collectives::kBesideKernels; }

  void Add(StepItem item) {
    item.instruction = index_;
    if (collectives_ == Collectives::kInTurn) {
      item.queued.accesses.push_back(Touching(&kTurn, 1, item.kind == Kind::kCollective));
    }
    list_.items.push_back(std::move(item));
    const StepItem& added = list_.items.back();
    if (added.queued.queue != kComputing) return AddMark(added.queued.queue);
    if (++unmarked_ >= kItemsPerMark) AddMark(kComputing);
  }

  void AddMark(int queue) {
    if (by_threads()) return;
    StepItem mark;
    mark.kind = Kind::kMark;
    mark.instruction = index_;
    mark.queued.queue = queue;
    list_.items.push_back(std::move(mark));
    list_.items.back().mark = static_cast<int32_t>(list_.items.size());
    if (queue == kComputing) unmarked_ = 0;
  }

  void AddRun(const StepInstruction& run) {
    bool prepares = false;
    const ops::Tensor* next = run.call.tensors.data();
    for (const LoadedExecutable::Node& node : run.executable->nodes()) {
      StepItem item;
      item.executable = run.executable;
      item.node = &node;
      item.operands = {next, node.operands};
      item.results = {next + node.operands, node.results};
      next += node.operands + node.results;
      item.microbatch = run.microbatch;
      std::vector<Access>& accesses = item.queued.accesses;
      AddTensors(item.operands, false, accesses);
      AddTensors(item.results, true, accesses);
      if (node.kernel != nullptr) {
        item.kind = Kind::kKernel;
        item.scratch = run.call.kernel_scratch;
        accesses.push_back(Touching(item.scratch, node.kernel->scratch_bytes(), true));
        prepares = prepares || node.kernel->prepares();
      } else {
        item.kind = Kind::kCollective;
        item.scratch = run.call.ScratchOf(*node.collective);
        item.queued.queue = node.collective->alone() || by_threads() ? kComputing : kCollectives;
        if (by_threads() && node.group != nullptr) {
          accesses.push_back(Touching(node.group, 1, true));
        }
        accesses.push_back(Touching(item.scratch, node.collective->scratch_bytes(), true));
      }
      Add(std::move(item));
    }
    MW_CHECK(next == run.call.tensors.data() + run.call.tensors.size())
        << "instruction " << index_ << " has tensors that no node takes";
    for (const LoadedExecutable::Copy& copy : run.call.copies) {
      AddCopy(copy.from, copy.to, copy.bytes);
    }
    if (prepares) list_.prepared.push_back(&run);
  }

  // One item: the host's thread goes through its nodes.
  void AddHostRun(const StepInstruction& run) {
    MW_CHECK(!by_threads()) << "instruction " << index_ << " is for no thread here";
    StepItem item;
    item.kind = Kind::kHostRun;
    item.queued.queue = kHostCalls;
    item.run = &run;
    const ops::Tensor* next = run.call.tensors.data();
    for (const LoadedExecutable::Node& node : run.executable->nodes()) {
      AddTensors({next, node.operands}, false, item.queued.accesses);
      AddTensors({next + node.operands, node.results}, true, item.queued.accesses);
      next += node.operands + node.results;
    }
    for (const LoadedExecutable::Copy& copy : run.call.copies) {
      item.queued.accesses.push_back(Touching(copy.from, copy.bytes, false));
      item.queued.accesses.push_back(Touching(copy.to, copy.bytes, true));
    }
    Add(std::move(item));
  }

  void AddCopy(const std::byte* from, std::byte* to, int64_t bytes, int queue = kComputing) {
    StepItem item;
    item.kind = Kind::kCopy;
    item.queued.queue = queue;
    item.from = from;
    item.to = to;
    item.bytes = bytes;
    item.queued.accesses = {Touching(from, bytes, false), Touching(to, bytes, true)};
    Add(std::move(item));
  }

  void AddTierCopy(const StepInstruction& copy) {
    AddCopy(copy.from, copy.to, copy.bytes, kTierCopies);
    StepItem& last = list_.items[list_.items.size() - 2];  // its mark is behind it
    last.kind = copy.op == ir::Opcode::kPrefetch ? Kind::kPrefetch : Kind::kOffload;
  }

  void AddTransfer(const StepInstruction& transfer) {
    const bool sends = transfer.op == ir::Opcode::kSend;
    StepItem item;
    item.kind = sends ? Kind::kSend : Kind::kReceive;
    item.transfer = &transfer;
    const TileCopy& tile = transfer.tile;
    item.queued.accesses = {
        Touching(transfer.tensor + tile.offset_bytes(), tile.span_bytes(), !sends),
        Touching(transfer.message, tile.bytes(), !(sends && tile.contiguous()))};
    Add(std::move(item));
  }

  StepList& list_;
  const Collectives collectives_;
  int64_t index_ = 0;  // of the instruction
  int unmarked_ = 0;   // items of the computing queue behind its last mark
};

bool Conflict(const QueueItem& a, const QueueItem& b) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      if ((x.writes || y.writes) && x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

// Whether a kernel is between the collective and what it must wait for, or what must wait for it.
bool MayRunBeside(const std::vector<StepItem>& items, size_t collective) {
  MW_CHECK(items[collective].kind == Kind::kCollective) << "item " << collective;
  const auto meets_kernel = [&](auto next) {
    for (size_t i = next(collective); i < items.size(); i = next(i)) {
      if (Conflict(items[i].queued, items[collective].queued)) return false;
      if (items[i].kind == Kind::kKernel) return true;
    }
    return false;
  };
  // Before the first item comes none: the number wraps round.
  return meets_kernel([](size_t i) { return i - 1; }) ||
         meets_kernel([](size_t i) { return i + 1; });
}

void MoveBeside(std::vector<StepItem>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    const bool meets = items[i].kind == Kind::kCollective && !items[i].node->collective->alone();
    if (meets && MayRunBeside(items, i)) items[i].queued.queue = kCollectives;
  }
}

void CutPieces(const QueueOrder& order, StepList& list) {
  MW_CHECK(order.items.size() == list.items.size())
      << order.items.size() << " items are ordered, " << list.items.size() << " are there";
  std::vector<StepPiece>& pieces = list.pieces;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const QueueOrder::Item& ordered = order.items[i];
    const StepItem& item = list.items[i];
    const bool joins = !pieces.empty() && pieces.back().recordable && item.recordable() &&
                       pieces.back().event < 0 && ordered.waits.empty() &&
                       pieces.back().items() < kMostRecorded;
    if (!joins) {
      StepPiece piece;
      piece.begin = i;
      piece.queue = item.queued.queue;
      piece.recordable = item.recordable();
      piece.waits = ordered.waits;
      pieces.push_back(std::move(piece));
    }
    pieces.back().end = i + 1;
    pieces.back().event = ordered.event;
  }
}

}  // namespace

// Kernels have one or two; collectives pack and unpack what they join; transfers have their ring's
// copy and events.
int64_t StepItem::launches() const {
  switch (kind) {
    case Kind::kKernel:
      return 2;
    case Kind::kCollective:
      return static_cast<int64_t>(1 + operands.size() + results.size());
    case Kind::kSend:
    case Kind::kReceive:
      return 4;
    default:
      return 1;
  }
}

StepList MakeStepList(std::span<const StepInstruction> instructions,
                      std::span<const ReportPlace> reports, std::byte* report_bytes,
                      Collectives collectives) {
  StepList list;
  Builder builder(list, collectives);
  for (size_t i = 0; i < instructions.size(); ++i) {
    builder.AddInstruction(instructions[i], static_cast<int64_t>(i));
  }
  for (const ReportPlace& report : reports) {
    builder.AddReport(report, report_bytes, static_cast<int64_t>(instructions.size()));
    report_bytes += kReportBytes;
  }
  if (collectives == Collectives::kBesideKernels) MoveBeside(list.items);
  std::vector<QueueItem> queued;
  for (const StepItem& item : list.items) queued.push_back(item.queued);
  const QueueOrder order = OrderQueues(queued, kQueues);
  list.events = order.events;
  CutPieces(order, list);
  return list;
}

}  // namespace meshwright::worker
