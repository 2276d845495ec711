#include "tests/property/ir_program_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/lifetime.h"

namespace meshwright::ir::testing {
namespace {

constexpr int64_t kRows = 4;  // of a microbatch
constexpr int64_t kHidden = 8;
constexpr int64_t kMessageBytes = kHidden * kHidden * 4;

struct Shape {
  int stages = 1;
  int microbatches = 1;
  int tensors = 1;  // that cross each stage boundary
  bool gpipe = false;
  bool tied = false;
  bool persistent_accumulators = false;
  bool prefetch = false;            // gpipe: receive the next microbatch before this one runs
  bool late_sends = false;          // gpipe: send a microbatch after the next one has run
  bool single_rows = false;         // a tile per row
  bool decay = false;               // an update of the weights that reads nothing else
  bool forward_all_reduce = false;  // the same collective as in the backward pass
  bool tied_before_norm = false;
};

struct StageGraphs {
  std::vector<std::string> names;  // of the executables, in order: "zero", "forward", ...
  std::vector<Executable> executables;
  int Index(const std::string& name) const {
    const auto it = std::find(names.begin(), names.end(), name);
    return it == names.end() ? -1 : static_cast<int>(it - names.begin());
  }
};

struct Stage {
  int index = 0;
  int64_t data = 1;
  int64_t tensor = 1;
  int first_device = 0;
  StageGraphs graphs;

  int64_t rows() const { return kRows / data; }
  int DeviceAt(int64_t d, int64_t t) const {
    return first_device + static_cast<int>(d * tensor + t);
  }
  TensorType activation() const { return {DType::kF32, {rows(), kHidden}}; }
  TensorType weight() const { return {DType::kF32, {kHidden, kHidden / tensor}}; }
};

std::string Name(const char* what, int stage) { return fmt::format("{}/{}", what, stage); }
std::string Name(const char* what, int stage, int k) {
  return fmt::format("{}/{}/{}", what, stage, k);
}

// Makes the executables of one stage.
class GraphMaker {
 public:
  GraphMaker(const Shape& shape, const Stage& stage) : shape_(shape), stage_(stage) {}

  StageGraphs Make() {
    Zero();
    Forward();
    Backward();
    if (stage_.data > 1) Reduce();
    Norm();
    if (shape_.decay) Decay();
    Update();
    return std::move(graphs_);
  }

 private:
  bool first() const { return stage_.index == 0; }
  bool last() const { return stage_.index == shape_.stages - 1; }

  void Keep(const std::string& name, Builder& builder) {
    auto graph = builder.Finish();
    MW_CHECK(graph.has_value()) << graph.error();
    graphs_.names.push_back(name);
    graphs_.executables.push_back({std::make_shared<const Graph>(std::move(*graph))});
  }

  static ValueId Input(Builder& b, const std::string& name, const TensorType& type) {
    return b.AddOne(Op::kInput, {}, {{"name", name}}, {type});
  }

  static TensorType Scalar() { return {DType::kF32, {}}; }

  ValueId AllReduce(Builder& b, ValueId value, const char* axis) {
    return b.AddOne(Op::kAllReduce, {value}, {{"axes", std::vector<std::string>{axis}}});
  }

  void Zero() {
    Builder b("zero");
    b.SetOutput(Name("acc", stage_.index),
                b.AddOne(Op::kConstant, {}, {{"value", 0.0}}, {stage_.weight()}));
    if (last()) b.SetOutput("loss", b.AddOne(Op::kConstant, {}, {{"value", 0.0}}, {Scalar()}));
    Keep("zero", b);
  }

