#include "report/step_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/table.h"
#include "base/text.h"
#include "report/forecast_trace.h"
#include "report/plan_report.h"

namespace meshwright::report {
namespace {

constexpr int kCheckpointPid = 1'000'000;  // behind all stages

std::string StepsText(const std::vector<RecordedStep>& steps) {
  // As people count them.
  const int64_t first = steps.front().step + 1, last = steps.back().step + 1;
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

class Trace {
 public:
  Trace(const planner::Plan& plan, const std::vector<RecordedStep>& steps) : plan_(plan) {
    for (const ir::Program& program : plan.Main()) programs_[program.device.value()] = &program;
    zero_ns_ = INT64_MAX;
    for (const RecordedStep& step : steps) {
      for (const ir::StepRecord& record : step.records) {
        zero_ns_ = std::min(zero_ns_, record.begin_ns);
        end_ns_ = std::max(end_ns_, record.end_ns);
      }
    }
    AddTraceNames(plan.Main(), events_);
  }

  // False: it has become too long.
  bool AddStep(const RecordedStep& step) {
    sent_.clear();
    received_.clear();
    for (const ir::StepRecord& record : step.records) AddRuns(record);
    for (const StepSpan& span : SpansOf(plan_, step)) AddSpan(step.step, span);
    for (const std::string& event : std::exchange(new_, {})) {
      bytes_ += event.size();
      events_.push_back(event);
    }
    return bytes_ <= kMostTraceBytes;
  }

  // What held devices up around the steps.
  void AddSaves(const std::vector<RecordedSave>& saves) {
    std::map<std::string, int> rows;
    for (const RecordedSave& save : saves) {
      if (save.end_ns < zero_ns_ || save.begin_ns > end_ns_) continue;
      const auto [row, fresh] = rows.try_emplace(save.worker, static_cast<int>(rows.size()));
      if (rows.size() == 1 && fresh) {
        events_.push_back(fmt::format(
            R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"checkpoints"}}}})",
            kCheckpointPid));
      }
      if (fresh) {
        events_.push_back(fmt::format(
            R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
            kCheckpointPid, row->second, JsonEscape(save.worker)));
      }
      events_.push_back(fmt::format(
          R"({{"name":"checkpoint of step {}","cat":"checkpoint","ph":"X","pid":{},"tid":{},)"
          R"("ts":{:.3f},"dur":{:.3f}}})",
          save.step, kCheckpointPid, row->second, Us(save.begin_ns),
          Us(save.end_ns) - Us(save.begin_ns)));
    }
  }

  const std::vector<std::string>& events() const { return events_; }

 private:
  double Us(int64_t ns) const { return static_cast<double>(ns - zero_ns_) / 1e3; }

  void AddRuns(const ir::StepRecord& record) {
    if (record.lane != ir::kStepLane) return;
    const ir::Program& program = *programs_.at(record.rank);
    int64_t before_ns = record.begin_ns, begin_ns = record.begin_ns;
    int current = -1;
    for (const ir::StepMark& mark : record.marks) {
      if (mark.instruction != current) begin_ns = before_ns;
      current = mark.instruction;
      before_ns = mark.end_ns;
      const ir::Instruction& run = program.instructions[static_cast<size_t>(mark.instruction)];
      if (run.op != ir::Opcode::kRun || mark.node != ir::StepMark::kWhole) continue;
      new_.push_back(
          TraceRun(program, mark.instruction, Us(begin_ns) / 1e6, Us(mark.end_ns) / 1e6));
    }
  }

  void AddSpan(int64_t step, const StepSpan& span) {
    const ir::Program& program = *programs_.at(span.rank);
    const ir::Instruction& instruction =
        program.instructions[static_cast<size_t>(span.instruction)];
    std::string name;
    int layer = -1;
    if (span.node >= 0) {
      const ir::Graph& graph = *program.executables[instruction.executable.index()].graph;
      const ir::Node& node = graph.nodes[static_cast<size_t>(span.node)];
      name = KernelName(node);
      layer = node.layer;
    } else if (span.node == ir::StepMark::kAwaited) {
      // The end of a device that marks nothing is all that is known of its step.
      name = span.part == StepPart::kCopies ? "copies between memories" : "step";
    } else if (instruction.op == ir::Opcode::kSend || instruction.op == ir::Opcode::kRecv) {
      const bool sends = instruction.op == ir::Opcode::kSend;
      name = fmt::format("{} device {}", sends ? "SEND to" : "RECV from",
                         program.channels[instruction.channel.index()].peer.value());
    } else {
      return;  // of a RUN its own event says it; freeing takes no time
    }
    const bool waits = span.part == StepPart::kStragglers || span.part == StepPart::kBubble;
    if (waits) name = "waits: " + name;
    new_.push_back(fmt::format(
        R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
        R"("args":{{"step":{},"instruction":{},"node":{},"layer":{}}}}})",
        JsonEscape(name), StepPartName(span.part), program.stage.value(), program.device.value(),
        Us(span.begin_ns), Us(span.end_ns) - Us(span.begin_ns), step + 1, span.instruction,
        span.node, layer));
    if (span.node == ir::StepMark::kWhole && !waits) AddFlow(step, span, program, instruction);
  }

  // A message leaves where its SEND begins, and comes where its RECV ends.
  void AddFlow(int64_t step, const StepSpan& span, const ir::Program& program,
               const ir::Instruction& instruction) {
    if (!instruction.channel.valid()) return;
    const bool sends = instruction.op == ir::Opcode::kSend;
    const std::string& channel = program.channels[instruction.channel.index()].name;
    const int n = (sends ? sent_ : received_)[channel]++;
    new_.push_back(fmt::format(
        R"({{"name":"message","cat":"message","ph":"{}","id":"{}/{}/{}",{}"pid":{},"tid":{},)"
        R"("ts":{:.3f}}})",
        sends ? "s" : "f", step, JsonEscape(channel), n, sends ? "" : R"("bp":"e",)",
        program.stage.value(), program.device.value(), Us(sends ? span.begin_ns : span.end_ns)));
  }

  const planner::Plan& plan_;
  std::map<int, const ir::Program*> programs_;
  int64_t zero_ns_ = 0;
  int64_t end_ns_ = 0;
  size_t bytes_ = 0;
  std::map<std::string, int> sent_, received_;
  std::vector<std::string> events_, new_;
};

}  // namespace

