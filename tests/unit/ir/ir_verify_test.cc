// Each rule of ir/verify.h with the smallest edit of a good job that breaks it. tests/property has
// the random ones.
#include "ir/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/text.h"

namespace meshwright::ir {
namespace {

// Stage 0 sends one activation per microbatch; stage 1 accumulates a loss and reports it.
constexpr const char* kSender = R"(program "step" device 0 of 2 stage 0 {
  axes data=1 | coords data=0 | microbatches 2 | arena 256 | workspace 128 + 128
  ranks 0
  slot s0 : f32[4,4] persistent weights "w"
  slot s1 : f32[4,4] transient activations @0 "act mb0"
  slot s2 : f32[4,4] transient activations @64 "act mb1"
  channel c0 out to 1 capacity 1 bytes 64 "step/c/0-1"
  RUN e0 mb=0 (s0) -> (s1)
  SEND s1 [0,0:2,4] -> c0
  SEND s1 [2,0:2,4] -> c0
  FREE (s1)
  RUN e0 mb=1 (s0) -> (s2)
  SEND s2 [0,0:2,4] -> c0
  SEND s2 [2,0:2,4] -> c0
  FREE (s2)
  RUN e1 mb=0 (s0) -> (s0)
  executable e0 = graph "forward" {
    %0 = input {name="w"} : f32[4,4]
    %1 = gelu(%0) : f32[4,4]
    %2 = gelu(%1) : f32[4,4]
    output "act" %2
  }
  executable e1 = graph "update" {
    %0 = input {name="w"} : f32[4,4]
    %1 = scale(%0) {factor=0.5} @update : f32[4,4]
    output "w" %1
  }
}
)";

constexpr const char* kReceiver = R"(program "step" device 1 of 2 stage 1 {
  axes data=1 | coords data=0 | microbatches 2 | arena 512 | workspace 256 + 64
  ranks 1
  slot s0 : f32[4,4] transient activations @0 "act mb0"
  slot s1 : f32[4,4] transient activations @64 "act mb1"
  slot s2 : f32[] transient other @128 "total"
  slot s3 : f32[] transient other @192 "loss"
  channel c0 in from 0 capacity 1 bytes 64 "step/c/0-1"
  RUN e0 mb=0 () -> (s2)
  RECV s0 [0,0:2,4] <- c0
  RECV s0 [2,0:2,4] <- c0
  RUN e1 mb=0 (s0, s2) -> (s2)
  FREE (s0)
  RECV s1 [0,0:2,4] <- c0
  RECV s1 [2,0:2,4] <- c0
  RUN e1 mb=1 (s1, s2) -> (s2)
  FREE (s1)
  RUN e2 mb=0 (s2) -> (s3)
  FREE (s2)
  report "loss" s3
  executable e0 = graph "zero" {
    %0 = constant {value=0.0} : f32[]
    output "total" %0
  }
  executable e1 = graph "forward" {
    %0 = input {name="act"} : f32[4,4]
    %1 = input {name="total"} : f32[]
    %2 = sum_squares(%0) : f32[]
    %3 = add(%1, %2) : f32[]
    output "total" %3
  }
  executable e2 = graph "update" {
    %0 = input {name="total"} : f32[]
    %1 = scale(%0) {factor=0.5} @update : f32[]
    output "loss" %1
  }
}
)";

struct Edit {
  std::string from;
  std::string to;
};

std::string Apply(std::string text, const std::vector<Edit>& edits) {
  for (const Edit& edit : edits) {
    const size_t at = text.find(edit.from);
    EXPECT_NE(at, std::string::npos) << edit.from;
    if (at != std::string::npos) text.replace(at, edit.from.size(), edit.to);
  }
  return text;
}