  void Forward() {
    Builder b("forward");
    std::vector<ValueId> x;
    for (int k = 0; k < shape_.tensors; ++k) {
      x.push_back(first() ? b.AddOne(Op::kRandomNormal, {}, {{"name", Name("data", 0, k)}},
                                     {stage_.activation()})
                          : Input(b, Name("act", stage_.index - 1, k), stage_.activation()));
    }
    const ValueId w = Input(b, Name("w", stage_.index), stage_.weight());
    ValueId h = b.AddOne(Op::kEinsum, {x[0], w}, {{"equation", std::string("bk,kn->bn")}});
    if (stage_.tensor > 1) h = Join(b, h);
    for (size_t k = 1; k < x.size(); ++k) h = b.AddOne(Op::kAdd, {h, x[k]});
    b.SetOutput(Name("save", stage_.index), h);
    ValueId y = b.AddOne(Op::kGelu, {h});
    if (last()) {
      const ValueId total = Input(b, "loss", Scalar());
      const ValueId loss = b.AddOne(Op::kSumSquares, {y});
      b.SetOutput("loss", b.AddOne(Op::kAdd, {total, loss}));
    } else {
      for (int k = 0; k < shape_.tensors; ++k) {
        b.SetOutput(Name("act", stage_.index, k), y);
        y = b.AddOne(Op::kScale, {y}, {{"factor", 0.5}});
      }
    }
    Keep("forward", b);
  }

  // The tensor axis' column blocks side by side, in one of two ways.
  ValueId Join(Builder& b, ValueId part) {
    if (shape_.forward_all_reduce) {
      const int64_t after = kHidden - kHidden / stage_.tensor;
      const ValueId wide = b.AddOne(
          Op::kPad, {part}, {{"dim", int64_t{1}}, {"before", int64_t{0}}, {"after", after}});
      return AllReduce(b, wide, "tensor");
    }
    return b.AddOne(Op::kAllGather, {part},
                    {{"axes", std::vector<std::string>{"tensor"}}, {"dim", int64_t{1}}},
                    {stage_.activation()});
  }

  void Backward() {
    Builder b("backward");
    b.SetPhase(Phase::kBackward);
    const ValueId save = Input(b, Name("save", stage_.index), stage_.activation());
    const ValueId w = Input(b, Name("w", stage_.index), stage_.weight());
    const ValueId acc = Input(b, Name("acc", stage_.index), stage_.weight());
    ValueId dy = save;
    for (int k = 0; !last() && k < shape_.tensors; ++k) {
      const ValueId grad = Input(b, Name("grad", stage_.index, k), stage_.activation());
      dy = b.AddOne(Op::kGeluGrad, {dy, grad});
    }
    if (stage_.tensor > 1) {
      const TensorType part{DType::kF32, {stage_.rows(), kHidden / stage_.tensor}};
      dy = b.AddOne(Op::kShardSlice, {dy},
                    {{"axes", std::vector<std::string>{"tensor"}}, {"dim", int64_t{1}}}, {part});
    }
    const ValueId dw = b.AddOne(Op::kEinsum, {save, dy}, {{"equation", std::string("bk,bn->kn")}});
    b.SetOutput(Name("acc", stage_.index), b.AddOne(Op::kAdd, {acc, dw}));
    if (!first()) {
      ValueId dx = b.AddOne(Op::kEinsum, {dy, w}, {{"equation", std::string("bn,kn->bk")}});
      if (stage_.tensor > 1) dx = AllReduce(b, dx, "tensor");
      for (int k = 0; k < shape_.tensors; ++k) {
        b.SetOutput(Name("grad", stage_.index - 1, k), dx);
        dx = b.AddOne(Op::kScale, {dx}, {{"factor", 0.5}});
      }
    }
    Keep("backward", b);
  }

  void Reduce() {
    Builder b("reduce");
    b.SetPhase(Phase::kUpdate);
    const ValueId acc = Input(b, Name("acc", stage_.index), stage_.weight());
    b.SetOutput(Name("acc", stage_.index), AllReduce(b, acc, "data"));
    Keep("reduce", b);
  }

  void Norm() {
    Builder b("norm");
    b.SetPhase(Phase::kUpdate);
    ValueId norm =
        b.AddOne(Op::kSumSquares, {Input(b, Name("acc", stage_.index), stage_.weight())});
    if (stage_.tensor > 1) norm = AllReduce(b, norm, "tensor");
    b.SetOutput(Name("norm", stage_.index), norm);
    Keep("norm", b);
  }

