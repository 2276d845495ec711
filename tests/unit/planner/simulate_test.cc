#include "planner/simulate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace meshwright::planner {
namespace {

using ir::Instruction;
using ir::Opcode;
using ir::Program;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMessageElements = 16;

// A graph that is only a name, and the collectives over the given axes.
ir::Executable MakeExecutable(std::string name, std::vector<std::string> collective_axes = {}) {
  auto graph = std::make_shared<ir::Graph>();
  graph->name = std::move(name);
  if (!collective_axes.empty()) {
    ir::Node node;
    node.op = ir::Op::kAllReduce;
    node.attrs.Set("axes", std::move(collective_axes));
    graph->nodes.push_back(std::move(node));
  }
  return {std::move(graph)};
}

// Programs are written line by line; slot 0 is the one message buffer.
class ProgramWriter {
 public:
  explicit ProgramWriter(int device, int stage = 0) {
    program_.device = DeviceIndex(device);
    program_.stage = StageIndex(stage);
    program_.mesh_devices = {DeviceIndex(device)};
    program_.slots.emplace_back().type = {ir::DType::kF32, {kMessageElements}};
  }

  ProgramWriter& Mesh(std::vector<ir::MeshAxis> axes, std::vector<int64_t> coords,
                      std::vector<int> devices) {
    program_.axes = std::move(axes);
    program_.coords = std::move(coords);
    program_.mesh_devices.clear();
    for (int device : devices) program_.mesh_devices.push_back(DeviceIndex(device));
    return *this;
  }

  ProgramWriter& Executable(ir::Executable executable) {
    program_.executables.push_back(std::move(executable));
    return *this;
  }

  ProgramWriter& Run(const std::string& name, int microbatch = 0) {
    const auto it = std::find_if(program_.executables.begin(), program_.executables.end(),
                                 [&](const auto& e) { return e.graph->name == name; });
    int index = static_cast<int>(it - program_.executables.begin());
    if (it == program_.executables.end()) Executable(MakeExecutable(name));
    Instruction& run = program_.instructions.emplace_back();
    run.executable = ExecutableIndex(index);
    run.microbatch = microbatch;
    return *this;
  }

  ProgramWriter& Send(const std::string& channel, int capacity = 2) {
    return Message(Opcode::kSend, channel, capacity);
  }
  ProgramWriter& Recv(const std::string& channel, int capacity = 2) {
    return Message(Opcode::kRecv, channel, capacity);
  }

  Program& program() { return program_; }
  Program Take() { return std::move(program_); }

 private:
  ProgramWriter& Message(Opcode op, const std::string& name, int capacity) {
    const bool outgoing = op == Opcode::kSend;
    auto& channels = program_.channels;
    const auto it = std::find_if(channels.begin(), channels.end(), [&](const auto& end) {
      return end.name == name && end.outgoing == outgoing;
    });
    const int index = static_cast<int>(it - channels.begin());
    if (it == channels.end()) {
      channels.push_back({outgoing, DeviceIndex(), capacity, 0, name});
    }
    Instruction& message = program_.instructions.emplace_back();
    message.op = op;
    message.slot = SlotId(0);
    message.channel = ChannelId(index);
    return *this;
  }

  Program program_;
};

// Forward 1, backward 2 (input and weight gradient 1 each).
SimulationCosts UnitCosts() {
  SimulationCosts costs;
  costs.run_s = [](const Program&, const ir::Executable& executable) {
    return ExecutablePiece(executable) == "b" ? 2.0 : 1.0;
  };
  return costs;
}

SimulationCosts ConstantCosts(double run_s) {
  SimulationCosts costs;
  costs.run_s = [run_s](const Program&, const ir::Executable&) { return run_s; };
  return costs;
}

// One stage of a pipeline: order is "F0 F1 B0 ..." by hand-written rule.
struct Compute {
  bool forward;
  int microbatch;
};

Program StageProgram(int stage, int stages, const std::vector<Compute>& order) {
  ProgramWriter writer(stage, stage);
  for (const Compute& step : order) {
    const bool first = stage == 0, last = stage + 1 == stages;
    const bool receives = step.forward ? !first : !last;
    const bool sends = step.forward ? !last : !first;
    const int low_in = step.forward ? stage - 1 : stage;  // channels are named by their lower stage
    const int low_out = step.forward ? stage : stage - 1;
    const char* const kind = step.forward ? "act" : "grad";
    if (receives) writer.Recv(fmt::format("{}/{}", kind, low_in));
    writer.Run(fmt::format("s{}/{}", stage, step.forward ? "f" : "b"), step.microbatch);
    if (sends) writer.Send(fmt::format("{}/{}", kind, low_out));
  }
  return writer.Take();
}

std::vector<Program> GPipe(int stages, int microbatches) {
  std::vector<Program> programs;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Compute> order;
    for (int i = 0; i < microbatches; ++i) order.push_back({true, i});
    for (int i = 0; i < microbatches; ++i) order.push_back({false, i});
    programs.push_back(StageProgram(stage, stages, order));
  }
  return programs;
}