// The verifier's message after edits of the two programs; "" when accepted.
std::string Verdict(const std::vector<Edit>& sender, const std::vector<Edit>& receiver,
                    const VerifyOptions& options = {}) {
  std::vector<Program> programs;
  for (const std::string& text : {Apply(kSender, sender), Apply(kReceiver, receiver)}) {
    auto program = ParseProgram(text);
    if (!program) return "parse: " + program.error().message();
    programs.push_back(std::move(*program));
  }
  return VerifyPrograms(programs, options).message();
}

void ExpectRejected(const std::string& says, const std::vector<Edit>& sender,
                    const std::vector<Edit>& receiver, const VerifyOptions& options = {}) {
  const std::string message = Verdict(sender, receiver, options);
  EXPECT_NE(message.find(says), std::string::npos) << "wanted: " << says << "\ngot: " << message;
}

TEST(VerifyPrograms, AcceptsAGoodJob) { EXPECT_EQ(Verdict({}, {}), ""); }

TEST(VerifyPrograms, ErrorNamesProgramInstructionAndText) {
  EXPECT_EQ(Verdict({{"  SEND s1 [0,0:2,4] -> c0\n", "  FREE (s2)\n"}}, {}),
            "program step/0, instruction 1 (FREE (s2)): s2 is not alive: used before definition or "
            "after FREE");
}

TEST(VerifyPrograms, SlotsLiveFromDefinitionToFree) {
  ExpectRejected("used before definition",
                 {{"RUN e0 mb=0 (s0) -> (s1)", "RUN e0 mb=0 (s0) -> (s2)"}}, {});
  ExpectRejected("after FREE", {{"  FREE (s1)\n", "  FREE (s1)\n  SEND s1 -> c0\n"}}, {});
  ExpectRejected("after FREE", {{"  FREE (s1)\n", "  FREE (s1, s1)\n"}}, {});
  ExpectRejected("s1 \"act mb0\" leaks", {{"  FREE (s1)\n", ""}}, {});
  ExpectRejected("is alive and would be overwritten",
                 {{"  FREE (s1)\n", ""}, {"(s0) -> (s2)", "(s0) -> (s1)"}}, {});
  ExpectRejected("s0 is persistent", {{"FREE (s1)", "FREE (s0)"}}, {});
  ExpectRejected("frees nothing", {{"FREE (s1)", "FREE ()"}}, {});
  ExpectRejected("report \"loss\": s3 is not alive", {}, {{"FREE (s2)", "FREE (s2, s3)"}});
}

TEST(VerifyPrograms, TilesCoverWithoutOverlap) {
  ExpectRejected("tile overlaps one", {}, {{"RECV s0 [2,0:2,4]", "RECV s0 [1,0:2,4]"}});
  ExpectRejected("its tiles fill 8 of 16 elements", {},
                 {{"  RECV s0 [2,0:2,4] <- c0\n  RUN e1 mb=0 (s0, s2) -> (s2)\n",
                   "  RUN e1 mb=0 (s0, s2) -> (s2)\n  RECV s0 [2,0:2,4] <- c0\n"}});
  ExpectRejected("tile [3,0:2,4] is not inside [4,4]", {},
                 {{"RECV s0 [2,0:2,4]", "RECV s0 [3,0:2,4]"}});
  ExpectRejected("is not inside", {{"SEND s1 [0,0:2,4]", "SEND s1 [0:2]"}}, {});
}

TEST(VerifyPrograms, MessagesAgreeInShapeAndChannel) {
  ExpectRejected("receives f32[2,4] of \"act\" into a tile of f32[1,4]", {},
                 {{"RECV s0 [0,0:2,4]", "RECV s0 [0,0:1,4]"}});
  ExpectRejected("needs exactly one end", {{"capacity 1", "capacity 2"}}, {});
  ExpectRejected("needs exactly one end", {{"step/c/0-1", "step/c/x"}}, {});
  ExpectRejected("the channel has the other direction",
                 {{"SEND s1 [0,0:2,4] -> c0", "RECV s1 [0,0:2,4] <- c0"}}, {});
  ExpectRejected("the tile has 64 bytes, the channel takes 32",
                 {{"bytes 64", "bytes 32"}, {"SEND s1 [0,0:2,4]", "SEND s1"}}, {});
  ExpectRejected(
      "messages are never received",
      {{"  RUN e1 mb=0 (s0) -> (s0)\n", "  RUN e1 mb=0 (s0) -> (s0)\n  SEND s0 [0,0:2,4] -> c0\n"}},
      {});
}

