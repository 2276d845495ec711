#include "controller/client_asks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <set>

#include "data/counts.h"
#include "ir/averages.h"
#include "ir/factored.h"
#include "ir/id_bounds.h"
#include "proto/frames.h"

namespace meshwright::controller {
namespace {

// Of a tensor that a program gives out. Of the largest of rows there is one block at least.
int64_t FetchedBytes(const ir::TensorType& type, proto::Fetch fetch) {
  if (fetch == proto::Fetch::kNothing) return 0;
  if (fetch == proto::Fetch::kAll || !proto::HasLargest(type)) return type.bytes();
  const int64_t rows = type.elements() / std::max<int64_t>(1, type.dims.back());
  return rows * static_cast<int64_t>(sizeof(proto::Largest));
}

int64_t BytesOf(const std::vector<proto::NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const proto::NamedTensor& tensor : tensors) {
    bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  return bytes;
}

// The program of the job that `name` runs: "step" and "eval" run the trained one.
const ir::JobProgram* ProgramBehind(const ir::JobRequest& job, const std::string& name) {
  if (name == ir::kStepProgram || name == ir::kEvalProgram) {
    if (const ir::JobProgram* trained = job.trained()) return trained;
  }
  const ir::JobProgram* const program = job.FindProgram(name);
  return program != nullptr && !program->trained ? program : nullptr;
}

std::vector<proto::NamedTensor> ClientInputs(const ir::JobProgram& program) {
  std::vector<proto::NamedTensor> inputs;
  std::set<std::string> seen;
  for (NodeId id : program.graph.NodesOf(ir::Op::kFeed)) {
    const ir::Node& feed = program.graph.node(id);
    const std::string name = feed.attrs.Str("source");
    if (program.OriginOf(name) != ir::InputFrom::kClient || !seen.insert(name).second) continue;
    inputs.push_back({name, program.graph.type(feed.outputs[0]), ""});
  }
  return inputs;
}

Status CheckSize(int64_t bytes, const std::string& what) {
  if (bytes <= proto::kMaxTensorBytes) return OkStatus();
  return ResourceExhausted(
      fmt::format("{} has {} bytes; one message takes {}: use smaller batches, "
                  "or name fewer tensors",
                  what, bytes, proto::kMaxTensorBytes));
}

Status CheckTensor(const proto::NamedTensor& given, const ir::TensorType& wanted,
                   const std::string& what) {
  if (given.type != wanted) {
    return InvalidArgument(fmt::format("{} \"{}\" is {}; it must be {}", what, given.name,
                                       given.type.ToString(), wanted.ToString()));
  }
  if (static_cast<int64_t>(given.bytes.size()) != wanted.bytes()) {
    return InvalidArgument(fmt::format("{} \"{}\" has {} bytes; {} has {}", what, given.name,
                                       given.bytes.size(), wanted.ToString(), wanted.bytes()));
  }
  return OkStatus();
}

std::string NamesOf(const std::vector<proto::NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const proto::NamedTensor& tensor : tensors) names.push_back("\"" + tensor.name + "\"");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// An id outside of its table would fail on a device, and with it the job.
Status CheckIds(const proto::NamedTensor& given, const ir::IdBound& bound) {
  for (size_t at = 0; at + sizeof(int32_t) <= given.bytes.size(); at += sizeof(int32_t)) {
    int32_t id = 0;
    std::memcpy(&id, given.bytes.data() + at, sizeof(id));
    if (bound.Holds(id)) continue;
    return InvalidArgument(
        fmt::format("input \"{}\" has the id {} at position {}; ids are in [0, {})", given.name, id,
                    at / sizeof(int32_t), bound.size));
  }
  return OkStatus();
}

Status CheckInputs(const proto::CallProgram& call, const ir::JobProgram& program) {
  const std::vector<proto::NamedTensor> wanted = ClientInputs(program);
  const std::map<std::string, ir::IdBound> ids = ir::IdBoundsOf(program.graph);
  for (const proto::NamedTensor& given : call.inputs) {
    const auto it = std::find_if(wanted.begin(), wanted.end(),
                                 [&](const auto& input) { return input.name == given.name; });
    if (it == wanted.end()) {
      return InvalidArgument(fmt::format("program '{}' has no input \"{}\"; it takes {}",
                                         call.program, given.name, NamesOf(wanted)));
    }
    MW_TRY(CheckTensor(given, it->type, "input"));
    if (const auto bound = ids.find(given.name); bound != ids.end()) {
      MW_TRY(CheckIds(given, bound->second));
    }
  }
  for (const proto::NamedTensor& input : wanted) {
    const auto count = std::count_if(call.inputs.begin(), call.inputs.end(),
                                     [&](const auto& given) { return given.name == input.name; });
    if (count == 1) continue;
    return InvalidArgument(
        fmt::format("the call of '{}' brings input \"{}\" {} times; once is right", call.program,
                    input.name, count));
  }
  return OkStatus();
}

// The highest step whose rows can be counted.
int64_t LastStep(const ir::JobRequest& job) {
  return std::min(ir::kMaxSteps,
                  std::numeric_limits<int64_t>::max() / (2 * job.train.global_batch));
}

Status CheckStep(const proto::CallProgram& call, const ir::JobRequest& job) {
  const int64_t last = LastStep(job);
  if (!call.step || (*call.step >= 0 && *call.step <= last)) return OkStatus();
  return InvalidArgument(fmt::format("step {} of a call is not in [0, {}]", *call.step, last));
}

// "eval" reads the part of the data that is never trained on; without one it would fail on a
// device.
bool LacksValidation(const ir::JobProgram& trained, const ir::JobRequest& job) {
  const std::vector<NodeId> feeds = trained.graph.NodesOf(ir::Op::kFeed);
  const bool reads_data = std::any_of(feeds.begin(), feeds.end(), [&](NodeId id) {
    return trained.OriginOf(trained.graph.node(id).attrs.Str("source")) == ir::InputFrom::kData;
  });
  return reads_data && !data::HasValidation(job.data, job.train.sequence);
}

Status CheckMayRun(const proto::CallProgram& call, const ir::JobProgram& program,
                   const ir::JobRequest& job) {
  if (call.program == ir::kStepProgram && job.driver.kind != ir::DriverKind::kClient) {
    return FailedPrecondition(fmt::format(
        "the driver '{}' of the job runs 'step' itself; only a job whose driver is 'client' can be "
        "trained by calls",
        ir::DriverKindName(job.driver.kind)));
  }
  if (call.program == ir::kEvalProgram && program.trained && LacksValidation(program, job)) {
    return FailedPrecondition(
        "'eval' reads validation data, of which the job's streams do not have a row each; raise "
        "validation_fraction, give validation files, or set validation_rows of an actor's stream");
  }
  return OkStatus();
}

Status Check(const proto::CallProgram& call, const ir::JobRequest& job, const StateNames&) {
  const ir::JobProgram* const program = ProgramBehind(job, call.program);
  if (program == nullptr) {
    std::vector<std::string> names;
    for (const proto::ProgramSignature& known : SignaturesOf(job)) names.push_back(known.name);
    return NotFound(fmt::format("the job has no program '{}' to call; it has {}", call.program,
                                fmt::join(names, ", ")));
  }
  MW_TRY(CheckMayRun(call, *program, job));
  MW_TRY(CheckStep(call, job));
  MW_TRY(CheckInputs(call, *program));
  MW_TRY(CheckSize(BytesOf(call.inputs), fmt::format("the call of '{}'", call.program)));
  int64_t bytes = 0;
  for (const ir::NamedValue& output : program->graph.outputs) {
    bytes += FetchedBytes(program->graph.type(output.value), call.fetch);
  }
  return CheckSize(bytes, fmt::format("what '{}' gives out", call.program));
}

// Some of the names, for messages.
std::string SomeOf(const StateNames& state) {
  constexpr size_t kMost = 8;
  if (state.empty()) return "none";
  const auto end = std::next(state.begin(), static_cast<int64_t>(std::min(kMost, state.size())));
  const std::string some = fmt::format("{}", fmt::join(state.begin(), end, ", "));
  return state.size() <= kMost ? some : fmt::format("{} and {} more", some, state.size() - kMost);
}

// Weights by their names in the main program; what the optimizer keeps is made of these.
Result<ir::TensorType> StateType(const ir::JobRequest& job, const StateNames& state,
                                 const std::string& name) {
  const Status none = NotFound(
      fmt::format("the state of the job has no tensor \"{}\"; it has {}", name, SomeOf(state)));
  if (!state.contains(name)) return Fail(none);
  const ir::Graph& graph = job.main().graph;
  const bool moment = name.starts_with("opt.m/") || name.starts_with("opt.v/");
  const bool rows = name.starts_with(ir::kRowsPrefix);
  const bool factored = rows || name.starts_with(ir::kColumnsPrefix);
  const std::string averaged = ir::AveragedParam(name);
  const bool remembered = (moment || factored) && job.trained() != nullptr;
  const std::string param = !averaged.empty() ? averaged : remembered ? name.substr(6) : name;
  for (NodeId id : graph.NodesOf(ir::Op::kParam)) {
    if (graph.node(id).attrs.Str("name") != param) continue;
    ir::TensorType type = graph.type(graph.node(id).outputs[0]);
    if (moment && type.dtype != ir::DType::kF64) type.dtype = job.optimizer.moments_dtype;
    if (!factored) return type;
    MW_ASSIGN_OR_RETURN(const ir::Factored of, ir::FactoredOf(graph.node(id), type));
    type.dims = rows ? of.RowsOf(type.dims) : of.ColumnsOf(type.dims);
    if (type.dtype != ir::DType::kF64) type.dtype = ir::DType::kF32;
    return type;
  }
  return Fail(none);
}

Status Check(const proto::ReadState& read, const ir::JobRequest& job, const StateNames& state) {
  int64_t bytes = 0;
  for (const std::string& name : read.names) {
    MW_ASSIGN_OR_RETURN(const ir::TensorType type, StateType(job, state, name));
    bytes += type.bytes();
  }
  const ir::Graph& graph = job.main().graph;
  for (NodeId id : graph.NodesOf(ir::Op::kParam)) {
    if (read.names.empty()) bytes += graph.type(graph.node(id).outputs[0]).bytes();
  }
  return CheckSize(bytes, "what is read of the state");
}

Status Check(const proto::WriteState& write, const ir::JobRequest& job, const StateNames& state) {
  if (job.driver.kind != ir::DriverKind::kClient) {
    return FailedPrecondition(
        fmt::format("the state of a job whose driver is '{}' is written by nobody else",
                    ir::DriverKindName(job.driver.kind)));
  }
  for (const proto::NamedTensor& tensor : write.tensors) {
    MW_ASSIGN_OR_RETURN(const ir::TensorType type, StateType(job, state, tensor.name));
    MW_TRY(CheckTensor(tensor, type, "tensor"));
  }
  return CheckSize(BytesOf(write.tensors), "what is written to the state");
}

}  // namespace

int64_t BytesOf(const proto::ClientAsk& ask) {
  if (const auto* call = std::get_if<proto::CallProgram>(&ask)) return BytesOf(call->inputs);
  if (const auto* write = std::get_if<proto::WriteState>(&ask)) return BytesOf(write->tensors);
  return 0;
}

Status CheckAsk(const proto::ClientAsk& ask, const ir::JobRequest& job, const StateNames& state) {
  return std::visit([&](const auto& body) { return Check(body, job, state); }, ask);
}

Status CheckReady(const proto::ClientAsk& ask, const ir::JobRequest& job,
                  const std::map<std::string, int64_t>& next_steps) {
  const auto* const call = std::get_if<proto::CallProgram>(&ask);
  if (call == nullptr) return OkStatus();
  const auto next = next_steps.find(call->program);
  if (!call->step && next != next_steps.end() && next->second > LastStep(job)) {
    return FailedPrecondition(
        fmt::format("the calls of '{}' are counted up to step {}, which was made; say the step",
                    call->program, LastStep(job)));
  }
  const ir::JobProgram* const program = job.FindProgram(call->program);
  if (program == nullptr) return OkStatus();
  for (const auto& [input, output] : program->reads) {
    if (next_steps.contains(output.program)) continue;
    return FailedPrecondition(
        fmt::format("input \"{}\" of program '{}' is output \"{}\" of program '{}', which was not "
                    "called yet; call '{}' first",
                    input, program->name, output.name, output.program, output.program));
  }
  return OkStatus();
}

std::vector<proto::ProgramSignature> SignaturesOf(const ir::JobRequest& job) {
  std::vector<proto::ProgramSignature> all;
  for (const ir::JobProgram& program : job.programs) {
    if (!program.trained) {
      all.push_back({program.name, ClientInputs(program)});
      continue;
    }
    if (!LacksValidation(program, job)) all.push_back({ir::kEvalProgram, ClientInputs(program)});
    if (job.driver.kind != ir::DriverKind::kClient) continue;
    all.push_back({ir::kStepProgram, ClientInputs(program)});
  }
  return all;
}

}  // namespace meshwright::controller