std::vector<Program> OneForwardOneBackward(int stages, int microbatches) {
  std::vector<Program> programs;
  for (int stage = 0; stage < stages; ++stage) {
    const int warm_up = std::min(microbatches, stages - 1 - stage);
    std::vector<Compute> order;
    for (int i = 0; i < warm_up; ++i) order.push_back({true, i});
    for (int i = warm_up; i < microbatches; ++i) {
      order.push_back({true, i});
      order.push_back({false, i - warm_up});
    }
    for (int i = microbatches - warm_up; i < microbatches; ++i) order.push_back({false, i});
    programs.push_back(StageProgram(stage, stages, order));
  }
  return programs;
}

Simulation MustSimulate(const std::vector<Program>& programs, const SimulationCosts& costs) {
  Result<Simulation> simulation = Simulate(programs, costs);
  if (!simulation.has_value()) {
    ADD_FAILURE() << simulation.error();
    return {};
  }
  return *simulation;
}

std::string SimulateError(const std::vector<Program>& programs, const SimulationCosts& costs) {
  const Result<Simulation> simulation = Simulate(programs, costs);
  return simulation.has_value() ? "simulated" : simulation.error().ToString();
}

TEST(Simulate, GPipeIdlesForItsFillAndDrainAndKeepsEveryMicrobatch) {
  const Simulation simulation = MustSimulate(GPipe(4, 8), UnitCosts());
  EXPECT_DOUBLE_EQ(simulation.makespan_s, 33);  // (m + p - 1) (tF + tB + tW)
  EXPECT_THAT(simulation.busy_s, Each(24.0));
  EXPECT_THAT(simulation.idle_s, Each(9.0));  // (p - 1) (tF + tB + tW)
  EXPECT_THAT(simulation.in_flight_max, Each(8));
}

TEST(Simulate, OneForwardOneBackwardHasTheSameBubbleAndFewerInFlight) {
  const Simulation simulation = MustSimulate(OneForwardOneBackward(4, 8), UnitCosts());
  EXPECT_DOUBLE_EQ(simulation.makespan_s, 33);
  EXPECT_THAT(simulation.idle_s, Each(9.0));
  EXPECT_THAT(simulation.in_flight_max, ElementsAre(4, 3, 2, 1));  // min(m, p - r)
}

TEST(Simulate, BubbleOfALongerPipelineWithUnevenCosts) {
  SimulationCosts costs;
  costs.run_s = [](const Program&, const ir::Executable& executable) {
    return ExecutablePiece(executable) == "f" ? 10.0 : 20.0;  // tF 10, tB 12, tW 8
  };
  EXPECT_THAT(MustSimulate(GPipe(8, 16), costs).idle_s, Each(210.0));
  EXPECT_THAT(MustSimulate(OneForwardOneBackward(8, 16), costs).idle_s, Each(210.0));
}

TEST(Simulate, InFlightNeverExceedsTheMicrobatches) {
  EXPECT_THAT(MustSimulate(OneForwardOneBackward(4, 2), UnitCosts()).in_flight_max,
              ElementsAre(2, 2, 2, 1));
}

