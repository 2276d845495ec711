#include "tests/property/ir_program_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "base/philox.h"

namespace meshwright::ir::testing {
namespace {

constexpr int64_t kCellBytes = 4;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ull + b + 0x7F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 32;
  return x;
}

uint64_t HashText(const std::string& text) { return StreamOf(text); }

using Tensor = std::vector<uint64_t>;  // one hash per element

uint64_t HashTensor(const Tensor& tensor) {
  uint64_t hash = tensor.size();
  for (uint64_t cell : tensor) hash = Mix(hash, cell);
  return hash;
}

struct Meeting {
  std::map<int, uint64_t> operands;  // by device
  std::string shape;
  std::optional<uint64_t> result;
  int left = 0;
};

struct Device {
  const Program* program = nullptr;
  std::vector<uint64_t> arena;
  std::vector<int> owners;           // per cell of the arena: the slot that wrote it last
  std::map<int, Tensor> persistent;  // by slot
  size_t pc = 0;
  size_t node = 0;               // inside a RUN
  std::vector<uint64_t> values;  // of the RUN's graph; empty: not started
  std::vector<int> inputs;       // per value of it: the operand of the RUN, -1: none
  std::vector<int> outputs;      // the same, of results
  bool in_meeting = false;
};

class Interpreter {
 public:
  Interpreter(const std::vector<Program>& programs, uint64_t interleaving) : random_(interleaving) {
    for (const Program& program : programs) {
      Device device;
      device.program = &program;
      device.arena.assign(static_cast<size_t>(program.arena_bytes / kCellBytes), 1);
      device.owners.assign(device.arena.size(), -1);
      for (size_t i = 0; i < program.slots.size(); ++i) {
        if (!program.slots[i].persistent) continue;
        const uint64_t seed =
            HashText(fmt::format("{}/{}", program.device.value(), program.slots[i].name));
        device.persistent[static_cast<int>(i)] = Spread(seed, program.slots[i].type.elements());
      }
      for (const ChannelEnd& channel : program.channels)
        capacities_[channel.name] = channel.capacity;
      devices_.push_back(std::move(device));
    }
  }

  Meaning Run() {
    std::vector<size_t> ready;
    while (!broken_) {
      ready.clear();
      for (size_t i = 0; i < devices_.size(); ++i) {
        if (devices_[i].pc < devices_[i].program->instructions.size()) ready.push_back(i);
      }
      if (ready.empty()) break;
      std::shuffle(ready.begin(), ready.end(), random_);
      bool moved = false;
      for (size_t i : ready) moved = Step(devices_[i]) || moved;
      if (!moved) return {};
    }
    for (const auto& [name, queue] : queues_) broken_ = broken_ || !queue.empty();
    return broken_ ? Meaning() : Collect();
  }

 private:
  static Tensor Spread(uint64_t seed, int64_t elements) {
    Tensor tensor;
    for (int64_t i = 0; i < elements; ++i) tensor.push_back(Mix(seed, static_cast<uint64_t>(i)));
    return tensor;
  }

  // The slot's cells, one per element.
  uint64_t* Cells(Device& device, SlotId id) {
    const Slot& slot = device.program->slot(id);
    if (slot.persistent) return device.persistent[id.value()].data();
    return device.arena.data() + ArenaCell(device, id);
  }

  Tensor Load(Device& device, SlotId id) {
    const uint64_t* cells = Cells(device, id);
    return Tensor(cells, cells + device.program->slot(id).type.elements());
  }

  void Store(Device& device, SlotId id, const Tensor& tensor) {
    std::copy(tensor.begin(), tensor.end(), Cells(device, id));
    if (device.program->slot(id).persistent) return;
    std::fill_n(device.owners.begin() + static_cast<ptrdiff_t>(ArenaCell(device, id)),
                tensor.size(), id.value());
  }

  static size_t ArenaCell(const Device& device, SlotId id) {
    return static_cast<size_t>(device.program->slot(id).offset_bytes / kCellBytes);
  }

  void StoreElement(Device& device, SlotId id, int64_t element, uint64_t value) {
    Cells(device, id)[element] = value;
    if (device.program->slot(id).persistent) return;
    device.owners[ArenaCell(device, id) + static_cast<size_t>(element)] = id.value();
  }

  // What an output wrote over the slot is not the slot's any more.
  void Poison(Device& device, SlotId id) {
    const size_t begin = ArenaCell(device, id);
    const auto elements = static_cast<size_t>(device.program->slot(id).type.elements());
    for (size_t cell = begin; cell < begin + elements; ++cell) {
      if (device.owners[cell] == id.value()) device.arena[cell] = Mix(Mix(666, device.pc), cell);
    }
  }