  void Decay() {
    Builder b("decay");
    b.SetPhase(Phase::kUpdate);
    const ValueId w = Input(b, Name("w", stage_.index), stage_.weight());
    b.SetOutput(Name("w", stage_.index), b.AddOne(Op::kScale, {w}, {{"factor", 0.9}}));
    Keep("decay", b);
  }

  void Update() {
    Builder b("update");
    b.SetPhase(Phase::kUpdate);
    const ValueId w = Input(b, Name("w", stage_.index), stage_.weight());
    const ValueId acc = Input(b, Name("acc", stage_.index), stage_.weight());
    const ValueId norm = Input(b, Name("norm", stage_.index), Scalar());
    ValueId step = b.AddOne(Op::kMulScalar, {acc, norm});
    if (shape_.tied && last()) {
      step = b.AddOne(Op::kSub, {step, Input(b, Name("acc", 0), stage_.weight())});
    }
    b.SetOutput(Name("w", stage_.index), b.AddOne(Op::kSub, {w, step}));
    Keep("update", b);
  }

  const Shape& shape_;
  const Stage& stage_;
  StageGraphs graphs_;
};

// Emits the list of one device: slots on first use, frees and places at the end.
class ProgramMaker {
 public:
  ProgramMaker(const Shape& shape, const std::vector<Stage>& stages, const Stage& stage, int64_t d,
               int64_t t, const std::map<std::pair<int, int>, int>& capacities)
      : shape_(shape), stages_(stages), stage_(stage), d_(d), t_(t), capacities_(capacities) {
    p_.name = "step";
    p_.device = DeviceIndex(stage.DeviceAt(d, t));
    p_.device_count = stages.back().DeviceAt(stages.back().data - 1, stages.back().tensor - 1) + 1;
    p_.stage = StageIndex(stage.index);
    p_.axes = {{"data", stage.data}, {"tensor", stage.tensor}};
    p_.coords = {d, t};
    for (int i = 0; i < stage.data * stage.tensor; ++i)
      p_.mesh_devices.emplace_back(stage.first_device + i);
    p_.microbatches = shape.microbatches;
    p_.executables = stage.graphs.executables;
  }

  Program Make() {
    AddPersistent(Name("w", stage_.index), MemoryKind::kWeights);
    if (shape_.persistent_accumulators)
      AddPersistent(Name("acc", stage_.index), MemoryKind::kGradients);
    Run("zero", 0);
    for (const auto& [forward, microbatch] : Order()) {
      if (forward) {
        Forward(microbatch);
      } else {
        Backward(microbatch);
      }
    }
    UpdatePhase();
    if (last() && d_ == 0 && t_ == 0) {
      p_.reports.push_back({"loss", SlotOf("loss", -1)});
      p_.reports.push_back({"norm", SlotOf(Name("norm", stage_.index), -1)});
    }
    Finish();
    return std::move(p_);
  }

 private:
  bool first() const { return stage_.index == 0; }
  bool last() const { return stage_.index == shape_.stages - 1; }

  std::vector<std::pair<bool, int>> Order() const {
    const int m = shape_.microbatches;
    const int warm_up = shape_.gpipe ? m : std::min(m, shape_.stages - 1 - stage_.index);
    std::vector<std::pair<bool, int>> order;
    for (int i = 0; i < warm_up; ++i) order.emplace_back(true, i);
    for (int i = warm_up; i < m; ++i) {
      order.emplace_back(true, i);
      order.emplace_back(false, i - warm_up);
    }
    for (int i = m - warm_up; i < m; ++i) order.emplace_back(false, i);
    return order;
  }

  void AddPersistent(const std::string& name, MemoryKind kind) {
    slots_[{name, -1}] = SlotId(static_cast<int32_t>(p_.slots.size()));
    p_.slots.push_back({stage_.weight(), true, kind, {}, 0, name, {}, {}});
  }

