// The wire: what goes in comes out, and nothing that comes in from outside can do harm.
#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "ir/builder.h"
#include "proto/grpc_status.h"
#include "proto/job_codec.h"

namespace meshwright::proto {
namespace {

using ::testing::HasSubstr;

const std::string kHash(64, 'a');

RuntimeError SomeError() {
  RuntimeError error = MakeError(ErrorKind::kStepFailed,
                                 Unavailable("peer gone").WithBlame(Blame::kPeerVictim), "w1");
  error.device = 2;
  error.step = 77;
  error.instruction = 5;
  return error;
}

template <typename Message>
void ExpectRoundTrip(const Message& message) {
  const std::string bytes = Encode(message).SerializeAsString();
  auto wire = Encode(message);
  wire.Clear();
  ASSERT_TRUE(wire.ParseFromString(bytes));
  const auto back = Decode(wire);
  ASSERT_TRUE(back.has_value()) << back.error();
  EXPECT_EQ(*back, message);
}

TEST(Convert, EveryMessageOfAWorkerSurvivesTheWire) {
  const MeshGeneration gen(7);
  Register info;
  info.name = "w1";
  info.incarnation = Incarnation(0xfedcba9876543210u);
  info.devices = 2;
  info.memory_bytes = 1 << 30;
  info.address = "10.0.0.1:99";
  info.host_id = "host";
  info.version = "0.1";
  info.metrics_address = "10.0.0.1:98";
  info.cluster_id = "c";
  info.max_term = Term(4);
  info.device_profile = "profile \"x\"\n";
  info.threads_per_device = 3;
  info.host_cores = 16;
  info.host_memory_bytes = int64_t{1} << 41;
  info.disk_bytes = int64_t{1} << 42;
  info.cpus = {0, 3, 255};
  info.data_roots = {{"corpora", "/mnt/c"}, {"/data", "/data"}};
  info.actor_types = {"env", "reward"};
  info.checkpoint_roots = {{"shared", "/mnt/s"}};
  info.meshes = {{gen, JobId(3)}, {MeshGeneration(9), JobId(4)}};
  const std::vector<UpBody> bodies = {
      info,
      Heartbeat{},
      Heartbeat{{{MeshGeneration(4),
                  "in a launch, between two steps",
                  1234,
                  {{3, true, "step", 17, 19, 412, 41'000, true, "S", {{"tensor/0-1", 9, 8}}},
                   {5, false, "step", 16, 18, 7, 0, false, "", {}}}},
                 {MeshGeneration(5), "while it sent the weights", 0, {}}}},
      Loaded{gen, {}},
      Loaded{gen, SomeError()},
      CommUp{gen, SomeError()},
      LaunchDone{gen,
                 LaunchSeq(3),
                 {},
                 {{5, 0.25, {{"loss", 1.5}, {"lr", 0.1}}}, {6, 0.5, {}}},
                 {{"y", {ir::DType::kI32, {4, 2}}, {{2, 0}, {2, 1}}, std::string("\0\1", 2)}}},
      LaunchDone{gen, LaunchSeq(3), SomeError(), {}, {}},
      WeightsSaved{gen, {}},
      StateSaved{gen, LaunchSeq(4), {}, "{\"files\":[]}", 0.25, 2.5},
      StateSaved{gen, LaunchSeq(4), SomeError(), ""},
      CheckpointCommitted{gen, LaunchSeq(4), {}},
      CheckpointCommitted{gen, LaunchSeq(4), SomeError()},
      LaunchDone{gen, LaunchSeq(3), {}, {}, {}, {34, 0.5, 1 << 20, {}}},
      LaunchDone{gen, LaunchSeq(3), {}, {}, {}, {34, 0.5, 0, SomeError()}},
      SnapshotsHeld{JobId(3), 9, {}},
      SnapshotCopied{gen, 34, {}},
      SnapshotCopied{gen, 34, SomeError()},
      SnapshotsHeld{JobId(3), 9, {{gen, 34, "own/34", std::string("\0\xff", 2), "{}"}}},
      ResumeMesh{gen, LaunchSeq(1), {}, {}, {}, {}},
      ResumeMesh{gen,
                 LaunchSeq(4),
                 {{LaunchSeq(4), ToldKind::kProgram, 1, 40, 8, true},
                  {LaunchSeq(5), ToldKind::kSave, 0, 48, 0, false}},
                 {{gen, LaunchSeq(4), {}, {{40, 0.5, {{"loss", 2}}}}, {}}},
                 StateSaved{gen, LaunchSeq(5), {}, "{}"},
                 CheckpointCommitted{gen, LaunchSeq(5), SomeError()}},
      LogLines{{"one", "two \xc3\xa4"}, 3},
      LogPiece{~uint64_t{0}, "one\ntwo\n", 77, true},
      LogPiece{4, "", 0, true, StatusCode::kDataLoss, "a disk"},
      MeshReleased{gen},
      MeshError{gen, SomeError()},
      Leave{"bye", 90'000, {}},
      Leave{"no disk", 0, SomeError()},
      ActorReply{~uint64_t{0}, StatusCode::kAborted, "dead", std::string("\0\xff", 2)},
      ActorEvent{JobId(3), 4, 5, ActorEventKind::kFailed, StatusCode::kInternal, "why"}};
  for (const UpBody& body : bodies) ExpectRoundTrip(UpMessage{Term(9), body});
}

TEST(Convert, RecordsOfStepsSurviveTheWire) {
  const LaunchDone done{MeshGeneration(7),
                        LaunchSeq(3),
                        {},
                        {},
                        {},
                        {},
                        {{2, 1, "step", 9, 100, 160, 3, {{0, 5, 120}, {4, -1, 150}, {1, -2, 155}}},
                         {3, 0, "step", 9, -100, 160, 0, {}}},
                        {7, 8, 9, 0},
                        6};
  const v1::LaunchDone wire = Encode(done);
  EXPECT_EQ(Decode(wire).value(), done);
  const auto fails = [&](auto spoil) {
    v1::LaunchDone other = wire;
    spoil(*other.mutable_recorded(0));
    return !Decode(other).has_value();
  };
  EXPECT_TRUE(fails([](v1::StepRecord& record) { record.add_node(1); }));
  EXPECT_TRUE(fails([](v1::StepRecord& record) { record.clear_ns(); }));
  EXPECT_TRUE(fails([](v1::StepRecord& record) { record.set_instruction(0, -5); }));
  Launch launch;
  launch.record = {3, 2};
  launch.round.sent_ns = 17;
  const auto down = Decode(Encode(DownMessage{Term(1), launch}));
  ASSERT_TRUE(down.has_value()) << down.error();
  EXPECT_EQ(std::get<Launch>(down->body), launch);
}

TEST(Convert, EveryMessageOfTheControllerSurvivesTheWire) {
  const MeshGeneration gen(7);
  LoadMesh load;
  load.mesh_gen = gen;
  load.job = JobId(3);
  load.cluster_id = "c";
  load.secret = std::string("\0\1\2\xff", 4);
  load.seed = ~uint64_t{0};
  load.members = {{"w0", "h:1", "host", 12}, {"w1", "h:2", "host", ~uint64_t{0}}};
  load.programs = {"init", "step"};
  load.inputs = {"x"};
  load.ranks = {{1, 0, {{kHash, 10, "init"}, {kHash, 11, "step"}}, {"w", "m"}}};
  load.data = {{kHash, 1000, "text"}, "uint16", 0.25};
  load.sequence = 128;
  load.vocabulary = 256;
  load.init_weights = {{kHash, 99, "w"}};
  load.graph = {kHash, 98, "g"};
  load.tf32 = true;
  load.orphan_grace_ms = 5000;
  load.files_key = "key of files";
  const ir::FolderRef folder{"shared", "gpt/7"};
  const std::vector<DownBody> bodies = {
      Welcome{"c", 500, 3000, {}},
      Welcome{"c", 500, 3000, {gen, MeshGeneration(9)}},
      load,
      Connect{gen},
      Launch{gen, LaunchSeq(2), 3, 40, 8, {{1, "ab"}}, Fetch::kLargest},
      SaveWeights{gen, {{0, {"a", "b"}}, {3, {}}}},
      SaveState{gen, LaunchSeq(2), folder, "s.tmp-7-2", {{0, {"a", "b"}}, {3, {}}}},
      RestoreState{gen, LaunchSeq(1), folder, {"head.*"}},
      RestoreState{gen,
                   LaunchSeq(1),
                   {},
                   {},
                   "manifest",
                   {{"h:1", ~uint64_t{0}, MeshGeneration(6), std::string("\0\xff", 2), "own/34"}}},
      Launch{gen, LaunchSeq(2), 3, 40, 8, {}, Fetch::kNothing, true},
      QuerySnapshots{JobId(3), 9},
      CopySnapshot{
          gen, 34, {{"w1", "h:2", ~uint64_t{0}, {"a[0:4]", "b[4:4]"}}, {"w2", "h:3", 4, {}}}},
      CopySnapshot{gen, 34, {}, JobId(3), "c", ~uint64_t{0}, std::string("\0\xff", 2)},
      DropSnapshots{JobId(3), gen},
      Drained{},
      FetchLog{~uint64_t{0}, -1, 200, 1'700'000'000'000, 7, 4096},
      CommitCheckpoint{gen, LaunchSeq(2), folder, "s.tmp-7-2", "manifest", std::string("\0\xff", 2),
                       3, "bf16"},
      AbortMesh{gen, SomeError()},
      ReleaseMesh{gen},
      SpawnActor{JobId(3), 4, 5, "env", std::string("\0", 1)},
      ActorMessage{JobId(3), 4, 5, 6, true, 7, "x"},
      StopActor{JobId(3), 4, 5}};
  for (const DownBody& body : bodies) ExpectRoundTrip(DownMessage{Term(9), body});
}

// A stream of each kind, with a file of each kind.
std::vector<ir::DataStream> SomeStreams() {
  ir::DataStream tokens;
  tokens.files = {{{kHash, 100, "a.bin"}}, {{"", 200, "b.bin"}, "corpora", "b.bin", kHash}};
  tokens.fields = {{"window", ir::Element::kU16, {}, {{0, 1024, 3}, {1, 0, 100}}, {{1, 2, 5}}}};
  tokens.validation_fraction = 0;
  ir::DataStream records;
  records.name = "digits";
  records.kind = ir::DataKind::kRecords;
  records.files = {{{kHash, 100, "x.npy"}}};
  records.fields = {{"image", ir::Element::kU8, {2, 3}, {{0, 80, 3}}, {}},
                    {"label", ir::Element::kI64, {}, {{0, 0, 3}}, {}}};
  records.validation_fraction = 0.25;
  ir::DataStream made;
  made.name = "made";
  made.kind = ir::DataKind::kRecords;
  made.fields = {{"x", ir::Element::kF32, {4}, {}, {}}};
  made.actor = {"maker", std::string("a\0b", 3), 7, 1'234};
  return {tokens, records, made};
}

ir::JobRequest SomeJob() {
  ir::Builder builder("loss");
  const ValueId a =
      builder.AddOne(ir::Op::kConstant, {}, ir::Attrs{{"value", 0.1}}, {{ir::DType::kF64, {}}});
  builder.SetOutput("loss_sum", a);
  builder.SetOutput("count", a);
  builder.SetOutput("accuracy", a, ir::Reduction::kMean);
  ir::JobRequest job;
  job.name = "job";
  job.SetLoss(builder.Finish().value());
  job.programs.push_back({"predict", job.main().graph, {{"x", ir::InputFrom::kClient}}, false});
  job.driver = {ir::DriverKind::kClient, "predict", 3, 5};
  job.optimizer.lr = 0.1;
  job.optimizer.schedule = "cosine";
  job.optimizer.warmup_steps = 3;
  job.optimizer.total_steps = 4;
  job.optimizer.momentum = 0.5;
  job.optimizer.min_lr = 1e-300;
  job.data = {{kHash, 1, "data"}, "uint32", 0.125};
  job.data.streams = SomeStreams();
  job.init_weights = {{"", 2, "weights"}, "/models", "w.safetensors", kHash};
  job.parallel = {2, 2,       "two-level", 4,     5,         2,     "ring",   3,       4,
                  5, "gpipe", 2,           "7,5", "2x1,1x1", "2x2", true,     true,    3,
                  8, 4,       2,           99,    "full",    "0-5", "search", "w=[_]", 6};
  job.parallel.host_update = 40;
  job.parallel.head_block_tokens = 7;
  job.parallel.device = "cpu";
  job.train = {1, 2, 3, 4, 5, 6, 7, 8};
  job.train.tf32 = true;
  job.save_weights = false;
  job.checkpoint = {true, {"shared", "gpt/7"}, 20, 30, 3, true, true, ir::DType::kBF16};
  job.start = {{"shared", "gpt/6/step-00000040"}, 40, {"head.*", "opt.*"}};
  job.fault_tolerance = {false, 3, ir::Elastic::kShrink, 2, -1, 9, 5, 3};
  job.queue = {-7, true, 3600};
  job.config_text = "text";
  return job;
}

TEST(Convert, WhatIsAskedOfActorsSurvivesTheWire) {
  const ActorRef ref{"w", 7, 2};
  const std::vector<ActorAsk> asks = {
      SpawnHostActor{"env", std::string("a\0b", 3), "w"}, AskHostActor{ref, "x", 5, false},
      AskHostActor{ref, "", 5, true}, StopHostActor{ref}, WatchHostActor{ref}};
  for (const ActorAsk& ask : asks) {
    const Result<ClientUp> back = Decode(Encode(ClientUp(SessionActorAsk{9, ask})));
    ASSERT_TRUE(back.has_value()) << back.error();
    EXPECT_EQ(std::get<SessionActorAsk>(*back).id, 9u);
    EXPECT_EQ(std::get<SessionActorAsk>(*back).ask, ask);
  }
  ActorDone done{9, ref, "payload"};
  EXPECT_EQ(std::get<ActorDone>(Decode(Encode(ClientDown(done))).value()), done);
  done.fate = ActorFate::kGaveUp;
  done.why = MakeError(ErrorKind::kRefused, Aborted("it fell"));
  EXPECT_EQ(std::get<ActorDone>(Decode(Encode(ClientDown(done))).value()), done);
  v1::ClientDown wire = Encode(ClientDown(done));
  wire.mutable_actor_done()->set_fate(static_cast<v1::ActorFate>(77));
  EXPECT_THAT(Decode(wire).error().message(), HasSubstr("the unknown fate 77"));
}

TEST(Convert, AJobSurvivesTheWireAndTheStore) {
  ExpectRoundTrip(SomeJob());
  const auto back = DecodeJob(EncodeJob(SomeJob()));
  ASSERT_TRUE(back.has_value()) << back.error();
  EXPECT_EQ(*back, SomeJob());
  for (const std::optional<bool> sequence : {std::optional<bool>(), std::optional(false)}) {
    ir::JobRequest job = SomeJob();
    job.parallel.sequence_parallel = sequence;
    ExpectRoundTrip(job);
  }
}

TEST(Convert, NamesWhatIsWrongWithAJob) {
  v1::JobRequest wire = Encode(SomeJob());
  wire.mutable_programs(0)->set_graph("graph \"x\" {\n  nonsense\n}");
  EXPECT_THAT(Decode(wire).error().message(), HasSubstr("program 'loss': line 2"));
  wire = Encode(SomeJob());
  wire.mutable_data()->mutable_blob()->set_sha256("../../etc/passwd");
  EXPECT_THAT(Decode(wire).error().message(), HasSubstr("64 lower-case hex digits"));
  EXPECT_EQ(DecodeJob("\xff\xff\xff").error().code(), StatusCode::kDataLoss);
}

TEST(Convert, ComputeTypeSurvivesTheWireAndUnknownNamesAreRefused) {
  ir::JobRequest job = SomeJob();
  for (const ir::DType dtype : {ir::DType::kBF16, ir::DType::kF32}) {
    job.train.compute_dtype = dtype;
    ExpectRoundTrip(job);
  }
  // From a client that does not know the field.
  v1::JobRequest wire = Encode(job);
  wire.mutable_train()->clear_compute_dtype();
  EXPECT_EQ(Decode(wire)->train.compute_dtype, ir::DType::kF32);
  wire.mutable_train()->set_compute_dtype("bf17");
  EXPECT_EQ(Decode(wire).error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Decode(wire).error().message(), HasSubstr("train.compute_dtype"));
  EXPECT_THAT(Decode(wire).error().message(), HasSubstr("bf17"));
}

TEST(Convert, RefusesAMessageWithoutABodyItKnows) {
  EXPECT_EQ(Decode(v1::Up()).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Decode(v1::Down()).error().code(), StatusCode::kInvalidArgument);
}

// It ended the worker, in a check of what it leaves behind.
TEST(Convert, RefusesAMeshWithoutAGeneration) {
  v1::Down down;
  down.set_term(1);
  down.mutable_load_mesh()->set_job_id(3);
  EXPECT_THAT(Decode(down).error().message(), HasSubstr("no generation"));
}

TEST(Convert, UnknownNumbersBecomeTheSafeMeaning) {
  v1::RuntimeError error;
  error.set_kind(static_cast<v1::ErrorKind>(99));
  error.set_code(99);
  error.set_blame(-4);
  const RuntimeError back = Decode(error);
  EXPECT_EQ(back.kind, ErrorKind::kInternal);
  EXPECT_EQ(back.code, StatusCode::kUnknown);
  EXPECT_EQ(back.blame, Blame::kUnspecified);
  v1::JobInfo info;
  info.set_peak_flops_per_s(2e12);
  info.set_state(static_cast<v1::JobState>(42));
  EXPECT_EQ(Decode(info).state, JobState::kUnspecified);
  EXPECT_EQ(Encode(Decode(info)).peak_flops_per_s(), 2e12);
}

TEST(Convert, JobsOfClientsThatKnowOfNoRecoveryRecoverAsByDefault) {
  v1::JobRequest wire = Encode(SomeJob());
  wire.clear_fault_tolerance();
  wire.clear_checkpoint();
  wire.clear_start();
  wire.clear_queue();
  const auto job = Decode(wire);
  ASSERT_TRUE(job.has_value()) << job.error();
  EXPECT_EQ(job->fault_tolerance, ir::FaultToleranceSpec());
  EXPECT_EQ(job->checkpoint, ir::CheckpointSpec());
  EXPECT_TRUE(job->start.empty());
  EXPECT_EQ(job->queue, ir::QueueSpec());
  wire = Encode(SomeJob());
  wire.mutable_fault_tolerance()->set_elastic("grow");
  EXPECT_THAT(Decode(wire).error().message(), HasSubstr("'grow' is none of off, shrink, replan"));
}

TEST(Convert, AWorkerThatSaysNothingOfItsDiskMayHaveOne) {
  EXPECT_FALSE(Decode(v1::Register()).no_scratch_dir);
  Register info;
  for (const bool none : {false, true}) {
    info.no_scratch_dir = none;
    EXPECT_EQ(Decode(Encode(info)).no_scratch_dir, none);
  }
}

TEST(Convert, WhatPeopleSeeOfCheckpointsAndRecoverySurvivesTheWire) {
  JobInfo info;
  info.state = JobState::kRecovering;
  EXPECT_EQ(Decode(Encode(info)), info) << "no checkpoint";
  info.checkpoint_step = 0;
  info.checkpoint_folder = {"shared", "gpt/7"};
  info.tool = "generate";
  EXPECT_EQ(Decode(Encode(info)), info);
  WorkerInfo worker;
  worker.checkpoint_roots = {{"shared", "/mnt/s"}};
  EXPECT_EQ(Decode(Encode(worker)).checkpoint_roots, worker.checkpoint_roots);
  worker.host_memory_bytes = 5;
  worker.disk_bytes = 6;
  worker.no_scratch_dir = true;
  EXPECT_EQ(Decode(Encode(worker)).host_memory_bytes, 5);
  EXPECT_EQ(Decode(Encode(worker)).disk_bytes, 6);
  EXPECT_TRUE(Decode(Encode(worker)).no_scratch_dir);
}

TEST(Convert, LongErrorsAreCut) {
  const RuntimeError error =
      MakeError(ErrorKind::kStepFailed, Internal(std::string(100'000, 'x')), "w");
  EXPECT_EQ(error.message.size(), kMaxErrorText);
}

TEST(Convert, ErrorsAreNotCutInsideACharacter) {
  // The wire carries UTF-8 only: half a character would lose the whole message.
  const std::string text = std::string(kMaxErrorText - 1, 'x') + "é";
  const RuntimeError error = MakeError(ErrorKind::kStepFailed, Internal(text), "w");
  EXPECT_EQ(error.message.size(), kMaxErrorText - 1);
  v1::RuntimeError wire = Encode(error);
  wire.set_message(text);
  EXPECT_EQ(Decode(wire).message.size(), kMaxErrorText - 1);
}

TEST(Convert, StepsWithoutValidationStayWithout) {
  StepMetrics step;
  step.validation_loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Decode(Encode(step)).validation_loss));
  step.validation_loss = 0;
  EXPECT_EQ(Decode(Encode(step)).validation_loss, 0);
}

TEST(Convert, DamagedBytesNeverDoMoreThanFail) {
  const std::string job = EncodeJob(SomeJob());
  const std::string up =
      Encode(UpMessage{Term(1), LaunchDone{MeshGeneration(1), LaunchSeq(1), {}, {{1, 2, {}}}}})
          .SerializeAsString();
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string bytes = i % 2 == 0 ? job : up;
    for (uint64_t k = 0; k < 3; ++k) {
      bytes[PhiloxBits(1, i, k, 0) % bytes.size()] = static_cast<char>(PhiloxBits(1, i, k, 1));
    }
    bytes.resize(PhiloxBits(1, i, 9, 2) % (bytes.size() + 1));
    (void)DecodeJob(bytes);
    v1::Up wire;
    if (wire.ParseFromString(bytes)) (void)Decode(wire);
  }
}

TEST(GrpcStatus, CodesAreTheSameNumbers) {
  for (int code = 1; code <= 16; ++code) {
    const Status status(static_cast<StatusCode>(code), "text");
    EXPECT_EQ(static_cast<int>(ToGrpc(status).error_code()), code);
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
  EXPECT_TRUE(ToGrpc(OkStatus()).ok());
}

TEST(RuntimeErrors, KnowWhoMayBeAVictim) {
  EXPECT_TRUE(SomeError().MayBeVictim());
  EXPECT_FALSE(MakeError(ErrorKind::kStepFailed, Internal("kernel")).MayBeVictim());
  EXPECT_FALSE(MakeError(ErrorKind::kWorkerLost, Unavailable("gone")).MayBeVictim());
  const Status broken = Unavailable("cuda:0: cudaErrorIllegalAddress").WithBlame(Blame::kHardware);
  EXPECT_FALSE(MakeError(ErrorKind::kStepFailed, broken).MayBeVictim());
  EXPECT_FALSE(MakeError(ErrorKind::kCancelled, Cancelled("user")).MayBeVictim());
  EXPECT_TRUE(MakeError(ErrorKind::kNone, OkStatus()).ok());
}

}  // namespace
}  // namespace meshwright::proto