TEST(VerifyPrograms, WaitsForEverAreFound) {
  ExpectRejected("program step/1, instruction 6 (RECV s1 [2,0:2,4] <- c0): waits for ever",
                 {{"  SEND s2 [2,0:2,4] -> c0\n", ""}}, {});
}

TEST(VerifyPrograms, OperandsMatchTheExecutable) {
  ExpectRejected("0 inputs and 1 outputs, the executable has 1 and 1", {{"mb=0 (s0)", "mb=0 ()"}},
                 {});
  ExpectRejected("input 1: s0 is f32[4,4], the executable has f32[]", {},
                 {{"(s0, s2) -> (s2)", "(s0, s0) -> (s2)"}});
  ExpectRejected("s9 is not a slot", {{"mb=0 (s0)", "mb=0 (s9)"}}, {});
  ExpectRejected("no such executable", {{"RUN e0 mb=0", "RUN e7 mb=0"}}, {});
  ExpectRejected("microbatch must be in [0, 2)", {{"RUN e0 mb=1", "RUN e0 mb=2"}}, {});
  ExpectRejected("results are f32[4,4], declared are f32[4,5]",
                 {{"%1 = gelu(%0) : f32[4,4]", "%1 = gelu(%0) : f32[4,5]"}}, {});
}

TEST(VerifyPrograms, ExecutablesRunOncePerMicrobatchOrOncePerStep) {
  ExpectRejected("expected microbatch 0 of 2", {{"RUN e0 mb=0", "RUN e0 mb=1"}}, {});
  ExpectRejected("executable e0 runs 1 times, expected 2; it has forward or backward nodes",
                 {{"  RUN e0 mb=1 (s0) -> (s2)\n", ""}}, {});
  ExpectRejected("executable e1 runs 0 times, expected 1; it has update nodes",
                 {{"  RUN e1 mb=0 (s0) -> (s0)\n", ""}}, {});
  ExpectRejected("expected microbatch 1 of 1",
                 {{"  RUN e1 mb=0 (s0) -> (s0)\n",
                   "  RUN e1 mb=0 (s0) -> (s0)\n  RUN e1 mb=0 (s0) -> (s0)\n"}},
                 {});
}

TEST(VerifyPrograms, InPlaceUpdatesFollowTheStep) {
  // The weights change before the second microbatch reads them.
  ExpectRejected("s0 was already updated in place by a later part of the step",
                 {{"  RUN e1 mb=0 (s0) -> (s0)\n", ""},
                  {"  RUN e0 mb=1", "  RUN e1 mb=0 (s0) -> (s0)\n  RUN e0 mb=1"}},
                 {});
  // The update reads the accumulator before it is complete.
  ExpectRejected("s2 was already used by a later part of the step", {},
                 {{"  RUN e2 mb=0 (s2) -> (s3)\n", ""},
                  {"  RUN e1 mb=1", "  RUN e2 mb=0 (s2) -> (s3)\n  RUN e1 mb=1"}});
}

TEST(VerifyPrograms, DonatedInputIsNotReadAfterItsReplacement) {
  ExpectRejected(
      "s0 is updated in place, but input 0 is still needed when output 0 is written",
      {{"%1 = scale(%0) {factor=0.5} @update : f32[4,4]\n    output \"w\" %1",
        "%1 = scale(%0) {factor=0.5} @update : f32[4,4]\n    %2 = add(%1, %0) @update : f32[4,4]\n"
        "    output \"w\" %1"}},
      {});
  // transpose cannot write where it reads.
  ExpectRejected("is still needed",
                 {{"%1 = scale(%0) {factor=0.5} @update : f32[4,4]\n    output \"w\"",
                   "%1 = transpose(%0) {perm=[1,0]} @update : f32[4,4]\n    output \"w\""}},
                 {});
}