  // Values of the step as a whole have microbatch -1.
  static int KeyMicrobatch(const std::string& name, int microbatch) {
    const bool whole =
        name == "loss" || name[0] == 'w' || name.rfind("acc", 0) == 0 || name[0] == 'n';
    return whole ? -1 : microbatch;
  }

  SlotId SlotOf(const std::string& name, int microbatch) {
    return slots_.at({name, KeyMicrobatch(name, microbatch)});
  }

  SlotId SlotOf(const std::string& name, int microbatch, const TensorType& type) {
    const auto [it, fresh] = slots_.try_emplace({name, KeyMicrobatch(name, microbatch)},
                                                static_cast<int32_t>(p_.slots.size()));
    if (fresh) {
      p_.slots.push_back({type,
                          false,
                          MemoryKind::kActivations,
                          {},
                          0,
                          fmt::format("{}@{}", name, microbatch),
                          {},
                          {}});
    }
    return it->second;
  }

  void Run(const std::string& name, int microbatch) {
    Instruction run;
    const int index = stage_.graphs.Index(name);
    run.executable = ExecutableIndex(index);
    run.microbatch = microbatch;
    const Graph& graph = *p_.executables[static_cast<size_t>(index)].graph;
    for (NodeId id : graph.NodesOf(Op::kInput)) {
      const Node& node = graph.node(id);
      run.inputs.push_back(SlotOf(node.attrs.Str("name"), microbatch, graph.type(node.outputs[0])));
    }
    for (const NamedValue& output : graph.outputs) {
      run.outputs.push_back(SlotOf(output.name, microbatch, graph.type(output.value)));
    }
    p_.instructions.push_back(std::move(run));
  }

  ChannelId Channel(bool outgoing, int peer) {
    const int me = p_.device.value();
    const std::pair<int, int> ends = outgoing ? std::pair(me, peer) : std::pair(peer, me);
    const std::string name = fmt::format("step/c/{}-{}", ends.first, ends.second);
    for (size_t i = 0; i < p_.channels.size(); ++i) {
      if (p_.channels[i].name == name) return ChannelId(static_cast<int32_t>(i));
    }
    p_.channels.push_back({outgoing, DeviceIndex(peer), capacities_.at(ends), kMessageBytes, name});
    return ChannelId(static_cast<int32_t>(p_.channels.size()) - 1);
  }

  void Transfer(Opcode op, SlotId slot, Box box, int peer) {
    Instruction transfer;
    transfer.op = op;
    transfer.slot = slot;
    transfer.box = std::move(box);
    transfer.channel = Channel(op == Opcode::kSend, peer);
    p_.instructions.push_back(std::move(transfer));
  }

  // The rows that block `pd` of the peer shares with this device's block, as boxes of the local
  // one.
  std::vector<Box> SharedRows(const Stage& peer, int64_t pd) const {
    const int64_t mine = d_ * stage_.rows();
    const int64_t begin = std::max(mine, pd * peer.rows());
    const int64_t end = std::min(mine + stage_.rows(), (pd + 1) * peer.rows());
    std::vector<Box> boxes;
    const int64_t step = shape_.single_rows ? 1 : std::max(end - begin, int64_t{1});
    for (int64_t row = begin; row < end; row += step) {
      boxes.push_back(Box{{row - mine, 0}, {step, kHidden}});
    }
    return boxes;
  }

  void SendTo(const Stage& to, const std::string& name, int microbatch) {
    for (int64_t pd = 0; pd < to.data; ++pd) {
      for (const Box& box : SharedRows(to, pd)) {
        for (int64_t pt = t_; pt < to.tensor; pt += stage_.tensor) {
          Transfer(Opcode::kSend, SlotOf(name, microbatch), box, to.DeviceAt(pd, pt));
        }
      }
    }
  }

