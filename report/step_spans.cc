#include "report/step_spans.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "planner/forecast.h"
#include "planner/layout.h"
#include "report/plan_report.h"

namespace meshwright::report {
namespace {

constexpr double kSecondsPerNs = 1e-9;

using Programs = std::map<int, const ir::Program*>;  // by rank

Programs ProgramsOf(const planner::Plan& plan) {
  Programs programs;
  for (const ir::Program& program : plan.Main()) programs[program.device.value()] = &program;
  return programs;
}

const ir::Instruction& InstructionOf(const ir::Program& program, int instruction) {
  MW_CHECK(instruction >= 0 && static_cast<size_t>(instruction) < program.instructions.size())
      << "instruction " << instruction << " of " << program.instructions.size();
  return program.instructions[static_cast<size_t>(instruction)];
}

// Null: it is no node of a RUN.
const ir::Graph* GraphOf(const ir::Program& program, int instruction, int node) {
  const ir::Instruction& run = InstructionOf(program, instruction);
  if (node < 0 || !run.executable.valid()) return nullptr;
  return program.executables[run.executable.index()].graph.get();
}

// When devices of a step came to where they meet others.
class Meetings {
 public:
  // Of a collective: executable, microbatch, node, the group's first device, and the how many-eth
  // time.
  using Collective = std::tuple<size_t, int, int, int, int>;

  Meetings(const Programs& programs, const RecordedStep& step) {
    for (const ir::StepRecord& record : step.records) {
      if (record.lane == ir::kStepLane) Add(*programs.at(record.rank), record);
    }
  }

  // The last member came; INT64_MIN: nobody did.
  int64_t LastOf(const Collective& collective) const {
    const auto at = last_.find(collective);
    return at == last_.end() ? INT64_MIN : at->second;
  }
  // Message number `n` of the channel was begun to be sent; INT64_MIN: not known.
  int64_t SentAt(const std::string& channel, size_t n) const {
    const auto at = sent_.find(channel);
    return at == sent_.end() || n >= at->second.size() ? INT64_MIN : at->second[n];
  }

  // Of one device, in the order of its marks.
  class Walk {
   public:
    explicit Walk(const ir::Program& program) : program_(program) {}
    Collective Meet(const ir::Instruction& run, int node) {
      const ir::Graph& graph = *program_.executables[run.executable.index()].graph;
      const auto& axes = graph.nodes[static_cast<size_t>(node)].attrs.Strs("axes");
      const auto [group, fresh] = groups_.try_emplace(axes);
      if (fresh) group->second = planner::GroupMembers(program_, axes).front();
      const auto executable = run.executable.index();
      const int n = times_[{executable, run.microbatch, node}]++;
      return {executable, run.microbatch, node, group->second, n};
    }
    size_t Message(const std::string& channel) { return messages_[channel]++; }

   private:
    const ir::Program& program_;
    std::map<std::vector<std::string>, int> groups_;
    std::map<std::tuple<size_t, int, int>, int> times_;
    std::map<std::string, size_t> messages_;
  };

 private:
  void Add(const ir::Program& program, const ir::StepRecord& record) {
    Walk walk(program);
    int64_t begin_ns = record.begin_ns;
    for (const ir::StepMark& mark : record.marks) {
      const ir::Instruction& instruction = InstructionOf(program, mark.instruction);
      const ir::Graph* const graph = GraphOf(program, mark.instruction, mark.node);
      if (graph != nullptr &&
          planner::IsCollective(graph->nodes[static_cast<size_t>(mark.node)].op)) {
        int64_t& last =
            last_.try_emplace(walk.Meet(instruction, mark.node), INT64_MIN).first->second;
        last = std::max(last, begin_ns);
      } else if (instruction.op == ir::Opcode::kSend && mark.node == ir::StepMark::kWhole) {
        sent_[program.channels[instruction.channel.index()].name].push_back(begin_ns);
      }
      begin_ns = mark.end_ns;
    }
  }

  std::map<Collective, int64_t> last_;
  std::map<std::string, std::vector<int64_t>> sent_;
};

class SpanMaker {
 public:
  SpanMaker(const ir::Program& program, const Meetings& meetings, std::vector<StepSpan>& spans)
      : program_(program), meetings_(meetings), walk_(program), spans_(spans) {}

