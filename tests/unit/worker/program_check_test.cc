// A worker refuses every program that could make it touch memory that is not the program's: one
// mutation per check.
#include "worker/program_check.h"

#include <gmock/gmock.h>

#include <functional>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

ir::Program GoodProgram() {
  const MeshSpec mesh{{{"data", 2}}, {}, 0};
  ProgramMaker maker("step", 1, mesh);
  maker.Microbatches(2);
  const SlotId x = maker.Persistent("x", F32({4, 4}));
  const SlotId y = maker.Transient(F32({4, 4}));
  const SlotId loss = maker.Transient(F32({}));
  const ExecutableIndex run = maker.Executable(R"(graph "g" {
    %0 = input {name="x"} : f32[4,4]
    %1 = scale(%0) {factor=2.0} : f32[4,4]
    %2 = scale(%1) {factor=2.0} : f32[4,4]
    %3 = sum_squares(%2) : f32[]
    output "y" %2
    output "loss" %3
  })");
  maker.Run(run, {x}, {y, loss}, 1);
  maker.Send(y, maker.Channel(true, 0, "c", 32), {{2, 0}, {2, 4}});
  maker.Free({y});
  maker.Report("loss", loss);
  return maker.Finish();
}

struct Mutation {
  const char* name;
  std::function<void(ir::Program&)> apply;
  const char* message;
};

class ProgramCheckMutation : public testing::TestWithParam<Mutation> {};

TEST(ProgramCheck, AcceptsAGoodProgram) {
  const Status status = CheckProgram(GoodProgram());
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ProgramCheckMutation, IsRejectedWithItsReason) {
  ir::Program program = GoodProgram();
  GetParam().apply(program);
  const Status status = CheckProgram(program);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::StartsWith("program " + program.name + "/"));
  EXPECT_THAT(status.message(), testing::HasSubstr(GetParam().message));
}

using P = ir::Program;
INSTANTIATE_TEST_SUITE_P(
    All, ProgramCheckMutation,
    testing::Values(
        Mutation{"NoName", [](P& p) { p.name = ""; }, "needs a name"},
        Mutation{"DeviceOutside", [](P& p) { p.device = DeviceIndex(7); },
                 "a device of the job's 2"},
        Mutation{"CoordOutside", [](P& p) { p.coords[0] = 2; }, "axis data of size 2 with coord 2"},
        Mutation{"WrongPlace", [](P& p) { p.coords[0] = 0; }, "must stand at its coords"},
        Mutation{"MeshTooSmall", [](P& p) { p.mesh_devices.pop_back(); },
                 "2 positions and 1 devices"},
        Mutation{"HugeAxis", [](P& p) { p.axes[0].size = int64_t{1} << 62; }, "axis data"},
        Mutation{"NoMicrobatch", [](P& p) { p.microbatches = 0; }, "0 microbatches"},
        Mutation{"SlotBeyondArena", [](P& p) { p.slots[1].offset_bytes = p.arena_bytes; },
                 "do not fit an arena"},
        Mutation{"SlotBeforeArena", [](P& p) { p.slots[1].offset_bytes = -64; },
                 "do not fit an arena"},
        Mutation{"SlotUnaligned", [](P& p) { p.slots[1].offset_bytes = 4; }, "64-byte alignment"},
        Mutation{"SlotOverflows",
                 [](P& p) {
                   p.slots[1].type.dims = {int64_t{1} << 40, int64_t{1} << 40};
                 },
                 "the bytes sane"},
        Mutation{"SlotEmpty",
                 [](P& p) {
                   p.slots[1].type.dims = {0, 4};
                 },
                 "dims must be >= 1"},
        Mutation{"WorkspaceBeyondArena", [](P& p) { p.workspace_offset = p.arena_bytes; },
                 "workspace"},
        Mutation{"WorkspaceTooSmall", [](P& p) { p.workspace_bytes = 0; },
                 "needs a workspace of 64 bytes"},
        Mutation{"NegativeArena", [](P& p) { p.arena_bytes = -1; }, "an arena of -1 bytes"},
        Mutation{"PersistentWithoutName", [](P& p) { p.slots[0].name = ""; }, "a name of its own"},
        Mutation{"NoGraph", [](P& p) { p.executables[0].graph = nullptr; },
                 "executable e0 has no graph"},
        Mutation{"BrokenGraph",
                 [](P& p) {
                   ir::Graph graph = *p.executables[0].graph;
                   graph.nodes[1].inputs[0] = ValueId(99);
                   p.executables[0].graph = std::make_shared<const ir::Graph>(graph);
                 },
                 "executable e0"},
        Mutation{"UnknownExecutable",
                 [](P& p) { p.instructions[0].executable = ExecutableIndex(3); },
                 "instruction 0: executable e3 does not exist"},
        Mutation{"MicrobatchOutside", [](P& p) { p.instructions[0].microbatch = 2; },
                 "microbatch 2 of 2"},
        Mutation{"TooFewInputs", [](P& p) { p.instructions[0].inputs.clear(); },
                 "0 inputs and 2 outputs"},
        Mutation{"InputType", [](P& p) { p.instructions[0].inputs[0] = SlotId(2); },
                 "slot s2 is f32[], the executable has f32[4,4]"},
        Mutation{"OutputOutside", [](P& p) { p.instructions[0].outputs[0] = SlotId(-1); },
                 "slot s-1 does not exist"},
        Mutation{"ChannelOutside", [](P& p) { p.instructions[1].channel = ChannelId(9); },
                 "channel c9 does not exist"},
        Mutation{"WrongDirection", [](P& p) { p.channels[0].outgoing = false; },
                 "the channel goes in"},
        Mutation{"PeerIsSelf", [](P& p) { p.channels[0].peer = p.device; }, "channel c0"},
        Mutation{"BoxLeaves", [](P& p) { p.instructions[1].box.offset[0] = 3; },
                 "the box leaves f32[4,4] in dim 0"},
        Mutation{"BoxRank", [](P& p) { p.instructions[1].box.size.pop_back(); },
                 "a box of other rank"},
        Mutation{"MessageTooLong", [](P& p) { p.instructions[1].box = {}; },
                 "64 bytes on a channel for 32"},
        Mutation{"FreeOutside", [](P& p) { p.instructions[2].inputs = {SlotId(12)}; },
                 "instruction 2: slot s12"},
        Mutation{"ReportOfATensor", [](P& p) { p.reports[0].slot = SlotId(1); },
                 "must be one f32 or f64"}),
    [](const auto& test) { return test.param.name; });

TEST(ProgramCheck, APersistentSlotHasOneTypePerDevice) {
  ProgramMaker init("init", 0);
  init.Persistent("w", F32({4}));
  ProgramMaker step("step", 0);
  step.Persistent("w", F32({5}));
  const auto runtime = JobRuntime::Load(LocalOptions(1, {init.Finish(), step.Finish()}));
  ASSERT_FALSE(runtime.has_value());
  EXPECT_THAT(
      runtime.error().message(),
      testing::HasSubstr("persistent slot 'w' is f32[5], in another program of the device f32[4]"));
}

}  // namespace
}  // namespace meshwright::worker