  // Element numbers of a box, row-major.
  static std::vector<int64_t> Elements(const Box& box, const Dims& dims) {
    std::vector<int64_t> elements = {0};
    for (size_t i = 0; i < dims.size(); ++i) {
      const int64_t offset = box.offset.empty() ? 0 : box.offset[i];
      const int64_t size = box.size.empty() ? dims[i] : box.size[i];
      std::vector<int64_t> next;
      for (int64_t base : elements) {
        for (int64_t k = 0; k < size; ++k) next.push_back(base * dims[i] + offset + k);
      }
      elements = std::move(next);
    }
    return elements;
  }

  bool Step(Device& device) {
    const Instruction& instruction = device.program->instructions[device.pc];
    bool done = true;
    switch (instruction.op) {
      case Opcode::kRun:
        done = StepRun(device, instruction);
        break;
      case Opcode::kSend:
        done = StepSend(device, instruction);
        break;
      case Opcode::kRecv:
        done = StepRecv(device, instruction);
        break;
      case Opcode::kPrefetch:
      case Opcode::kOffload:
        for (int64_t element :
             Elements({}, device.program->slot(instruction.inputs[0]).type.dims)) {
          Cells(device, instruction.outputs[0])[element] =
              Cells(device, instruction.inputs[0])[element];
        }
        break;
      case Opcode::kFree:
        for (SlotId id : instruction.inputs) Poison(device, id);
        break;
    }
    if (done) ++device.pc;
    return done || std::exchange(moved_, false);
  }

  bool StepSend(Device& device, const Instruction& send) {
    const ChannelEnd& channel = device.program->channels[send.channel.index()];
    std::deque<Tensor>& queue = queues_[channel.name];
    if (queue.size() >= static_cast<size_t>(capacities_[channel.name])) return false;
    Tensor tile;
    for (int64_t element : Elements(send.box, device.program->slot(send.slot).type.dims)) {
      tile.push_back(Cells(device, send.slot)[element]);
    }
    queue.push_back(std::move(tile));
    return true;
  }

  bool StepRecv(Device& device, const Instruction& recv) {
    const ChannelEnd& channel = device.program->channels[recv.channel.index()];
    std::deque<Tensor>& queue = queues_[channel.name];
    if (queue.empty()) return false;
    const auto elements = Elements(recv.box, device.program->slot(recv.slot).type.dims);
    broken_ = broken_ || queue.front().size() != elements.size();
    for (size_t i = 0; !broken_ && i < elements.size(); ++i) {
      StoreElement(device, recv.slot, elements[i], queue.front()[i]);
    }
    queue.pop_front();
    return true;
  }

  bool StepRun(Device& device, const Instruction& run) {
    const Graph& graph = *device.program->executables[run.executable.index()].graph;
    if (device.values.empty()) {
      device.values.assign(graph.values.size(), 0);
      device.node = 0;
      FindOperands(device, graph);
      for (const NamedValue& output : graph.outputs) ReadInput(device, run, output.value);
    }
    for (; device.node < graph.nodes.size(); ++device.node) {
      const Node& node = graph.nodes[device.node];
      if (!device.in_meeting) {
        for (ValueId id : node.inputs) ReadInput(device, run, id);
      }
      if (!EvaluateNode(device, run, node, graph)) return false;
      for (ValueId id : node.outputs) WriteOutput(device, run, graph, id);
    }
    const int64_t cells = device.program->workspace_bytes / kCellBytes;
    const auto base = static_cast<size_t>(device.program->workspace_offset / kCellBytes);
    for (int64_t i = 0; i < cells; ++i)
      device.arena[base + static_cast<size_t>(i)] = Mix(777, device.pc);
    for (size_t o = 0; o < run.outputs.size(); ++o) {
      const ValueId value = graph.outputs[o].value;
      if (device.outputs[value.index()] == static_cast<int>(o)) continue;
      Store(device, run.outputs[o],
            Spread(device.values[value.index()], graph.type(value).elements()));
    }
    device.values.clear();
    return true;
  }

  // Inputs are read by the nodes that use them, outputs written by those that make them, so that
  // slots of one RUN in the same bytes matter.
  void ReadInput(Device& device, const Instruction& run, ValueId value) {
    const int input = device.inputs[value.index()];
    if (input < 0) return;
    device.values[value.index()] = HashTensor(Load(device, run.inputs[static_cast<size_t>(input)]));
  }

  static void FindOperands(Device& device, const Graph& graph) {
    device.inputs.assign(graph.values.size(), -1);
    device.outputs.assign(graph.values.size(), -1);
    int inputs = 0;
    for (NodeId id : graph.NodesOf(Op::kInput)) {
      device.inputs[graph.node(id).outputs[0].index()] = inputs++;
    }
    for (size_t o = graph.outputs.size(); o-- > 0;) {
      const ValueId value = graph.outputs[o].value;
      if (graph.producer(value).op == Op::kInput) continue;
      device.outputs[value.index()] = static_cast<int>(o);
    }
  }