TEST(VerifyPrograms, MicrobatchesDoNotMix) {
  // Both ends alive at once, then the receiver takes them in the wrong order.
  const std::string both =
      "  RECV s1 [0,0:2,4] <- c0\n  RECV s1 [2,0:2,4] <- c0\n  RECV s0 [0,0:2,4] <- c0\n  RECV s0 "
      "[2,0:2,4] <- c0\n";
  ExpectRejected(
      "s0 holds microbatch 1", {},
      {{"  RECV s0 [0,0:2,4] <- c0\n  RECV s0 [2,0:2,4] <- c0\n", both},
       {"  FREE (s0)\n  RECV s1 [0,0:2,4] <- c0\n  RECV s1 [2,0:2,4] <- c0\n", "  FREE (s0)\n"}});
}

TEST(VerifyPrograms, WhatTheStepReadsIsNotOfOneMicrobatch) {
  ExpectRejected("s1 holds microbatch 0: accumulate what the step reads over its microbatches",
                 {{"  FREE (s1)\n", ""},
                  {"  RUN e1 mb=0 (s0) -> (s0)\n", "  RUN e1 mb=0 (s0, s1) -> (s0)\n  FREE (s1)\n"},
                  {"    %1 = scale(%0) {factor=0.5} @update : f32[4,4]\n    output \"w\" %1",
                   "    %1 = input {name=\"act\"} : f32[4,4]\n"
                   "    %2 = add(%0, %1) @update : f32[4,4]\n    output \"w\" %2"}},
                 {});
}

TEST(VerifyPrograms, SentSlotsAreFinalAndKeepTheirName) {
  ExpectRejected("s0 was received as \"act\" and is read as \"x\"", {},
                 {{"{name=\"act\"}", "{name=\"x\"}"}});
  ExpectRejected(
      "s0 was sent, so its content is final",
      {{"  RUN e1 mb=0 (s0) -> (s0)\n", "  SEND s0 [0,0:2,4] -> c0\n  RUN e1 mb=0 (s0) -> (s0)\n"}},
      {});
}

// Weights that are copied to another stage after the update: used before they arrive, never after.
TEST(VerifyPrograms, ReceivedPersistentSlotIsNotUsedAfterwards) {
  const std::vector<Edit> sends = {
      {"  RUN e1 mb=0 (s0) -> (s0)\n", "  RUN e1 mb=0 (s0) -> (s0)\n  SEND s0 -> c0\n"}};
  const std::string run = "  RUN e3 mb=0 (s4) -> (s5)\n  FREE (s5)\n";
  const std::string recv = "  RECV s4 <- c0\n";
  const auto receives = [](const std::string& name, const std::string& list) {
    return std::vector<Edit>{
        {"  channel", "  slot s4 : f32[4,4] persistent weights \"" + name +
                          "\"\n  slot s5 : f32[] transient other @384 \"norm\"\n  channel"},
        {"  report", list + "  report"},
        {"    output \"loss\" %1\n  }\n",
         "    output \"loss\" %1\n  }\n  executable e3 = graph \"norm\" {\n"
         "    %0 = input {name=\"w\"} : f32[4,4]\n    %1 = sum_squares(%0) @update : f32[]\n"
         "    output \"norm\" %1\n  }\n"}};
  };
  EXPECT_EQ(Verdict(sends, receives("w", run + recv)), "");
  ExpectRejected("s4 was already updated in place by a later part", sends,
                 receives("w", recv + run));
  ExpectRejected("persistent slot \"v\" receives \"w\"", sends, receives("v", run + recv));
}

