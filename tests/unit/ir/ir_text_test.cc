#include "ir/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/builder.h"

namespace meshwright::ir {
namespace {

constexpr const char* kGraph = R"(graph "f" {
  %0 = input {name="x"} : f32[2,8]
  %1 = param {decay=1, init="normal", name="ln.w", std=0.02} @layer0 : f32[8]
  %2, %3 = rms_norm(%0, %1) {eps=1e-05} @layer0 : f32[2,8], f32[2]
  %4, %5 = rms_norm_grad(%0, %1, %3, %2) {eps=1e-05} @layer0 @backward : f32[2,8], f32[8]
  %6 = sum_squares(%5) @update : f32[]
  output "y" %2
  output "sum of squares" %6
}
)";

constexpr const char* kProgram = R"(program "step" device 3 of 8 stage 1 {
  axes data=2 tensor=2 | coords data=0 tensor=1 | microbatches 4 | arena 1024 | workspace 512 + 256
  ranks 4 3 6 7
  slot s0 : f32[64,64] persistent weights "wte" part [64,0:64,64] of [128,64]
  slot s1 : f32[2,16] transient activations @256 "stage0/f/%12"
  slot s2 : f32[] transient other @0 "loss"
  channel c0 out to 5 capacity 2 bytes 4096 "step/c/3-5"
  channel c1 in from 1 capacity 1 bytes 4096 "step/c/1-3"
  RECV s1 [0,0:1,16] <- c1
  RECV s1 [1,0:1,16] <- c1
  RUN e0 mb=0 (s0, s1) -> (s2)
  SEND s1 -> c0
  FREE (s1)
  report "loss" s2
  executable e0 = graph "f" {
    %0 = input {name="w"} : f32[64,64]
    output "w" %0
  }
}
)";

TEST(GraphText, GoldenTextRoundTrips) {
  const auto graph = ParseGraph(kGraph);
  ASSERT_TRUE(graph.has_value()) << graph.error();
  EXPECT_EQ(FormatGraph(*graph), kGraph);
  EXPECT_EQ(graph->nodes[3].phase, Phase::kBackward);
  EXPECT_EQ(graph->nodes[1].attrs.Real("std"), 0.02);
  EXPECT_EQ(graph->value(ValueId(3)).producer, NodeId(2));
}

TEST(GraphText, AnOutputSaysWhereItIsAMeanAndElseIsASum) {
  Builder b("means");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", "x"}}, {{DType::kF32, {}}});
  b.SetOutput("mean", x, Reduction::kMean);
  b.SetOutput("sum", x);
  b.SetOutput("replaced", x, Reduction::kMean);
  b.SetOutput("replaced", x);
  const Graph graph = *b.Finish();
  const std::string text = FormatGraph(graph);
  EXPECT_NE(text.find("  output \"mean\" %0 mean\n  output \"sum\" %0\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("  output \"replaced\" %0\n"), std::string::npos) << text;
  const auto parsed = ParseGraph(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error();
  EXPECT_EQ(*parsed, graph);
  EXPECT_FALSE(
      ParseGraph("graph \"g\" { %0 = input {name=\"x\"} : f32[]\n output \"x\" %0 means }"));
}

TEST(GraphText, AttributesKeepTypeAndValue) {
  Builder b("attrs \"quoted\" \\ \n\x01\xc3\xa9");
  Attrs attrs = {{"name", std::string("a\"b\\c\n")},
                 {"zero", 0.0},
                 {"minus_zero", -0.0},
                 {"third", 1.0 / 3},
                 {"huge", 1e300},
                 {"whole", 1e16},
                 {"infinite", std::numeric_limits<double>::infinity()},
                 {"least", std::numeric_limits<int64_t>::min()},
                 {"ints", std::vector<int64_t>{-1, 0, 7}},
                 {"no_ints", std::vector<int64_t>()},
                 {"strs", std::vector<std::string>{"", "micro,data"}},
                 {"no_strs", std::vector<std::string>()},
                 {"odd name", int64_t{1}}};
  b.AddOne(Op::kInput, {}, attrs, {{DType::kBool, {}}});
  const Graph graph = *b.Finish();
  const std::string text = FormatGraph(graph);
  const auto parsed = ParseGraph(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error() << text;
  EXPECT_EQ(*parsed, graph) << text;
  EXPECT_EQ(FormatGraph(*parsed), text);
  EXPECT_TRUE(std::signbit(parsed->nodes[0].attrs.Real("minus_zero", 1)));
}

TEST(GraphText, ErrorsNameTheLine) {
  const auto error = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto graph = ParseGraph(text);
    return graph ? std::string("parsed") : graph.error().message();
  };
  EXPECT_EQ(error(kGraph, "%1 = param", "%2 = param"),
            "line 3: result %2 must be %1: ids count up, before ' = param {decay=1, init='");
  EXPECT_NE(
      error(kGraph, "rms_norm(%0, %1)", "rms_norm(%0, %2)").find("line 4: %2 is not defined yet"),
      std::string::npos);
  EXPECT_NE(error(kGraph, "rms_norm(", "rmsnorm(")
                .find("line 4: unknown op 'rmsnorm'; did you mean 'rms_norm'?"),
            std::string::npos);
  EXPECT_NE(error(kGraph, "f32[2,8]\n", "f33[2,8]\n").find("unknown dtype 'f33'"),
            std::string::npos);
  EXPECT_NE(error(kGraph, "f32[2,8]\n", "f32[0,8]\n").find("at least 1"), std::string::npos);
  EXPECT_NE(error(kGraph, "std=0.02", "decay=0").find("given twice"), std::string::npos);
  EXPECT_NE(error(kGraph, "sum of squares", "y").find("line 8: output \"y\" is given twice"),
            std::string::npos);
  EXPECT_NE(error(kGraph, "@update", "@later").find("expected layer, backward or update"),
            std::string::npos);
  EXPECT_NE(error(kGraph, "name=\"x\"", "name=x").find("is not an attribute value"),
            std::string::npos);
  EXPECT_NE(error(kGraph, "\"x\"", "\"\\q\"").find("unknown escape"), std::string::npos);
  EXPECT_NE(error(kGraph, "}\n", "} x\n").find("line 9: expected the end of the text"),
            std::string::npos);
  EXPECT_FALSE(ParseGraph("").has_value());
  EXPECT_FALSE(ParseGraph("graph \"x").has_value());
}

TEST(GraphText, EveryTruncationIsAnErrorNotACrash) {
  const std::string text = kGraph;
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_FALSE(ParseGraph(text.substr(0, length)).has_value()) << length;
  }
}

