// Snapshots of a worker: taken from devices, kept behind the mesh, read by others.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/mutex.h"
#include "checkpoint/manifest.h"
#include "collective/door.h"
#include "tests/unit/worker/program_maker.h"
#include "worker/available_memory.h"
#include "worker/snapshot_files.h"
#include "worker/snapshot_store.h"
#include "worker/snapshot_taker.h"
#include "worker/state_saver.h"

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;

constexpr MeshGeneration kSnapshotMesh{4};
constexpr int64_t kSnapshotElements = (3 << 20) / 4 + 10;  // a little more than three pieces

proto::LoadMesh LoadOf(MeshGeneration gen, JobId job) {
  proto::LoadMesh load;
  load.mesh_gen = gen;
  load.job = job;
  load.cluster_id = "c";
  load.secret = "secret";
  load.members = {{"w", "", "host", 77}};
  load.ranks = {{0, 0, {}}};
  return load;
}

// A device with a large tensor "x" and a small one "y", which init fills with 7.
class SnapshotsOfAWorker : public ::testing::Test {
 protected:
  SnapshotsOfAWorker() {
    ProgramMaker maker("init", 0);
    const SlotId x = maker.Persistent("x", F32({kSnapshotElements}));
    const SlotId y = maker.Persistent("y", F32({2}));
    maker.Run(maker.Executable(fmt::format(R"(graph "fill" {{
      %0 = constant {{value=7.0}} : f32[{}]
      %1 = constant {{value=7.0}} : f32[2]
      output "x" %0
      output "y" %1
    }})",
                                           kSnapshotElements)),
              {}, {x, y});
    std::vector<ir::Program> programs = {maker.Finish()};
    for (ir::Slot& slot : programs[0].slots) slot.global_dims = slot.type.dims;
    slots_ = CollectStateSlots(programs);
    RuntimeOptions options;
    options.programs = std::move(programs);
    options.fabric.members = {{"w", "", "host", 1}};
    options.fabric.local_ranks = {0};
    runtime_ = JobRuntime::Load(std::move(options)).value();
    EXPECT_TRUE(runtime_->Connect({}).ok());
    EXPECT_TRUE(runtime_->Launch({"init", 0, 1}).has_value());
  }

  void Fill(float value) {
    std::vector<float> values(kSnapshotElements, value);
    std::vector<std::byte> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    ASSERT_TRUE(runtime_->WritePersistent(0, "x", bytes).ok());
  }
  float FirstOf(const char* slot) {
    const auto tensor = runtime_->ReadPersistent(0, slot).value();
    float first = 0;
    std::memcpy(&first, tensor.data.data(), sizeof first);
    return first;
  }
  SnapshotTaker Taker(UniqueFd memory, std::optional<int64_t> available = std::nullopt) {
    return {"w", std::move(memory), {{0, {"x", "y"}}}, [available] { return available; }};
  }
  // What a controller would make of a slot that is held.
  proto::RestoreState RestoreOf(const proto::HeldSlot& slot, const std::string& address) {
    checkpoint::Manifest manifest;
    manifest.step = slot.step;
    EXPECT_TRUE(checkpoint::AddShards(manifest, checkpoint::ParseShards(slot.shards).value()).ok());
    proto::RestoreState restore;
    restore.manifest = checkpoint::FormatManifest(manifest);
    restore.sources = {{address, 77, slot.mesh_gen, slot.secret, slot.slot}};
    return restore;
  }

  const checkpoint::Roots no_roots_;
  FolderFiles files_{no_roots_};
  StateSlots slots_;
  std::unique_ptr<JobRuntime> runtime_;
  std::shared_ptr<collective::Listener> listener_ =
      collective::MakeListener("127.0.0.1", 0).value();
  SnapshotStore store_{listener_};
  const std::string address_ = fmt::format("127.0.0.1:{}", listener_->port());
};

TEST_F(SnapshotsOfAWorker, AreTakenKeptAndRestoredBehindTheMesh) {
  auto memory = checkpoint::MakeSnapshotMemory().value();
  store_.Keep(LoadOf(kSnapshotMesh, JobId(3)), UniqueFd(::dup(memory.get())));
  EXPECT_TRUE(store_.Held({JobId(3), 1}).slots.empty()) << "none is taken";
  SnapshotTaker taker = Taker(std::move(memory));
  for (int64_t step = 1; step <= 3; ++step) {
    Fill(static_cast<float>(step));
    const proto::SnapshotTaken taken = taker.Take(step, slots_, *runtime_);
    ASSERT_TRUE(taken.error.ok()) << taken.error.message;
    EXPECT_EQ(taken.step, step);
    EXPECT_EQ(taken.bytes, kSnapshotElements * 4 + 8);
  }
  store_.Release(kSnapshotMesh);
  Fill(0);
  EXPECT_TRUE(store_.Held({JobId(9), 1}).slots.empty()) << "of another job";
  const proto::SnapshotsHeld held = store_.Held({JobId(3), 5});
  EXPECT_EQ(held.query, 5u);
  ASSERT_EQ(held.slots.size(), 2u);
  EXPECT_EQ(held.slots[0].step, 3);
  EXPECT_EQ(held.slots[1].step, 2);
  for (const proto::HeldSlot& slot : held.slots) {
    const Status restored = RestoreState(RestoreOf(slot, address_), files_, "c", slots_, *runtime_);
    ASSERT_TRUE(restored.ok()) << restored;
    EXPECT_EQ(FirstOf("x"), static_cast<float>(slot.step));
    EXPECT_EQ(FirstOf("y"), 7);
  }
}