  void Run(const ir::StepRecord& record) {
    int64_t begin_ns = record.begin_ns;
    for (const ir::StepMark& mark : record.marks) {
      Add(record, mark, begin_ns);
      begin_ns = mark.end_ns;
    }
    // Behind the last mark, or of a device that marks nothing.
    if (record.end_ns > begin_ns) {
      const int last = record.marks.empty() ? 0 : record.marks.back().instruction;
      spans_.push_back({record.rank, record.lane, last, ir::StepMark::kAwaited, StepPart::kRest,
                        begin_ns, record.end_ns});
    }
  }

 private:
  void Add(const ir::StepRecord& record, const ir::StepMark& mark, int64_t begin_ns) {
    if (mark.node == ir::StepMark::kNothing) return;
    StepSpan span{record.rank,     record.lane, mark.instruction, mark.node,
                  StepPart::kRest, begin_ns,    mark.end_ns};
    const ir::Instruction& instruction = InstructionOf(program_, mark.instruction);
    const ir::Graph* const graph = GraphOf(program_, mark.instruction, mark.node);
    if (graph != nullptr) {
      const ir::Op op = graph->nodes[static_cast<size_t>(mark.node)].op;
      if (!planner::IsCollective(op)) {
        span.part = op == ir::Op::kFeed ? StepPart::kInput : StepPart::kCompute;
        return spans_.push_back(span);
      }
      return AddMeeting(span, meetings_.LastOf(walk_.Meet(instruction, mark.node)),
                        StepPart::kStragglers);
    }
    if (mark.node == ir::StepMark::kAwaited) {
      span.part = StepPart::kCopies;
    } else if (instruction.op == ir::Opcode::kRun) {
      span.part = StepPart::kCompute;
    } else if (instruction.op == ir::Opcode::kSend) {
      span.part = StepPart::kCommunication;
    } else if (instruction.op == ir::Opcode::kRecv) {
      const std::string& channel = program_.channels[instruction.channel.index()].name;
      return AddMeeting(span, meetings_.SentAt(channel, walk_.Message(channel)), StepPart::kBubble);
    }
    spans_.push_back(span);
  }

  // Until `met_ns` it waited.
  void AddMeeting(StepSpan span, int64_t met_ns, StepPart waited) {
    const int64_t until_ns = std::clamp(met_ns, span.begin_ns, span.end_ns);
    if (until_ns > span.begin_ns) {
      StepSpan waiting = span;
      waiting.part = waited;
      waiting.end_ns = until_ns;
      spans_.push_back(waiting);
    }
    span.part = StepPart::kCommunication;
    span.begin_ns = until_ns;
    spans_.push_back(span);
  }

  const ir::Program& program_;
  const Meetings& meetings_;
  Meetings::Walk walk_;
  std::vector<StepSpan>& spans_;
};

double SecondsOf(const StepSpan& span) {
  return static_cast<double>(span.end_ns - span.begin_ns) * kSecondsPerNs;
}

int64_t BeginOf(const RecordedStep& step) {
  MW_CHECK(!step.records.empty()) << "step " << step.step << " has no record";
  int64_t begin_ns = INT64_MAX;
  for (const ir::StepRecord& record : step.records) begin_ns = std::min(begin_ns, record.begin_ns);
  return begin_ns;
}

// From the step's end on each rank to the next one's begin.
void AddBetween(const RecordedStep& step, const RecordedStep& next, MeasuredParts& parts) {
  if (next.step != step.step + 1) return;
  for (const ir::StepRecord& record : step.records) {
    for (const ir::StepRecord& other : next.records) {
      if (record.rank != other.rank || record.lane != ir::kStepLane || other.lane != record.lane) {
        continue;
      }
      const auto ns = static_cast<double>(std::max<int64_t>(0, other.begin_ns - record.end_ns));
      parts.ranks[record.rank].Of(StepPart::kBetween) += ns * kSecondsPerNs;
    }
  }
}

// Seconds of nodes by the cost model, each asked for once.
class NodeCosts {
 public:
  explicit NodeCosts(const mesh::Topology& topology) : model_(topology) {}

  const planner::CostModel& model() const { return model_; }