TEST(ProgramText, GoldenTextRoundTrips) {
  const auto program = ParseProgram(kProgram);
  ASSERT_TRUE(program.has_value()) << program.error();
  EXPECT_EQ(FormatProgram(*program), kProgram);
  EXPECT_EQ(program->slots[0].global_dims, (Dims{128, 64}));
  EXPECT_EQ(program->mesh_devices[0], DeviceIndex(4));
  EXPECT_EQ(program->instructions[4].inputs, (std::vector<SlotId>{SlotId(1)}));
  const auto again = ParseProgram(FormatProgram(*program));
  EXPECT_EQ(*again, *program);
}

TEST(ProgramText, SaysWhetherCollectivesOverlap) {
  const std::string line = "workspace 512 + 256";
  for (const auto& [text, mode] :
       {std::pair("", OverlapMode::kByDevice), std::pair(" | overlap on", OverlapMode::kOn),
        std::pair(" | overlap off", OverlapMode::kOff)}) {
    std::string all = kProgram;
    all.replace(all.find(line), line.size(), line + text);
    const auto program = ParseProgram(all);
    ASSERT_TRUE(program.has_value()) << program.error();
    EXPECT_EQ(program->overlap, mode);
    EXPECT_EQ(FormatProgram(*program), all);
  }
  std::string wrong = kProgram;
  wrong.replace(wrong.find(line), line.size(), line + " | overlap perhaps");
  EXPECT_FALSE(ParseProgram(wrong).has_value());
}

TEST(ProgramText, EveryTruncationIsAnErrorNotACrash) {
  const std::string text = kProgram;
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_FALSE(ParseProgram(text.substr(0, length)).has_value()) << length;
  }
}

TEST(ProgramText, FormatsAnythingWithoutCrashing) {
  Program program;
  program.coords = {1, 2};
  program.executables.push_back({});
  program.slots.push_back({});
  Instruction run;
  run.inputs = {SlotId(99)};
  program.instructions = {run, run, run, run};
  for (size_t i = 0; i < 4; ++i) program.instructions[i].op = static_cast<Opcode>(i);
  EXPECT_NE(FormatProgram(program).find("RUN e-1 mb=0 (s99) -> ()"), std::string::npos);
  EXPECT_FALSE(ParseProgram(FormatProgram(program)).has_value());
}

}  // namespace
}  // namespace meshwright::ir