TEST(VerifyPrograms, TilesOfOneValueKeepTheirOrder) {
  ExpectRejected("growing order",
                 {{"  SEND s1 [0,0:2,4] -> c0\n  SEND s1 [2,0:2,4] -> c0\n",
                   "  SEND s1 [2,0:2,4] -> c0\n  SEND s1 [0,0:2,4] -> c0\n"}},
                 {});
  ExpectRejected("growing order", {},
                 {{"  RECV s0 [0,0:2,4] <- c0\n  RECV s0 [2,0:2,4] <- c0\n",
                   "  RECV s0 [2,0:2,4] <- c0\n  RECV s0 [0,0:2,4] <- c0\n"}});
}

TEST(VerifyPrograms, MemoryFits) {
  ExpectRejected("s2 and s1 are alive in the same bytes",
                 {{"  FREE (s1)\n", ""}, {"FREE (s2)", "FREE (s1, s2)"}, {"@64", "@0"}}, {});
  ExpectRejected("s2 overlaps the workspace", {{"@64", "@128"}}, {});
  ExpectRejected("must be 64-byte aligned and inside the arena", {{"@64", "@32"}}, {});
  ExpectRejected("must be 64-byte aligned and inside the arena of 64 bytes",
                 {{"arena 256", "arena 64"}}, {});
  ExpectRejected("executable e0 needs 64 bytes of workspace, there are 32",
                 {{"128 + 128", "128 + 32"}}, {});
  VerifyOptions options;
  options.memory_budget_bytes = 300;  // the sender has 256 + 64
  ExpectRejected("program step/0: needs 320 bytes of memory, the budget is 300", {}, {}, options);
}

// Within a RUN an output may take the bytes of an input that was read before.
constexpr const char* kOverwriter = R"(program "step" device 0 of 1 stage 0 {
  axes data=1 | coords data=0 | microbatches 1 | arena 192 | workspace 128 + 64
  ranks 0
  slot s0 : f32[4,4] persistent weights "w"
  slot s1 : f32[4,4] transient activations @0 "act"
  slot s2 : f32[4,4] transient gradients @0 "grad"
  RUN e0 mb=0 (s0) -> (s1)
  RUN e1 mb=0 (s1) -> (s2)
  FREE (s1)
  RUN e2 mb=0 (s0, s2) -> (s0)
  FREE (s2)
  executable e0 = graph "forward" {
    %0 = input {name="w"} : f32[4,4]
    %1 = gelu(%0) : f32[4,4]
    output "act" %1
  }
  executable e1 = graph "backward" {
    %0 = input {name="act"} : f32[4,4]
    %1 = gelu(%0) @backward : f32[4,4]
    %2 = einsum(%1, %1) {equation="km,kn->mn"} @backward : f32[4,4]
    output "grad" %2
  }
  executable e2 = graph "update" {
    %0 = input {name="w"} : f32[4,4]
    %1 = input {name="grad"} : f32[4,4]
    %2 = add(%0, %1) @update : f32[4,4]
    output "w" %2
  }
}
)";

Status VerifyEdited(std::string text, const std::string& from, const std::string& to) {
  if (!from.empty()) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  const Result<Program> program = ParseProgram(text);
  EXPECT_TRUE(program) << program.error();
  return VerifyPrograms({&*program, 1});
}

TEST(VerifyPrograms, OutputsMayOverwriteInputsThatWereReadBefore) {
  const auto message = [](const std::string& from, const std::string& to) {
    return VerifyEdited(kOverwriter, from, to).message();
  };
  EXPECT_TRUE(VerifyEdited(kOverwriter, "", "").ok()) << VerifyEdited(kOverwriter, "", "");
  EXPECT_THAT(message("einsum(%1, %1)", "einsum(%1, %0)"),
              testing::HasSubstr("s2 and s1 are alive in the same bytes"));
  EXPECT_THAT(message("  FREE (s1)\n", ""), testing::HasSubstr("s1 \"act\" leaks"));
  EXPECT_THAT(message("RUN e2 mb=0 (s0, s2) -> (s0)", "RUN e2 mb=0 (s0, s1) -> (s0)"),
              testing::HasSubstr("s1 "));
  EXPECT_THAT(message("  FREE (s1)\n  RUN e2 mb=0 (s0, s2)", "  RUN e2 mb=0 (s0, s1)"),
              testing::HasSubstr("s1 was overwritten by an output"));
}