TEST(Simulate, SpansAreRunsInOrderOfBegin) {
  const std::vector<Program> programs = OneForwardOneBackward(2, 2);
  const Simulation simulation = MustSimulate(programs, UnitCosts());
  ASSERT_EQ(simulation.spans.size(), 8u);
  for (size_t i = 0; i < simulation.spans.size(); ++i) {
    const Span& span = simulation.spans[i];
    const auto device = static_cast<size_t>(span.device);
    EXPECT_EQ(programs[device].instructions[static_cast<size_t>(span.instruction)].op,
              Opcode::kRun);
    EXPECT_LE(simulation.spans[i == 0 ? 0 : i - 1].begin_s, span.begin_s);
  }
  // Device 1: F0 at 1, B0 at 2, F1 at 4, B1 at 5.
  std::vector<double> begins;
  for (const Span& span : simulation.spans) {
    if (span.device == 1) begins.push_back(span.begin_s);
  }
  EXPECT_THAT(begins, ElementsAre(1, 2, 4, 5));
}

TEST(Simulate, MessagesTakeAlphaAndBytes) {
  SimulationCosts costs = UnitCosts();
  costs.link = [](int, int) { return mesh::LinkCost{0.5, 0.25}; };
  std::vector<Program> programs = {ProgramWriter(0).Run("s0/f").Send("c").Take(),
                                   ProgramWriter(1).Recv("c").Run("s1/f").Take()};
  const double bytes = 4 * kMessageElements;
  Simulation simulation = MustSimulate(programs, costs);
  EXPECT_DOUBLE_EQ(simulation.makespan_s, 1 + 0.5 + 0.25 * bytes + 1);
  EXPECT_THAT(simulation.sent_bytes, ElementsAre(4 * kMessageElements, 0));
  // A tile counts its own bytes.
  for (Program& program : programs) {
    for (Instruction& instruction : program.instructions) {
      if (instruction.op != Opcode::kRun) instruction.box = {{4}, {2}};
    }
  }
  simulation = MustSimulate(programs, costs);
  EXPECT_DOUBLE_EQ(simulation.makespan_s, 1 + 0.5 + 0.25 * 8 + 1);
  EXPECT_THAT(simulation.sent_bytes, ElementsAre(8, 0));
}

TEST(Simulate, ADeviceSendsItsMessagesOneAfterTheOther) {
  SimulationCosts costs = ConstantCosts(0);
  costs.link = [](int, int to) { return mesh::LinkCost{0.5, to == 1 ? 1. : 2.}; };
  const std::vector<Program> programs = {ProgramWriter(0).Send("a").Send("b").Take(),
                                         ProgramWriter(1).Recv("a").Run("s1/f").Take(),
                                         ProgramWriter(2).Recv("b").Run("s2/f").Take()};
  const double bytes = 4 * kMessageElements;
  const Simulation simulation = MustSimulate(programs, costs);
  EXPECT_DOUBLE_EQ(simulation.spans[0].begin_s, bytes + 0.5);
  EXPECT_DOUBLE_EQ(simulation.spans[1].begin_s, 3 * bytes + 0.5);
}

TEST(Simulate, DevicesOfAHostShareItsCores) {
  SimulationCosts costs = ConstantCosts(1);
  costs.cores = [](int device) { return CoreUse{device < 3 ? 7 : 8, 2, 1}; };
  // 0 and 1 run twice, 2 once; 3 is on another host.
  const std::vector<Program> programs = {ProgramWriter(0).Run("s0/f").Run("s0/f", 1).Take(),
                                         ProgramWriter(1).Run("s0/f").Run("s0/f", 1).Take(),
                                         ProgramWriter(2).Run("s0/f").Take(),
                                         ProgramWriter(3).Run("s0/f").Take()};
  const Simulation simulation = MustSimulate(programs, costs);
  // Three on two cores take 1.5; the two that are left have a core each.
  EXPECT_THAT(simulation.busy_s, ElementsAre(::testing::DoubleEq(2.5), ::testing::DoubleEq(2.5),
                                             ::testing::DoubleEq(1.5), ::testing::DoubleEq(1)));
  EXPECT_DOUBLE_EQ(simulation.makespan_s, 2.5);
}