  double Of(const ir::Program& program, const ir::Graph& graph, int node) {
    const int device = program.device.value();
    const auto [at, fresh] = seconds_.try_emplace({&graph, node, device}, 0.0);
    if (fresh) at->second = Price(program, graph, graph.nodes[static_cast<size_t>(node)], device);
    return at->second;
  }

 private:
  double Price(const ir::Program& program, const ir::Graph& graph, const ir::Node& node,
               int device) const {
    if (!planner::IsCollective(node.op)) return model_.NodeSeconds(graph, node, device);
    const std::vector<int> group = planner::GroupMembers(program, node.attrs.Strs("axes"));
    if (group.size() == 1) return 0;
    double bytes = 0;
    for (const ValueId id : node.inputs) bytes += static_cast<double>(graph.type(id).bytes());
    return model_.CollectiveSeconds(planner::CollectiveKindOf(node.op), bytes, group) +
           model_.NodeSeconds(planner::PackingOf(graph, node), device);
  }

  planner::CostModel model_;
  std::map<std::tuple<const ir::Graph*, int, int>, double> seconds_;
};

// Where ranks stood still within a run, since slower ones had not come to a collective yet.
class Waits {
 public:
  Waits(const planner::Plan& plan, const RecordedStep& step) {
    for (const StepSpan& span : SpansOf(plan, step)) {
      const bool waits = span.lane == ir::kStepLane && span.part == StepPart::kStragglers;
      if (waits && span.end_ns - span.begin_ns >= kSeenNs) spans_[span.rank].push_back(span);
    }
  }

  // What is left of a run without them, in time.
  std::vector<std::pair<int64_t, int64_t>> Between(int rank, int instruction, int64_t begin_ns,
                                                   int64_t end_ns) const {
    std::vector<std::pair<int64_t, int64_t>> left;
    const auto own = spans_.find(rank);
    if (own == spans_.end()) return {{begin_ns, end_ns}};
    for (const StepSpan& wait : own->second) {
      if (wait.instruction != instruction || wait.begin_ns < begin_ns || wait.end_ns > end_ns) {
        continue;
      }
      if (wait.begin_ns > begin_ns) left.emplace_back(begin_ns, wait.begin_ns);
      begin_ns = wait.end_ns;
    }
    if (end_ns > begin_ns || left.empty()) left.emplace_back(begin_ns, end_ns);
    return left;
  }

 private:
  static constexpr int64_t kSeenNs = 100'000;  // shorter ones would be hair lines in a picture