  void WriteOutput(Device& device, const Instruction& run, const Graph& graph, ValueId value) {
    const int output = device.outputs[value.index()];
    if (output < 0) return;
    Store(device, run.outputs[static_cast<size_t>(output)],
          Spread(device.values[value.index()], graph.type(value).elements()));
  }

  // False: waits for its group.
  bool EvaluateNode(Device& device, const Instruction& run, const Node& node, const Graph& graph) {
    if (node.op == Op::kInput) return true;
    const bool transfer = IsTransfer(node.op);
    uint64_t hash = HashText(std::string(OpName(node.op)));
    for (const auto& [name, value] : node.attrs.values()) hash = Mix(hash, HashAttr(name, value));
    for (ValueId id : node.inputs) hash = Mix(hash, device.values[id.index()]);
    if (transfer) {
      const auto met = Meet(device, node, graph, hash);
      if (!met) return false;
      hash = *met;
    }
    const bool local =
        node.op == Op::kFeed || node.op == Op::kRandomNormal || node.attrs.Has("global_dims");
    if (local) hash = Mix(hash, static_cast<uint64_t>(run.microbatch));
    if (local || (transfer && node.op != Op::kAllReduce) || node.op == Op::kShardSlice) {
      for (int64_t coord : device.program->coords) hash = Mix(hash, static_cast<uint64_t>(coord));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      device.values[node.outputs[i].index()] = Mix(hash, i);
    }
    return true;
  }

  static bool IsTransfer(Op op) {
    return op == Op::kAllReduce || op == Op::kAllGather || op == Op::kReduceScatter ||
           op == Op::kAllToAll;
  }

  static uint64_t HashAttr(const std::string& name, const AttrValue& value) {
    struct Visitor {
      std::string operator()(int64_t v) const { return fmt::format("{}", v); }
      std::string operator()(double v) const { return fmt::format("{}", v); }
      std::string operator()(const std::string& v) const { return v; }
      std::string operator()(const std::vector<int64_t>& v) const {
        return fmt::format("{}", fmt::join(v, ","));
      }
      std::string operator()(const std::vector<std::string>& v) const {
        return fmt::format("{}", fmt::join(v, ";"));
      }
    };
    return HashText(name + "=" + std::visit(Visitor(), value));
  }

  std::optional<uint64_t> Meet(Device& device, const Node& node, const Graph& graph,
                               uint64_t operand) {
    std::string group = fmt::format("stage {}", device.program->stage.value());
    int64_t size = 1;
    for (size_t a = 0; a < device.program->axes.size(); ++a) {
      const MeshAxis& axis = device.program->axes[a];
      const std::vector<std::string> axes = node.attrs.Strs("axes");
      const bool member = std::find(axes.begin(), axes.end(), axis.name) != axes.end();
      if (member) size *= axis.size;
      group += member ? " " + axis.name : fmt::format(" {}", device.program->coords[a]);
    }
    if (size == 1) return operand;
    const int me = device.program->device.value();
    Meeting& meeting = meetings_[group];
    if (device.in_meeting) {
      if (!meeting.result) return std::nullopt;
      device.in_meeting = false;
      const uint64_t result = *meeting.result;
      if (--meeting.left == 0) meeting = Meeting();
      return result;
    }
    if (meeting.result) return std::nullopt;  // the last one is not over yet
    const std::string shape =
        fmt::format("{} {}", OpName(node.op), graph.type(node.inputs[0]).ToString());
    if (meeting.operands.empty()) meeting.shape = shape;
    broken_ = broken_ || meeting.shape != shape;
    meeting.operands[me] = operand;
    device.in_meeting = true;
    moved_ = true;
    if (static_cast<int64_t>(meeting.operands.size()) < size) return std::nullopt;
    uint64_t result = 17;
    for (const auto& [rank, value] : meeting.operands) result = Mix(result, value);
    meeting.result = result;
    meeting.left = static_cast<int>(size);
    return Meet(device, node, graph, operand);
  }

  Meaning Collect() {
    Meaning meaning;
    meaning.finished = true;
    for (Device& device : devices_) {
      for (const auto& [slot, tensor] : device.persistent) {
        const bool scratch =
            device.program->slots[static_cast<size_t>(slot)].kind == MemoryKind::kGradients;
        if (!scratch) meaning.results.push_back(HashTensor(tensor));
      }
    }
    for (Device& device : devices_) {
      for (const Program::Report& report : device.program->reports) {
        meaning.results.push_back(HashTensor(Load(device, report.slot)));
      }
    }
    return meaning;
  }

  std::mt19937_64 random_;
  std::vector<Device> devices_;
  std::map<std::string, int> capacities_;
  std::map<std::string, std::deque<Tensor>> queues_;
  std::map<std::string, Meeting> meetings_;
  bool broken_ = false;
  bool moved_ = false;
};

}  // namespace

Meaning Interpret(const std::vector<Program>& programs, uint64_t interleaving) {
  return Interpreter(programs, interleaving).Run();
}

}  // namespace meshwright::ir::testing