TEST(Simulate, AFullChannelHoldsItsSender) {
  const auto programs = [](int capacity) {
    ProgramWriter sender(0), receiver(1);
    receiver.Run("s1/wait").Run("s1/wait");
    for (int i = 0; i < 3; ++i) {
      sender.Send("c", capacity);
      receiver.Recv("c", capacity).Run("s1/work", i);
    }
    sender.Run("s0/after");
    return std::vector<Program>{sender.Take(), receiver.Take()};
  };
  // The receiver takes messages at 2, 3 and 4; the third SEND needs message 3 - capacity taken.
  const auto begin_of_after = [&](int capacity) {
    const Simulation simulation = MustSimulate(programs(capacity), ConstantCosts(1));
    for (const Span& span : simulation.spans) {
      if (span.device == 0) return span.begin_s;
    }
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(begin_of_after(3), 0);
  EXPECT_DOUBLE_EQ(begin_of_after(2), 2);
  EXPECT_DOUBLE_EQ(begin_of_after(1), 3);
}

// Four devices, data=2 x tensor=2; device d first runs d times alone.
std::vector<Program> GridPrograms(std::vector<std::string> collective_axes) {
  std::vector<Program> programs;
  for (int device = 0; device < 4; ++device) {
    ProgramWriter writer(device);
    writer.Mesh({{"data", 2}, {"tensor", 2}}, {device / 2, device % 2}, {0, 1, 2, 3});
    writer.Executable(MakeExecutable("s0/f", collective_axes));
    for (int i = 0; i < device; ++i) writer.Run("s0/alone", i);
    programs.push_back(writer.Run("s0/f").Take());
  }
  return programs;
}

std::vector<double> BeginsOfForward(const std::vector<Program>& programs) {
  std::vector<double> begins(programs.size());
  for (const Span& span : MustSimulate(programs, ConstantCosts(1)).spans) {
    const Program& program = programs[static_cast<size_t>(span.device)];
    const Instruction& run = program.instructions[static_cast<size_t>(span.instruction)];
    if (run.executable == ExecutableIndex(0))
      begins[static_cast<size_t>(span.device)] = span.begin_s;
  }
  return begins;
}

TEST(Simulate, CollectivesWaitForTheirGroupOnly) {
  EXPECT_THAT(BeginsOfForward(GridPrograms({})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(BeginsOfForward(GridPrograms({"tensor"})), ElementsAre(1, 1, 3, 3));
  EXPECT_THAT(BeginsOfForward(GridPrograms({"data"})), ElementsAre(2, 3, 2, 3));
  EXPECT_THAT(BeginsOfForward(GridPrograms({"data", "tensor"})), ElementsAre(3, 3, 3, 3));
}

TEST(Simulate, AGroupEndsTogetherAfterItsSlowestMember) {
  SimulationCosts costs;
  costs.run_s = [](const Program& program, const ir::Executable& executable) {
    if (ExecutablePiece(executable) == "alone") return 0.0;
    return 1.0 + program.device.value();
  };
  const Simulation simulation = MustSimulate(GridPrograms({"tensor"}), costs);
  EXPECT_THAT(simulation.busy_s, ElementsAre(2, 2, 4, 4));
  EXPECT_DOUBLE_EQ(simulation.makespan_s, 4);
}

TEST(Simulate, ADeadlockNamesDevicesAndInstructions) {
  const std::vector<Program> programs = {
      ProgramWriter(0).Run("s0/f").Recv("a").Send("b").Take(),
      ProgramWriter(1).Run("s1/f").Run("s1/f", 1).Recv("b").Send("a").Take(),
      ProgramWriter(2).Run("s2/f").Take()};
  EXPECT_EQ(SimulateError(programs, UnitCosts()),
            "invalid argument: deadlock: device 0 waits at instruction 1 (RECV s0 <- c0); "
            "device 1 waits at instruction 2 (RECV s0 <- c0)");
}

TEST(Simulate, AMissingMessageIsADeadlock) {
  std::vector<Program> programs = GPipe(2, 3);
  // Stage 0 loses its last forward SEND.
  auto& list = programs[0].instructions;
  const auto last =
      std::find_if(list.rbegin(), list.rend(), [](const auto& i) { return i.op == Opcode::kSend; });
  list.erase(std::next(last).base());
  EXPECT_THAT(SimulateError(programs, UnitCosts()),
              HasSubstr("deadlock: device 0 waits at instruction 5 (RECV s0 <- c1)"));
}

TEST(Simulate, AnAbsentGroupMemberIsADeadlock) {
  std::vector<Program> programs = GridPrograms({"tensor"});
  programs[3].instructions.pop_back();
  EXPECT_EQ(SimulateError(programs, UnitCosts()),
            "invalid argument: deadlock: device 2 waits at instruction 2 (RUN e0 mb=0 () -> ())");
}

TEST(Simulate, MembersThatMeetWithDifferentWorkAreAnError) {
  std::vector<Program> programs = GridPrograms({"tensor"});
  programs[1].instructions.back().microbatch = 7;
  EXPECT_THAT(SimulateError(programs, UnitCosts()),
              HasSubstr("device 1 runs s0/f mb=7 where device 0 of the same group runs s0/f mb=0"));
}

TEST(Simulate, MalformedProgramsAreErrors) {
  const SimulationCosts costs = UnitCosts();
  const auto broken = [&](auto change) {
    std::vector<Program> programs = GPipe(2, 1);
    change(programs);
    return SimulateError(programs, costs);
  };
  EXPECT_THAT(broken([](auto& p) { p[0].instructions[0].executable = ExecutableIndex(9); }),
              HasSubstr("device 0: instruction 0 names executable 9 of 2"));
  EXPECT_THAT(broken([](auto& p) { p[0].instructions[1].channel = ChannelId(-1); }),
              HasSubstr("instruction 1 names channel -1 of 2"));
  EXPECT_THAT(broken([](auto& p) { p[0].instructions[1].slot = SlotId(5); }),
              HasSubstr("instruction 1 names slot 5 of 1"));
  EXPECT_THAT(broken([](auto& p) { p[0].instructions[1].op = Opcode::kRecv; }),
              HasSubstr("against its direction"));
  EXPECT_THAT(broken([](auto& p) { p[0].channels[0].name = "elsewhere"; }),
              HasSubstr("channel \"elsewhere\" has no receiving end"));
  EXPECT_THAT(broken([](auto& p) { p[0].channels[0].capacity = 0; }), HasSubstr("capacity 0"));
  EXPECT_THAT(broken([](auto& p) { p[1].device = DeviceIndex(0); }),
              HasSubstr("two programs are for device 0"));
  EXPECT_THAT(broken([](auto& p) { p[0].coords.push_back(1); }), HasSubstr("do not fit together"));
  EXPECT_THAT(broken([](auto& p) { p[0].executables[0].graph = nullptr; }),
              HasSubstr("executable 0 has no graph"));
  EXPECT_THAT(SimulateError(GPipe(1, 1), ConstantCosts(-1)), HasSubstr("costs -1 s"));
  std::vector<Program> partial_grid = GridPrograms({"tensor"});
  partial_grid.pop_back();
  EXPECT_THAT(SimulateError(partial_grid, costs), HasSubstr("need device 3, which has no program"));
}

TEST(Simulate, TheOrderOfTheProgramsDoesNotChangeAnyTime) {
  std::vector<Program> programs = OneForwardOneBackward(4, 8);
  const Simulation forward = MustSimulate(programs, UnitCosts());
  std::reverse(programs.begin(), programs.end());
  const Simulation backward = MustSimulate(programs, UnitCosts());
  ASSERT_EQ(forward.spans.size(), backward.spans.size());
  for (size_t i = 0; i < forward.spans.size(); ++i) {
    EXPECT_EQ(forward.spans[i].device, backward.spans[i].device);
    EXPECT_EQ(forward.spans[i].begin_s, backward.spans[i].begin_s);
    EXPECT_EQ(forward.spans[i].end_s, backward.spans[i].end_s);
  }
}

TEST(Simulate, NoProgramsTakeNoTime) { EXPECT_EQ(MustSimulate({}, UnitCosts()).makespan_s, 0); }

TEST(ExecutablePiece, IsTheNameBehindTheStage) {
  EXPECT_EQ(ExecutablePiece(MakeExecutable("s1/f")), "f");
  EXPECT_EQ(ExecutablePiece(MakeExecutable("s12/u0")), "u0");
  EXPECT_EQ(ExecutablePiece(MakeExecutable("z")), "z");
}

}  // namespace
}  // namespace meshwright::planner