TEST(VerifyPrograms, HeaderIsConsistent) {
  ExpectRejected("device 5 is not one of 2", {{"device 0 of 2", "device 5 of 2"}}, {});
  ExpectRejected("the coordinates are those of device 1", {{"ranks 0", "ranks 1"}}, {});
  ExpectRejected("2 mesh devices, the axes need 1", {{"ranks 0", "ranks 0 1"}}, {});
  ExpectRejected("is there twice", {},
                 {{"device 1 of 2 stage 1", "device 0 of 2 stage 1"},
                  {"ranks 1", "ranks 0"},
                  {"from 0", "from 1"}});
  ExpectRejected("3 devices and 2 microbatches, program step/0 has 2 and 2", {},
                 {{"device 1 of 2", "device 1 of 3"}});
}

TEST(VerifyPrograms, NullGraphIsAnError) {
  Program program = *ParseProgram(kSender);
  program.executables[0].graph = nullptr;
  const std::vector<Program> programs = {program};
  EXPECT_EQ(VerifyPrograms(programs).message(), "program step/0, executable e0 has no graph");
}

// Two devices that reduce two values over their data axis.
std::string Reducer(int device, const std::string& order) {
  const std::string d = std::to_string(device);
  return "program \"step\" device " + d + " of 2 stage 0 {\n  axes data=2 | coords data=" + d +
         R"( | microbatches 1 | arena 0 | workspace 0 + 0
  ranks 0 1
  slot s0 : f32[4] persistent gradients "a"
  slot s1 : f32[4] persistent gradients "b"
)" + order +
         R"(  executable e0 = graph "a" {
    %0 = input {name="a"} : f32[4]
    %1 = all_reduce(%0) {axes=["data"]} @update : f32[4]
    output "a" %1
  }
  executable e1 = graph "b" {
    %0 = input {name="b"} : f32[4]
    %1 = all_reduce(%0) {axes=["data"]} @update : f32[4]
    output "b" %1
  }
}
)";
}

std::string ReducerVerdict(const std::vector<std::string>& texts) {
  std::vector<Program> programs;
  for (const std::string& text : texts) {
    auto program = ParseProgram(text);
    if (!program) return program.error().message();
    programs.push_back(std::move(*program));
  }
  return VerifyPrograms(programs).message();
}

constexpr const char* kRunA = "  RUN e0 mb=0 (s0) -> (s0)\n";
constexpr const char* kRunB = "  RUN e1 mb=0 (s1) -> (s1)\n";

TEST(VerifyPrograms, CollectivesMeetInOneOrder) {
  const std::string ab = std::string(kRunA) + kRunB;
  const std::string ba = std::string(kRunB) + kRunA;
  EXPECT_EQ(ReducerVerdict({Reducer(0, ab), Reducer(1, ab)}), "");
  const std::string message = ReducerVerdict({Reducer(0, ab), Reducer(1, ba)});
  EXPECT_NE(
      message.find(
          "program step/1, instruction 0 (RUN e1 mb=0 (s1) -> (s1)): collective e1 mb=0 node 1"),
      std::string::npos)
      << message;
  EXPECT_NE(message.find("of group [0,1] meets e0 mb=0 node 1"), std::string::npos) << message;
}

