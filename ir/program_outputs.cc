#include "ir/program_outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

namespace meshwright::ir {
namespace {

constexpr char kMark = '@';

Status Wrong(const JobProgram& program, const std::string& input, const std::string& what) {
  return InvalidArgument(fmt::format("input \"{}\" of program '{}' {}", input, program.name, what));
}

TensorType TypeOfInput(const JobProgram& program, const std::string& input) {
  for (const NodeId id : program.graph.NodesOf(Op::kFeed)) {
    const Node& feed = program.graph.node(id);
    if (feed.attrs.Str("source") == input) return program.graph.type(feed.outputs[0]);
  }
  return {};
}

std::string OutputNames(const JobProgram& program) {
  std::vector<std::string> names;
  for (const NamedValue& output : program.graph.outputs) names.push_back(output.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Status CheckOne(const JobRequest& job, const JobProgram& program, const std::string& input) {
  const auto read = program.reads.find(input);
  if (read == program.reads.end()) {
    return Wrong(program, input, "is to come from another program, which is not named");
  }
  const ProgramOutput& output = read->second;
  const JobProgram* const maker = job.FindProgram(output.program);
  if (maker == nullptr || maker->trained) {
    return Wrong(program, input,
                 fmt::format("is an output of program '{}', which {}", output.program,
                             maker == nullptr ? "the job does not have"
                                              : "is trained: its outputs are reported; give the "
                                                "tensor out by a program of its own"));
  }
  const ValueId value = maker->graph.Output(output.name);
  if (!value.valid()) {
    return Wrong(program, input,
                 fmt::format("is output \"{}\" of program '{}', which gives out {}", output.name,
                             output.program, OutputNames(*maker)));
  }
  const TensorType& made = maker->graph.type(value);
  const TensorType wanted = TypeOfInput(program, input);
  if (made != wanted) {
    return Wrong(program, input,
                 fmt::format("is {}; output \"{}\" of program '{}' is {}", wanted.ToString(),
                             output.name, output.program, made.ToString()));
  }
  if (made.rank() == 0 || !IsFloating(made.dtype)) {
    return Wrong(program, input,
                 fmt::format("is {}; only tensors of floating point numbers stay on the devices: "
                             "reshape or cast it in '{}'",
                             made.ToString(), output.program));
  }
  return OkStatus();
}

// "a -> b -> a", or nothing.
std::string FindCircle(const JobRequest& job) {
  std::vector<std::string> path;
  std::set<std::string> done;
  std::function<std::string(const std::string&)> visit = [&](const std::string& name) {
    if (const auto at = std::find(path.begin(), path.end(), name); at != path.end()) {
      return fmt::format("{} -> {}", fmt::join(at, path.end(), " -> "), name);
    }
    const JobProgram* const program = job.FindProgram(name);
    if (program == nullptr || !done.insert(name).second) return std::string();
    path.push_back(name);
    for (const auto& [input, output] : program->reads) {
      if (std::string circle = visit(output.program); !circle.empty()) return circle;
    }
    path.pop_back();
    return std::string();
  };
  for (const JobProgram& program : job.programs) {
    if (std::string circle = visit(program.name); !circle.empty()) return circle;
  }
  return "";
}

}  // namespace

std::string OutputStateName(const ProgramOutput& output) {
  return fmt::format("{}{}/{}#{}", kMark, output.program, output.name, output.program.size());
}

bool IsOutputState(std::string_view param) { return param.starts_with(kMark); }

bool ReadsOutputs(const JobRequest& job) {
  return std::any_of(job.programs.begin(), job.programs.end(),
                     [](const JobProgram& program) { return !program.reads.empty(); });
}

std::vector<std::string> ProgramsRead(const JobRequest& job) {
  std::vector<std::string> ordered;
  std::function<void(const std::string&)> visit = [&](const std::string& name) {
    if (std::find(ordered.begin(), ordered.end(), name) != ordered.end()) return;
    for (const auto& [input, output] : job.FindProgram(name)->reads) visit(output.program);
    ordered.push_back(name);
  };
  for (const JobProgram& program : job.programs) {
    for (const auto& [input, output] : program.reads) visit(output.program);
  }
  return ordered;
}

Status CheckOutputsRead(const JobRequest& job) {
  for (const JobProgram& program : job.programs) {
    for (const NodeId id : program.graph.NodesOf(Op::kParam)) {
      const std::string name = program.graph.node(id).attrs.Str("name");
      if (!IsOutputState(name)) continue;
      return InvalidArgument(fmt::format(
          "param \"{}\": names that begin with '@' are the planner's; rename it", name));
    }
    for (const auto& [input, from] : program.inputs) {
      if (from == InputFrom::kOutput) MW_TRY(CheckOne(job, program, input));
    }
    for (const auto& [input, output] : program.reads) {
      if (program.OriginOf(input) == InputFrom::kOutput) continue;
      return Wrong(program, input, "names an output, but does not come from one");
    }
  }
  if (!ReadsOutputs(job)) return OkStatus();
  if (const std::string circle = FindCircle(job); !circle.empty()) {
    return InvalidArgument(
        fmt::format("programs read each other's outputs in a circle: {}", circle));
  }
  const JobProgram& main = job.main();
  if (!main.reads.empty()) {
    return Wrong(main, main.reads.begin()->first,
                 main.trained ? "is an output of another program; what is trained takes data, or "
                                "what a client brings"
                              : "is an output of another program, but the first program decides "
                                "where everything is; put the other one first");
  }
  for (const JobProgram& program : job.programs) {
    const bool runs =
        job.driver.kind == DriverKind::kEvaluate && program.name == job.driver.program;
    if (!runs || program.reads.empty()) continue;
    return Wrong(
        program, program.reads.begin()->first,
        "is an output of another program, which the driver 'evaluate' does not call; let a "
        "client call both");
  }
  const bool staged = job.parallel.pipeline > 1 || !job.parallel.stage_meshes.empty();
  if (!staged) return OkStatus();
  return InvalidField("parallel.pipeline",
                      "has several stages, but a program reads an output of another: both must be "
                      "on the same devices; use 1");
}

}  // namespace meshwright::ir
