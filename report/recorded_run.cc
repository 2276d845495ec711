#include "report/recorded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::report {
namespace {

constexpr size_t kMostSaves = 64;

const ir::Program* ProgramOf(const planner::Plan& plan, int rank) {
  for (const ir::Program& program : plan.Main()) {
    if (program.device.value() == rank) return &program;
  }
  return nullptr;
}

void Shift(ir::StepRecord& record, int64_t ns) {
  record.begin_ns -= ns;
  record.end_ns -= ns;
  for (ir::StepMark& mark : record.marks) mark.end_ns -= ns;
}

}  // namespace

Status CheckRecord(const ir::Program& program, const ir::StepRecord& record) {
  const auto wrong = [&](const std::string& what) {
    return InvalidArgument(fmt::format("step {} of rank {}: {}", record.step, record.rank, what));
  };
  if (record.program != program.name) return wrong("of another program");
  int64_t last_ns = record.begin_ns;
  for (const ir::StepMark& mark : record.marks) {
    if (mark.end_ns < last_ns || mark.end_ns > record.end_ns)
      return wrong("its times run backwards");
    last_ns = mark.end_ns;
    if (mark.instruction < 0 ||
        static_cast<size_t>(mark.instruction) >= program.instructions.size()) {
      return wrong(fmt::format("instruction {}", mark.instruction));
    }
    if (mark.node < ir::StepMark::kNothing) return wrong(fmt::format("node {}", mark.node));
    if (mark.node < 0) continue;
    const ir::Instruction& run = program.instructions[static_cast<size_t>(mark.instruction)];
    const bool known = run.executable.valid() &&
                       run.executable.index() < program.executables.size() &&
                       static_cast<size_t>(mark.node) <
                           program.executables[run.executable.index()].graph->nodes.size();
    if (!known) return wrong(fmt::format("node {} of instruction {}", mark.node, mark.instruction));
  }
  return record.end_ns < last_ns ? wrong("it ends before its last mark") : OkStatus();
}

ir::StepRange RecordedRun::Add(const planner::Plan& plan, std::vector<MemberNote> members,
                               int64_t save) {
  // Clocks first: members of one host have one.
  for (const MemberNote& member : members) {
    if (!member.round.complete()) continue;
    const HostClock heard{member.round.offset_ns(), member.round.error_ns()};
    const auto [at, fresh] = clocks_.try_emplace(member.host, heard);
    if (!fresh && heard.error_ns < at->second.error_ns) at->second = heard;
  }
  int64_t first = -1, end = -1;
  for (MemberNote& member : members) {
    for (const ir::StepRecord& record : member.steps) {
      first = first < 0 ? record.step : std::min(first, record.step);
      end = std::max(end, record.step + 1);
    }
    AddMember(plan, member, save);
  }
  const ir::StepRange added = first < 0 ? ir::StepRange{} : ir::StepRange{first, end - first};
  if (added.count > 0) {
    // A launch may have one step of those that are recorded.
    const bool goes_on = newest_.count > 0 && first == newest_.end();
    newest_ = goes_on ? ir::StepRange{newest_.first, end - newest_.first} : added;
  }
  Trim();
  return added;
}

void RecordedRun::AddMember(const planner::Plan& plan, MemberNote& member, int64_t save) {
  const auto clock = clocks_.find(member.host);
  const int64_t offset_ns = clock == clocks_.end() ? 0 : clock->second.offset_ns;
  if (save >= 0) {
    saves_.push_back(
        {save, member.worker, member.begin_ns - offset_ns, member.said_ns - offset_ns});
  }
  for (ir::StepRecord& record : member.steps) {
    const ir::Program* const program = ProgramOf(plan, record.rank);
    if (program == nullptr || !CheckRecord(*program, record).ok()) {
      ++dropped_;
      continue;
    }
    workers_[record.rank] = member.worker;
    Shift(record, offset_ns);
    RecordedStep& step = steps_[record.step];
    step.step = record.step;
    const auto before = [](const ir::StepRecord& a, const ir::StepRecord& b) {
      return std::pair(a.rank, a.lane) < std::pair(b.rank, b.lane);
    };
    const auto at = std::lower_bound(step.records.begin(), step.records.end(), record, before);
    marks_ += record.marks.size();
    // A step that is run again, by a run that began before it, is the one that counts.
    if (at != step.records.end() && !before(record, *at)) {
      marks_ -= at->marks.size();
      *at = std::move(record);
    } else {
      step.records.insert(at, std::move(record));
    }
  }
}

void RecordedRun::Trim() {
  while (steps_.size() > kMostSteps || (marks_ > kMostMarks && steps_.size() > 1)) {
    for (const ir::StepRecord& record : steps_.begin()->second.records) {
      MW_CHECK(marks_ >= record.marks.size()) << marks_ << " marks are kept";
      marks_ -= record.marks.size();
    }
    steps_.erase(steps_.begin());
  }
  if (saves_.size() > kMostSaves) {
    saves_.erase(saves_.begin(), saves_.end() - static_cast<ptrdiff_t>(kMostSaves));
  }
}

const std::string& RecordedRun::WorkerOf(int rank) const {
  static const std::string kNone;
  const auto at = workers_.find(rank);
  return at == workers_.end() ? kNone : at->second;
}

std::vector<RecordedStep> RecordedRun::Steps(const planner::Plan& plan,
                                             const ir::StepRange& range) const {
  const ir::StepRange wanted = range.count > 0 ? range : newest_;
  std::vector<RecordedStep> whole;
  for (auto at = steps_.lower_bound(wanted.first); at != steps_.end(); ++at) {
    if (at->first >= wanted.end()) break;
    size_t ranks = 0;
    for (const ir::StepRecord& record : at->second.records) ranks += record.lane == ir::kStepLane;
    if (ranks == plan.Main().size()) whole.push_back(at->second);
  }
  return whole;
}

}  // namespace meshwright::report