Result<std::string> StepTrace(const planner::Plan& plan, const RecordedRun& run,
                              const std::vector<RecordedStep>& steps, const std::string& job) {
  MW_CHECK(!steps.empty()) << "a trace of no step";
  Trace trace(plan, steps);
  for (const RecordedStep& step : steps) {
    if (trace.AddStep(step)) continue;
    return Fail(ResourceExhausted(
        fmt::format("{} are more than {} of trace; ask for fewer steps at once", StepsText(steps),
                    FormatBytes(static_cast<int64_t>(kMostTraceBytes)))));
  }
  trace.AddSaves(run.saves());
  std::string clocks;
  for (const auto& [host, clock] : run.clocks()) {
    clocks += fmt::format(R"({}"{}":{{"offset_ns":{},"error_ns":{}}})", clocks.empty() ? "" : ",",
                          JsonEscape(host), clock.offset_ns, clock.error_ns);
  }
  return TraceDocument(
      trace.events(),
      fmt::format(R"("job":"{}","first_step":{},"last_step":{},"clocks":{{{}}})", JsonEscape(job),
                  steps.front().step + 1, steps.back().step + 1, clocks));
}

std::string FormatLongest(const std::vector<NamedSeconds>& names,
                          const std::vector<RecordedStep>& steps, size_t most) {
  MW_CHECK(!steps.empty()) << "a table of no step";
  double all_s = 0;
  for (const NamedSeconds& name : names) all_s += name.measured_s;
  std::vector<std::vector<std::string>> rows;
  for (const NamedSeconds& name : names) {
    if (rows.size() == most) break;
    rows.push_back(
        {name.name, std::string(StepPartName(name.part)), fmt::format("{:.4g}", name.calls),
         FormatDuration(name.measured_s),
         fmt::format("{:.1f} %", all_s > 0 ? 100 * name.measured_s / all_s : 0),
         name.forecast_s > 0 ? FormatDuration(name.forecast_s) : "-",
         name.forecast_s > 0 ? fmt::format("{:.2f}", name.measured_s / name.forecast_s) : "-"});
  }
  std::string text = fmt::format("{}, mean of their devices: {} a step\n", StepsText(steps),
                                 FormatDuration(all_s));
  text += FormatTable({"NAME", "PART", "CALLS", "MEASURED", "SHARE", "FORECAST", "RATIO"}, rows);
  if (names.size() > rows.size()) {
    text += fmt::format("and {} more, shorter ones\n", names.size() - rows.size());
  }
  return text;
}

std::string LongestJson(const std::vector<NamedSeconds>& names,
                        const std::vector<RecordedStep>& steps) {
  MW_CHECK(!steps.empty()) << "a table of no step";
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const NamedSeconds& name : names) {
    rows.push_back({{"name", name.name},
                    {"part", StepPartName(name.part)},
                    {"calls", name.calls},
                    {"measured_s", name.measured_s},
                    {"forecast_s", name.forecast_s > 0 ? nlohmann::ordered_json(name.forecast_s)
                                                       : nlohmann::ordered_json(nullptr)}});
  }
  const nlohmann::ordered_json object = {{"first_step", steps.front().step + 1},
                                         {"last_step", steps.back().step + 1},
                                         {"nodes", rows}};
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace meshwright::report