TEST_F(SnapshotsOfAWorker, ASlotThatIsWrittenAnewIsNotTakenForTheOldOne) {
  auto memory = checkpoint::MakeSnapshotMemory().value();
  store_.Keep(LoadOf(kSnapshotMesh, JobId(3)), UniqueFd(::dup(memory.get())));
  SnapshotTaker taker = Taker(std::move(memory));
  Fill(1);
  ASSERT_TRUE(taker.Take(1, slots_, *runtime_).error.ok());
  const proto::HeldSlot slot = store_.Held({JobId(3), 1}).slots.at(0);
  // The same step with other bytes, as a defect would leave it: the digests tell.
  proto::HeldSlot other = slot;
  ASSERT_TRUE(taker.Take(2, slots_, *runtime_).error.ok());
  Fill(5);
  ASSERT_TRUE(taker.Take(3, slots_, *runtime_).error.ok());
  const Status gone = RestoreState(RestoreOf(slot, address_), files_, "c", slots_, *runtime_);
  EXPECT_EQ(gone.code(), StatusCode::kDataLoss);
  EXPECT_EQ(gone.blame(), Blame::kInfra);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("does not hold own/1"));
  other.slot = "own/3";
  const Status changed = RestoreState(RestoreOf(other, address_), files_, "c", slots_, *runtime_);
  EXPECT_EQ(changed.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(changed.message()), HasSubstr("are not those that were written"));
}

// Another worker's memory: a store and a port of its own.
TEST_F(SnapshotsOfAWorker, OthersCopyOfThemWhatIsHeldOnce) {
  auto memory = checkpoint::MakeSnapshotMemory().value();
  store_.Keep(LoadOf(kSnapshotMesh, JobId(3)), UniqueFd(::dup(memory.get())));
  SnapshotTaker taker = Taker(std::move(memory));
  auto listener = collective::MakeListener("127.0.0.1", 0).value();
  SnapshotStore other(listener);
  auto others = checkpoint::MakeSnapshotMemory().value();
  other.Keep(LoadOf(kSnapshotMesh, JobId(3)), UniqueFd(::dup(others.get())));
  SnapshotTaker nothing("v", std::move(others), {}, [] { return std::nullopt; });
  const std::string key = fmt::format("x[0:{}]", kSnapshotElements);
  const auto copy = [&](int64_t step, const std::string& box) {
    std::promise<proto::SnapshotCopied> told;
    EXPECT_TRUE(other.Handle(
        proto::CopySnapshot{kSnapshotMesh, step, {{"w", address_, 77, {box}}}},
        [&](proto::UpBody body) { told.set_value(std::get<proto::SnapshotCopied>(body)); }));
    return told.get_future().get().error;
  };
  EXPECT_EQ(copy(1, key).code, StatusCode::kDataLoss) << "there is none";
  for (int64_t step = 1; step <= 3; ++step) {
    Fill(static_cast<float>(step));
    ASSERT_TRUE(taker.Take(step, slots_, *runtime_).error.ok());
    ASSERT_TRUE(nothing.Take(step, slots_, *runtime_).error.ok());
    const proto::RuntimeError error = copy(step, key);
    ASSERT_TRUE(error.ok()) << error.message;
  }
  EXPECT_EQ(copy(1, key).code, StatusCode::kDataLoss) << "it is written over";
  store_.Drop({JobId(3), MeshGeneration(100)});
  const proto::SnapshotsHeld held = other.Held({JobId(3), 1});
  std::vector<std::string> slots;
  for (const proto::HeldSlot& slot : held.slots) slots.push_back(slot.slot);
  EXPECT_THAT(slots, ::testing::ElementsAre("own/3", "own/2", "of/w/3", "of/w/2"));
  Fill(0);
  proto::RestoreState restore =
      RestoreOf(held.slots.at(2), fmt::format("127.0.0.1:{}", listener->port()));
  restore.exclude = {"y"};
  const Status restored = RestoreState(restore, files_, "c", slots_, *runtime_);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(FirstOf("x"), 3);
}

