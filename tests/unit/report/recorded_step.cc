#include "tests/unit/report/recorded_step.h"

#include <cmath>
#include <map>
#include <utility>

#include "planner/cost_model.h"
#include "planner/forecast.h"
#include "planner/layout.h"

namespace meshwright::report {
namespace {

int64_t Ns(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

// The RUN's seconds over its nodes, as their own costs are to each other; collectives share what is
// left.
std::vector<double> SharesOf(const ir::Graph& graph, const planner::CostModel& model, int device,
                             double run_s) {
  std::vector<double> seconds(graph.nodes.size(), 0);
  double computed = 0;
  size_t collectives = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op == ir::Op::kInput) continue;
    if (planner::IsCollective(graph.nodes[n].op)) {
      ++collectives;
      continue;
    }
    seconds[n] = model.NodeSeconds(graph, graph.nodes[n], device);
    computed += seconds[n];
  }
  const double left = std::max(0.0, run_s - computed);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (planner::IsCollective(graph.nodes[n].op)) {
      seconds[n] = left / static_cast<double>(collectives);
    }
  }
  return seconds;
}

}  // namespace

Result<std::vector<ir::StepRecord>> RecordsAsForecast(const planner::Plan& plan,
                                                      const mesh::Topology& truth, int64_t step,
                                                      int64_t begin_ns) {
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast, planner::ForecastStep(plan, truth));
  const planner::CostModel model(planner::TopologyOf(plan.layout, truth));
  std::map<std::pair<int, int>, const planner::Span*> spans;
  for (const planner::Span& span : forecast.simulation.spans) {
    spans[{span.device, span.instruction}] = &span;
  }
  std::vector<ir::StepRecord> records;
  for (const ir::Program& program : plan.Main()) {
    ir::StepRecord& record = records.emplace_back();
    record.rank = program.device.value();
    record.program = program.name;
    record.step = step;
    record.begin_ns = begin_ns;
    int64_t now_ns = begin_ns;
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const ir::Instruction& instruction = program.instructions[static_cast<size_t>(i)];
      if (instruction.op == ir::Opcode::kRecv) {
        // Until the RUN behind it begins.
        for (int next = i + 1; next < static_cast<int>(program.instructions.size()); ++next) {
          const auto run = spans.find({record.rank, next});
          if (run == spans.end()) continue;
          now_ns = std::max(now_ns, begin_ns + Ns(run->second->begin_s));
          break;
        }
      }
      const auto run = spans.find({record.rank, i});
      if (run != spans.end()) {
        const ir::Graph& graph = *program.executables[instruction.executable.index()].graph;
        const double run_s = run->second->end_s - run->second->begin_s;
        const std::vector<double> shares = SharesOf(graph, model, record.rank, run_s);
        double within_s = run->second->begin_s;
        for (size_t n = 0; n < shares.size(); ++n) {
          if (graph.nodes[n].op == ir::Op::kInput) continue;
          within_s += shares[n];
          now_ns = std::max(now_ns, begin_ns + Ns(within_s));
          record.marks.push_back({i, static_cast<int32_t>(n), now_ns});
        }
        now_ns = std::max(now_ns, begin_ns + Ns(run->second->end_s));
      }
      record.marks.push_back({i, ir::StepMark::kWhole, now_ns});
    }
    record.end_ns = std::max(now_ns, begin_ns + Ns(forecast.simulation.makespan_s));
  }
  return records;
}

MemberNote NoteOf(std::vector<ir::StepRecord> records) {
  MemberNote note;
  note.worker = note.host = "w0";
  note.steps = std::move(records);
  return note;
}

}  // namespace meshwright::report