  void RecvFrom(const Stage& from, const std::string& name, int microbatch) {
    const SlotId slot = SlotOf(name, microbatch, stage_.activation());
    for (int64_t pd = 0; pd < from.data; ++pd) {
      for (const Box& box : SharedRows(from, pd)) {
        Transfer(Opcode::kRecv, slot, box, from.DeviceAt(pd, t_ % from.tensor));
      }
    }
  }

  const Stage& StageAt(int index) const { return stages_[static_cast<size_t>(index)]; }

  void ReceiveActivations(int microbatch) {
    if (first() || microbatch >= shape_.microbatches) return;
    for (int k = 0; k < shape_.tensors; ++k) {
      RecvFrom(StageAt(stage_.index - 1), Name("act", stage_.index - 1, k), microbatch);
    }
  }

  void SendActivations(int microbatch) {
    if (last() || microbatch < 0) return;
    for (int k = 0; k < shape_.tensors; ++k) {
      SendTo(StageAt(stage_.index + 1), Name("act", stage_.index, k), microbatch);
    }
  }

  void Forward(int microbatch) {
    const bool prefetch = shape_.gpipe && shape_.prefetch;
    const bool late = shape_.gpipe && shape_.late_sends;
    if (!prefetch || microbatch == 0) ReceiveActivations(microbatch);
    if (prefetch) ReceiveActivations(microbatch + 1);
    Run("forward", microbatch);
    SendActivations(late ? microbatch - 1 : microbatch);
    if (late && microbatch == shape_.microbatches - 1) SendActivations(microbatch);
  }

  void Backward(int microbatch) {
    for (int k = 0; !last() && k < shape_.tensors; ++k) {
      RecvFrom(StageAt(stage_.index + 1), Name("grad", stage_.index, k), microbatch);
    }
    Run("backward", microbatch);
    for (int k = 0; !first() && k < shape_.tensors; ++k) {
      SendTo(StageAt(stage_.index - 1), Name("grad", stage_.index - 1, k), microbatch);
    }
  }

  void UpdatePhase() {
    if (stage_.data > 1) Run("reduce", 0);
    if (shape_.tied_before_norm) ExchangeTied();
    Run("norm", 0);
    if (!shape_.tied_before_norm) ExchangeTied();
    if (shape_.decay) Run("decay", 0);
    Run("update", 0);
  }

  // The first stage's accumulated gradient goes to the last stage.
  void ExchangeTied() {
    if (shape_.tied && first() && d_ == 0) {
      const Stage& to = stages_.back();
      for (int64_t pd = 0; pd < to.data; ++pd) {
        Transfer(Opcode::kSend, SlotOf(Name("acc", 0), -1), {}, to.DeviceAt(pd, t_));
      }
    }
    if (shape_.tied && last()) {
      const SlotId slot = SlotOf(Name("acc", 0), -1, stage_.weight());
      Transfer(Opcode::kRecv, slot, {}, StageAt(0).DeviceAt(0, t_));
    }
  }

  void Finish() {
    std::vector<Lifetime> lives(p_.slots.size() + 1);
    std::vector<bool> seen(p_.slots.size(), false);
    const auto touch = [&](SlotId id, int instant) {
      const auto i = id.index();
      if (!seen[i])
        lives[i] = {p_.slots[i].persistent ? 0 : p_.slots[i].type.bytes(), instant, instant};
      seen[i] = true;
      lives[i].last = instant;
    };
    const int end = static_cast<int>(p_.instructions.size());
    for (int i = 0; i < end; ++i) {
      const Instruction& instruction = p_.instructions[static_cast<size_t>(i)];
      for (SlotId id : instruction.inputs) touch(id, i);
      for (SlotId id : instruction.outputs) touch(id, i);
      if (instruction.slot.valid()) touch(instruction.slot, i);
    }
    for (const Program::Report& report : p_.reports) touch(report.slot, end);
    for (const Executable& executable : p_.executables) {
      p_.workspace_bytes = std::max(p_.workspace_bytes, PlanWorkspace(*executable.graph).bytes);
    }
    lives.back() = {p_.workspace_bytes, 0, end};
    const Placement placement = PlaceLifetimes(lives);
    for (size_t i = 0; i < p_.slots.size(); ++i)
      p_.slots[i].offset_bytes = placement.offset_bytes[i];
    p_.workspace_offset = placement.offset_bytes.back();
    p_.arena_bytes = placement.bytes;
    InsertFrees(lives);
  }