  std::map<int, std::vector<StepSpan>> spans_;  // by rank in time
};

std::string NameOfSpan(const ir::Program& program, const StepSpan& span) {
  const ir::Instruction& instruction = InstructionOf(program, span.instruction);
  const ir::Graph* const graph = GraphOf(program, span.instruction, span.node);
  if (graph == nullptr) {
    switch (instruction.op) {
      case ir::Opcode::kRun:
        return span.node == ir::StepMark::kAwaited ? "copies between memories"
                                                   : "copies of results";
      case ir::Opcode::kSend:
        return fmt::format("SEND to device {}",
                           program.channels[instruction.channel.index()].peer.value());
      case ir::Opcode::kRecv:
        return fmt::format("RECV from device {}",
                           program.channels[instruction.channel.index()].peer.value());
      default:
        return "the runtime";
    }
  }
  const ir::Node& node = graph->nodes[static_cast<size_t>(span.node)];
  std::string name(planner::PieceCategory(
      planner::ExecutablePiece(program.executables[instruction.executable.index()])));
  if (node.layer >= 0) name += fmt::format(" layer {}", node.layer);
  name += ' ' + KernelName(node);
  if (planner::IsCollective(node.op)) {
    name += fmt::format(" over {}", fmt::join(node.attrs.Strs("axes"), ","));
  }
  return name;
}

// Hosts whose devices have more threads than the host has cores.
bool SharesCores(const mesh::Topology& topology) {
  std::map<int, std::pair<int, int>> hosts;  // cores, threads
  for (const planner::CoreUse& use : planner::CoreUses(topology)) {
    if (use.host < 0) continue;
    hosts[use.host].first = use.cores;
    hosts[use.host].second += use.threads;
  }
  return std::any_of(hosts.begin(), hosts.end(),
                     [](const auto& host) { return host.second.second > host.second.first; });
}

}  // namespace

std::string_view StepPartName(StepPart part) {
  constexpr std::array<std::string_view, kStepPartCount> kNames = {
      "compute", "input", "communication", "stragglers", "bubble", "copies", "rest", "between"};
  return kNames[static_cast<size_t>(part)];
}

double StepParts::total() const {
  double sum = 0;
  for (const double each : seconds) sum += each;
  return sum;
}

std::vector<StepSpan> SpansOf(const planner::Plan& plan, const RecordedStep& step) {
  const Programs programs = ProgramsOf(plan);
  const Meetings meetings(programs, step);
  std::vector<StepSpan> spans;
  for (const ir::StepRecord& record : step.records) {
    SpanMaker(*programs.at(record.rank), meetings, spans).Run(record);
  }
  return spans;
}

planner::Simulation SimulationOf(const planner::Plan& plan, const RecordedStep& step) {
  const Waits waits(plan, step);
  planner::Simulation shown;
  const int64_t begin_ns = BeginOf(step);
  const auto at = [&](int64_t ns) { return static_cast<double>(ns - begin_ns) * kSecondsPerNs; };
  const Programs programs = ProgramsOf(plan);
  for (const ir::StepRecord& record : step.records) {
    shown.makespan_s = std::max(shown.makespan_s, at(record.end_ns));
    if (record.lane != ir::kStepLane) continue;
    int64_t before_ns = record.begin_ns;
    int64_t run_ns = record.begin_ns;
    int current = -1;
    for (const ir::StepMark& mark : record.marks) {
      if (mark.instruction != current) run_ns = before_ns;
      current = mark.instruction;
      before_ns = mark.end_ns;
      const ir::Instruction& run = InstructionOf(*programs.at(record.rank), mark.instruction);
      if (run.op != ir::Opcode::kRun || mark.node != ir::StepMark::kWhole) continue;
      for (const auto& [from_ns, to_ns] :
           waits.Between(record.rank, mark.instruction, run_ns, mark.end_ns)) {
        shown.spans.push_back({record.rank, mark.instruction, at(from_ns), at(to_ns)});
      }
    }
  }
  std::stable_sort(shown.spans.begin(), shown.spans.end(),
                   [](const auto& a, const auto& b) { return a.begin_s < b.begin_s; });
  return shown;
}

MeasuredParts MeasureParts(const planner::Plan& plan, const std::vector<RecordedStep>& steps) {
  MW_CHECK(!steps.empty()) << "parts of no step";
  MeasuredParts parts;
  parts.steps = static_cast<int64_t>(steps.size());
  int64_t gaps = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const StepSpan& span : SpansOf(plan, steps[i])) {
      if (span.lane == ir::kStepLane) parts.ranks[span.rank].Of(span.part) += SecondsOf(span);
    }
    if (i + 1 == steps.size() || steps[i + 1].step != steps[i].step + 1) continue;
    AddBetween(steps[i], steps[i + 1], parts);
    ++gaps;
  }
  for (auto& [rank, own] : parts.ranks) {
    for (size_t p = 0; p < kStepPartCount; ++p) {
      const bool between = static_cast<StepPart>(p) == StepPart::kBetween;
      own.seconds[p] /= static_cast<double>(between ? std::max<int64_t>(gaps, 1) : parts.steps);
      parts.mean.seconds[p] += own.seconds[p] / static_cast<double>(parts.ranks.size());
    }
  }
  return parts;
}

StepParts ForecastParts(const planner::Plan& plan, const planner::Forecast& forecast,
                        const mesh::Topology& topology) {
  NodeCosts costs(planner::TopologyOf(plan.layout, topology));
  StepParts parts;
  double devices = 0;
  for (size_t i = 0; i < plan.Main().size(); ++i) {
    const ir::Program& program = plan.Main()[i];
    const auto count = static_cast<double>(plan.DevicesOf(program));
    devices += count;
    double input_s = 0;
    for (const ir::Instruction& run : program.instructions) {
      if (run.op != ir::Opcode::kRun) continue;
      const ir::Graph& graph = *program.executables[run.executable.index()].graph;
      for (const NodeId id : graph.NodesOf(ir::Op::kFeed)) {
        input_s += costs.Of(program, graph, id.value());
      }
    }
    const double busy_s = forecast.simulation.busy_s.at(i);
    parts.Of(StepPart::kInput) += count * input_s;
    parts.Of(StepPart::kBubble) += count * forecast.simulation.idle_s.at(i);
    parts.Of(StepPart::kCompute) += count * std::max(0.0, busy_s - input_s);
  }
  for (double& seconds : parts.seconds) seconds /= std::max(devices, 1.0);
  const double exchange_s = std::min(forecast.collective_s, parts.Of(StepPart::kCompute));
  parts.Of(StepPart::kCommunication) = exchange_s;
  parts.Of(StepPart::kCompute) -= exchange_s;
  return parts;
}