TEST_F(SnapshotsOfAWorker, AWorkerWithoutAPartInTheMeshKeepsCopies) {
  auto memory = checkpoint::MakeSnapshotMemory().value();
  store_.Keep(LoadOf(kSnapshotMesh, JobId(3)), UniqueFd(::dup(memory.get())));
  SnapshotTaker taker = Taker(std::move(memory));
  Fill(7);
  ASSERT_TRUE(taker.Take(1, slots_, *runtime_).error.ok());
  auto listener = collective::MakeListener("127.0.0.1", 0).value();
  SnapshotStore other(listener);
  const auto copy = [&](const std::string& secret) {
    proto::CopySnapshot order{kSnapshotMesh, 1, {}, JobId(3), "c", 77, secret};
    order.parts = {{"w", address_, 77, {fmt::format("x[0:{}]", kSnapshotElements)}}};
    std::promise<proto::SnapshotCopied> told;
    EXPECT_TRUE(other.Handle(
        order, [&](proto::UpBody body) { told.set_value(std::get<proto::SnapshotCopied>(body)); }));
    return told.get_future().get().error;
  };
  EXPECT_EQ(copy("").code, StatusCode::kNotFound) << "a member's mesh that is gone";
  const proto::RuntimeError error = copy("secret");
  ASSERT_TRUE(error.ok()) << error.message;
  EXPECT_EQ(other.size(), 1u);
  const proto::SnapshotsHeld held = other.Held({JobId(3), 1});
  ASSERT_EQ(held.slots.size(), 1u);
  EXPECT_EQ(held.slots[0].slot, "of/w/1");
  store_.Drop({JobId(3), MeshGeneration(100)});
  Fill(0);
  proto::RestoreState restore =
      RestoreOf(held.slots[0], fmt::format("127.0.0.1:{}", listener->port()));
  restore.exclude = {"y"};
  const Status restored = RestoreState(restore, files_, "c", slots_, *runtime_);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(FirstOf("x"), 7);
  other.Drop({JobId(3), MeshGeneration(100)});
  EXPECT_EQ(other.size(), 0u);
}

TEST_F(SnapshotsOfAWorker, ACopyOfBoxesThatTheOtherOneHasNotIsRefused) {
  auto memory = checkpoint::MakeSnapshotMemory().value();
  store_.Keep(LoadOf(kSnapshotMesh, JobId(3)), UniqueFd(::dup(memory.get())));
  SnapshotTaker taker = Taker(std::move(memory));
  ASSERT_TRUE(taker.Take(1, slots_, *runtime_).error.ok());
  const collective::DoorName door{"c", kSnapshotMesh.value(), 77, "secret"};
  const auto none = [] { return std::optional<int64_t>(); };
  SnapshotCopier unknown({address_, door, nullptr}, {"z[0:2]"}, none);
  EXPECT_EQ(unknown.Copy(1).code(), StatusCode::kDataLoss);
  SnapshotCopier large({address_, door, nullptr}, {"y[0:2]"},
                       [] { return std::optional<int64_t>(1); });
  EXPECT_EQ(large.Copy(1).code(), StatusCode::kResourceExhausted);
  SnapshotCopier small({address_, door, nullptr}, {"y[0:2]"}, none);
  EXPECT_TRUE(small.Copy(1).ok());
  EXPECT_EQ(small.area()->Whole().at(0).step, 1);
}

TEST_F(SnapshotsOfAWorker, WithoutTheMemoryForTwoThereIsNone) {
  const int64_t wanted = 2 * (kSnapshotElements * 4 + 8);
  const auto take = [&](int64_t available) {
    SnapshotTaker taker = Taker(checkpoint::MakeSnapshotMemory().value(), available);
    EXPECT_EQ(taker.Take(1, slots_, *runtime_).error.ok(),
              taker.Take(2, slots_, *runtime_).error.ok());
    return taker.Take(3, slots_, *runtime_).error;
  };
  EXPECT_TRUE(take(wanted * 2).ok());
  const proto::RuntimeError refused = take(wanted);
  EXPECT_EQ(refused.code, StatusCode::kResourceExhausted) << "a part is left for others";
  EXPECT_THAT(refused.message, HasSubstr("two snapshots take"));
  SnapshotTaker none = Taker(UniqueFd());
  EXPECT_FALSE(none.Take(1, slots_, *runtime_).error.ok());
  EXPECT_TRUE(runtime_->Launch({"init", 0, 1}).has_value()) << "the mesh goes on";
}