  void InsertFrees(const std::vector<Lifetime>& lives) {
    const int end = static_cast<int>(p_.instructions.size());
    std::vector<Instruction> list;
    for (int i = 0; i < end; ++i) {
      list.push_back(std::move(p_.instructions[static_cast<size_t>(i)]));
      Instruction free;
      free.op = Opcode::kFree;
      for (size_t s = 0; s < p_.slots.size(); ++s) {
        if (lives[s].last == i && !p_.slots[s].persistent) {
          free.inputs.emplace_back(static_cast<int32_t>(s));
        }
      }
      if (!free.inputs.empty()) list.push_back(std::move(free));
    }
    p_.instructions = std::move(list);
  }

  const Shape& shape_;
  const std::vector<Stage>& stages_;
  const Stage& stage_;
  const int64_t d_;
  const int64_t t_;
  const std::map<std::pair<int, int>, int>& capacities_;
  Program p_;
  std::map<std::pair<std::string, int>, SlotId> slots_;
};

}  // namespace

GeneratedJob GenerateJob(uint64_t seed, Channels channels) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Shape shape;
  shape.stages = draw(1, 3);
  shape.microbatches = draw(1, 4);
  shape.tensors = draw(1, 2);
  shape.gpipe = draw(0, 1) == 1;
  shape.persistent_accumulators = draw(0, 1) == 1;
  for (bool* choice : {&shape.prefetch, &shape.late_sends, &shape.single_rows, &shape.decay,
                       &shape.forward_all_reduce, &shape.tied_before_norm}) {
    *choice = draw(0, 1) == 1;
  }
  std::vector<Stage> stages(static_cast<size_t>(shape.stages));
  GeneratedJob job;
  int devices = 0;
  for (int s = 0; s < shape.stages; ++s) {
    Stage& stage = stages[static_cast<size_t>(s)];
    stage.index = s;
    stage.data = draw(1, 2);
    stage.tensor = draw(1, 2);
    stage.first_device = devices;
    devices += static_cast<int>(stage.data * stage.tensor);
    job.description += fmt::format("data={} tensor={} | ", stage.data, stage.tensor);
  }
  shape.tied = shape.stages > 1 && stages[0].tensor == stages.back().tensor && draw(0, 1) == 1;
  job.description += fmt::format(
      "microbatches={} tensors={} gpipe={} tied={} persistent={} prefetch={} late={} rows={} "
      "decay={} "
      "all_reduce={} tied_before_norm={}",
      shape.microbatches, shape.tensors, shape.gpipe, shape.tied, shape.persistent_accumulators,
      shape.prefetch, shape.late_sends, shape.single_rows, shape.decay, shape.forward_all_reduce,
      shape.tied_before_norm);
  std::map<std::pair<int, int>, int> capacities;
  for (int a = 0; a < devices; ++a) {
    const int messages = shape.tensors * (shape.single_rows ? static_cast<int>(kRows) : 1);
    const int least = channels == Channels::kTight ? 1 : messages;
    for (int b = 0; b < devices; ++b) capacities[{a, b}] = draw(least, least + 1);
  }
  for (Stage& stage : stages) stage.graphs = GraphMaker(shape, stage).Make();
  for (const Stage& stage : stages) {
    for (int64_t d = 0; d < stage.data; ++d) {
      for (int64_t t = 0; t < stage.tensor; ++t) {
        job.programs.push_back(ProgramMaker(shape, stages, stage, d, t, capacities).Make());
      }
    }
  }
  return job;
}

}  // namespace meshwright::ir::testing