TEST(VerifyPrograms, CollectiveNeedsItsAxisAndItsMembers) {
  const std::string ab = std::string(kRunA) + kRunB;
  EXPECT_NE(ReducerVerdict({Reducer(0, ab)}).find("device 1 of its mesh has no program"),
            std::string::npos);
  std::string unknown = Reducer(0, ab);
  unknown.replace(unknown.find("[\"data\"]"), 8, "[\"pipe\"]");
  EXPECT_NE(ReducerVerdict({unknown, Reducer(1, ab)}).find("no mesh axis \"pipe\""),
            std::string::npos);
}

// Each device sends before it enters the collective in which the other waits.
TEST(VerifyPrograms, CollectiveAndChannelWaitingForEachOtherIsFound) {
  const auto with_channel = [](std::string text, const std::string& channel) {
    text.insert(text.find("  RUN"), channel);
    return text;
  };
  const std::string out = "  channel c0 out to 1 capacity 1 bytes 16 \"c\"\n";
  const std::string in = "  channel c0 in from 0 capacity 1 bytes 16 \"c\"\n";
  const std::string sends = "  SEND s1 -> c0\n";
  const std::string receives = "  RECV s1 <- c0\n";
  const std::string only_a = "  executable e1";
  const auto one = [&](int device, const std::string& list) {
    std::string text = Reducer(device, list);
    const size_t begin = text.find(only_a);
    return with_channel(text.substr(0, begin) + "}\n", device == 0 ? out : in);
  };
  EXPECT_EQ(
      ReducerVerdict({one(0, sends + kRunA), one(1, receives + kRunA)}).find("waits for ever"),
      std::string::npos);
  const std::string message =
      ReducerVerdict({one(0, std::string(kRunA) + sends), one(1, receives + kRunA)});
  EXPECT_NE(message.find("program step/0, instruction 0 (RUN e0 mb=0 (s0) -> (s0)): waits for "
                         "ever, together with program step/1, instruction 0 (RECV s1 <- c0)"),
            std::string::npos)
      << message;
}

TEST(VerifyGraph, FindsBrokenStructure) {
  Builder b("g");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {{DType::kF32, {2}}});
  b.SetOutput("y", b.AddOne(Op::kGelu, {x}));
  const Graph good = *b.Finish();
  EXPECT_TRUE(VerifyGraph(good).ok());

  Graph graph = good;
  graph.nodes[1].inputs[0] = ValueId(1);
  EXPECT_NE(
      VerifyGraph(graph).message().find("graph \"g\", node 1: gelu reads %1 before it is defined"),
      std::string::npos);
  graph = good;
  graph.nodes[1].inputs[0] = ValueId(-7);
  EXPECT_FALSE(VerifyGraph(graph).ok());
  graph = good;
  graph.values[1].type.dims = {3};
  EXPECT_NE(VerifyGraph(graph).message().find("declared are f32[3]"), std::string::npos);
  graph = good;
  graph.values[1].producer = NodeId(0);
  EXPECT_NE(VerifyGraph(graph).message().find("names node 0 as its producer"), std::string::npos);
  graph = good;
  graph.nodes[1].outputs[0] = ValueId(5);
  EXPECT_NE(VerifyGraph(graph).message().find("numbered in order"), std::string::npos);
  graph = good;
  graph.outputs[0].value = ValueId(9);
  EXPECT_NE(VerifyGraph(graph).message().find("is not a value"), std::string::npos);
  graph = good;
  graph.outputs.push_back(graph.outputs[0]);
  EXPECT_NE(VerifyGraph(graph).message().find("a second output named \"y\""), std::string::npos);
  graph = good;
  graph.nodes.push_back(graph.nodes[0]);
  graph.nodes.back().outputs = {ValueId(2)};
  graph.values.push_back({{DType::kF32, {2}}, NodeId(2)});
  EXPECT_NE(VerifyGraph(graph).message().find("a second input named \"x\""), std::string::npos);
  graph = good;
  graph.values.push_back({{DType::kF32, {2}}, NodeId(1)});
  EXPECT_NE(VerifyGraph(graph).message().find("3 values, but the nodes make 2"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::ir