TEST_F(SnapshotsOfAWorker, AreDroppedWhenTheyAreNotNeeded) {
  const auto keep = [&](uint64_t gen, int64_t job, bool taken) {
    auto memory = checkpoint::MakeSnapshotMemory().value();
    store_.Keep(LoadOf(MeshGeneration(gen), JobId(job)), UniqueFd(::dup(memory.get())));
    SnapshotTaker taker = Taker(std::move(memory));
    if (taken) {
      EXPECT_TRUE(taker.Take(1, slots_, *runtime_).error.ok());
    }
  };
  keep(1, 3, true);
  keep(2, 3, true);
  keep(3, 9, true);
  keep(5, 3, false);
  store_.Drop({JobId(3), MeshGeneration(2)});
  EXPECT_EQ(store_.size(), 3u);
  EXPECT_EQ(store_.Held({JobId(3), 1}).slots.at(0).mesh_gen, MeshGeneration(2));
  store_.Release(MeshGeneration(5));
  EXPECT_EQ(store_.size(), 2u) << "it never took one";
  store_.Drop({JobId(3), MeshGeneration(100)});
  store_.Drop({JobId(9), MeshGeneration(100)});
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(SnapshotsOfAWorker, NobodyAsksForEver) {
  SnapshotStore store(listener_, /*grace_ms=*/0);
  auto memory = checkpoint::MakeSnapshotMemory().value();
  store.Keep(LoadOf(kSnapshotMesh, JobId(3)), UniqueFd(::dup(memory.get())));
  SnapshotTaker taker = Taker(std::move(memory));
  ASSERT_TRUE(taker.Take(1, slots_, *runtime_).error.ok());
  EXPECT_EQ(store.size(), 1u);
  store.Release(kSnapshotMesh);
  while (store.size() != 0) std::this_thread::yield();
}

// What is left of it on the way would be read as the answer to the next question.
TEST(SlotReader, AnAnswerThatBreaksOffIsAnError) {
  const std::shared_ptr<collective::Listener> listener =
      collective::MakeListener("127.0.0.1", 0).value();
  const collective::DoorName name{"c", 5, 77, "secret"};
  const std::string bytes = "12345678";
  int connections = 0;
  // The thread may have answered before the door's own has its handle.
  Mutex mutex;
  std::thread server;
  const auto door = collective::OpenDoor(listener, name, [&](collective::Connection connection) {
    const MutexLock lock(mutex);
    if (server.joinable()) server.join();
    server = std::thread(
        [&bytes, first = connections++ == 0, connection = std::move(connection)]() mutable {
          char request[64];
          // Four bytes of head that say "here it is", and not all of what was asked for.
          if (first && connection.Read(request, 16).ok()) {
            (void)connection.Write("\0\0\0\0xyz", 7);
          } else {
            ServeSlots(connection, [&](const std::string&) {
              return std::as_bytes(std::span(bytes.data(), bytes.size()));
            });
          }
        });
  });
  ASSERT_TRUE(door.has_value()) << door.error();
  {
    SlotReader reader(fmt::format("127.0.0.1:{}", listener->port()), name, nullptr);
    std::string got(8, ' ');
    EXPECT_FALSE(reader.Read("own/1", 0, std::as_writable_bytes(std::span(got))).ok());
    const Status again = reader.Read("own/1", 0, std::as_writable_bytes(std::span(got)));
    EXPECT_TRUE(again.ok()) << again;
    EXPECT_EQ(got, bytes);
  }
  const MutexLock lock(mutex);
  server.join();
}

TEST(AvailableMemory, IsTheLesserOfMachineAndGroup) {
  const TempDir dir = TempDir::Make("mw-memory").value();
  const std::string proc = dir.File("proc");
  const std::string groups = dir.File("groups");
  ASSERT_TRUE(MakeDirs(proc + "/self").ok());
  ASSERT_TRUE(MakeDirs(groups + "/a").ok());
  EXPECT_EQ(AvailableMemoryBytes(proc, groups), std::nullopt);
  ASSERT_TRUE(WriteFileAtomic(proc + "/meminfo", "MemTotal: 9 kB\nMemAvailable:    8 kB\n").ok());
  EXPECT_EQ(AvailableMemoryBytes(proc, groups), 8192);
  EXPECT_EQ(WholeMemoryBytes(proc, groups), 9216);
  ASSERT_TRUE(WriteFileAtomic(proc + "/self/cgroup", "0::/a\n").ok());
  ASSERT_TRUE(WriteFileAtomic(groups + "/a/memory.max", "max\n").ok());
  ASSERT_TRUE(WriteFileAtomic(groups + "/a/memory.current", "1000\n").ok());
  EXPECT_EQ(AvailableMemoryBytes(proc, groups), 8192) << "the group has no limit";
  ASSERT_TRUE(WriteFileAtomic(groups + "/a/memory.max", "5000\n").ok());
  EXPECT_EQ(AvailableMemoryBytes(proc, groups), 4000);
  EXPECT_EQ(WholeMemoryBytes(proc, groups), 5000);
}

}  // namespace
}  // namespace meshwright::worker