std::vector<NamedSeconds> SecondsByName(const planner::Plan& plan, const mesh::Topology& topology,
                                        const std::vector<RecordedStep>& steps) {
  const Programs programs = ProgramsOf(plan);
  NodeCosts costs(planner::TopologyOf(plan.layout, topology));
  using Place = std::tuple<const ir::Graph*, ir::Opcode, int, int>;
  std::map<Place, std::string> names;
  std::map<std::pair<std::string, StepPart>, NamedSeconds> all;
  const double share = 1 / static_cast<double>(std::max<size_t>(1, steps.size() * programs.size()));
  for (const RecordedStep& step : steps) {
    for (const StepSpan& span : SpansOf(plan, step)) {
      if (span.lane != ir::kStepLane) continue;
      const ir::Program& program = *programs.at(span.rank);
      const ir::Instruction& instruction = InstructionOf(program, span.instruction);
      const ir::Graph* const graph = GraphOf(program, span.instruction, span.node);
      const int peer = instruction.channel.valid()
                           ? program.channels[instruction.channel.index()].peer.value()
                           : -1;
      const auto [name, fresh] =
          names.try_emplace({graph, instruction.op, span.node, peer}, std::string());
      if (fresh) name->second = NameOfSpan(program, span);
      NamedSeconds& sum = all[{name->second, span.part}];
      sum.name = name->second;
      sum.part = span.part;
      sum.calls += share;
      sum.measured_s += share * SecondsOf(span);
      const bool waits = span.part == StepPart::kStragglers || span.part == StepPart::kBubble;
      if (graph != nullptr && !waits) {
        sum.forecast_s += share * costs.Of(program, *graph, span.node);
      }
    }
  }
  std::vector<NamedSeconds> sorted;
  for (auto& [key, sum] : all) sorted.push_back(std::move(sum));
  std::stable_sort(sorted.begin(), sorted.end(), [](const NamedSeconds& a, const NamedSeconds& b) {
    return a.measured_s > b.measured_s;
  });
  return sorted;
}

std::map<std::string, mesh::MeasuredSteps> MeasureKernels(const planner::Plan& plan,
                                                          const mesh::Topology& base,
                                                          const std::vector<RecordedStep>& steps) {
  const mesh::Topology seen = planner::TopologyOf(plan.layout, base);
  std::map<std::string, mesh::MeasuredSteps> kinds;
  if (SharesCores(seen)) return kinds;
  const Programs programs = ProgramsOf(plan);
  NodeCosts costs(seen);
  for (const RecordedStep& step : steps) {
    for (const StepSpan& span : SpansOf(plan, step)) {
      const ir::Program& program = *programs.at(span.rank);
      const ir::Graph* const graph = GraphOf(program, span.instruction, span.node);
      if (span.part != StepPart::kCompute || span.lane != ir::kStepLane || graph == nullptr)
        continue;
      const ir::Node& node = graph->nodes[static_cast<size_t>(span.node)];
      const planner::NodeWork work = planner::WorkOf(*graph, node);
      if (work.is_free) continue;
      const auto device = static_cast<size_t>(span.rank);
      if (device >= seen.devices.size() || seen.devices[device].profile == nullptr) continue;
      mesh::MeasuredSteps& kind = kinds[seen.devices[device].profile->name];
      mesh::SecondsBeside& sum = kind.kernels[static_cast<size_t>(work.lead)];
      sum.measured_s += SecondsOf(span);
      sum.profile_s += costs.Of(program, *graph, span.node);
    }
  }
  for (auto& [name, kind] : kinds) kind.steps = static_cast<int64_t>(steps.size());
  return kinds;
}

}  // namespace meshwright::report
