// Which memories an open choice tries, from near to far, and which it takes.
#include "search/choose_memory.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ir/builder.h"
#include "planner/plan.h"
#include "search/find_layout.h"
#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

using ir::Builder;
using ir::DType;
using ir::Op;

ir::ParallelSpec AllOpen() {
  ir::ParallelSpec spec;
  spec.optimizer_memory = spec.weights_memory = "auto";
  spec.gradients_memory = spec.activations_memory = "auto";
  return spec;
}

TEST(MemoryChoices, AreNearFirst) {
  const auto choices = MemoryChoices(AllOpen());
  ASSERT_EQ(choices.size(), 7u);
  std::vector<size_t> counts;
  for (const auto& as_near : choices) counts.push_back(as_near.size());
  // Of 3 x 3 x 2 x 2.
  EXPECT_EQ(counts, (std::vector<size_t>{1, 4, 8, 10, 8, 4, 1}));
  for (const auto& as_near : choices) {
    for (const ir::ParallelSpec& spec : as_near) EXPECT_FALSE(LeavesMemoryOpen(spec));
  }
  EXPECT_EQ(MemoryText(AllOpen(), choices.front().front()), "all on the device");
  EXPECT_EQ(MemoryText(AllOpen(), choices.back().front()),
            "optimizer on the disk, weights on the disk, gradients in the memory of the host, "
            "activations in the memory of the host");
}

TEST(MemoryChoices, KeepWhatIsDecided) {
  ir::ParallelSpec spec;
  spec.optimizer_memory = "auto";
  spec.weights_memory = "host";
  const auto choices = MemoryChoices(spec);
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_EQ(choices[2].front().optimizer_memory, "disk");
  EXPECT_EQ(choices[2].front().weights_memory, "host");
  EXPECT_EQ(MemoryChoices(ir::ParallelSpec()).size(), 1u);
}

// Products of 64 x 64 weights: 16 KiB each, as much gradient and twice that of optimizer state.
ir::JobRequest Products(int layers, bool says_layers = false) {
  Builder b("loss");
  const auto param = [&](const std::string& name) {
    return b.AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, {64, 64}}});
  };
  const ValueId tokens = b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {2, 3}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", 2}});
  };
  ValueId x = b.AddOne(Op::kEmbedding, {param("wte"), cut(0)});
  for (int i = 0; i < layers; ++i) {
    if (says_layers) b.SetLayer(i);
    x = b.AddOne(Op::kEinsum, {x, param("w" + std::to_string(i))}, {{"equation", "bsk,kn->bsn"}});
  }
  const auto loss = b.Add(Op::kCrossEntropy, {x, cut(1)});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  ir::JobRequest job;
  job.name = "job";
  job.SetLoss(*b.Finish());
  job.train.global_batch = 2;
  job.train.sequence = 2;
  job.optimizer.max_norm = 1;
  job.parallel.offload_chunk_bytes = 16 << 10;
  return job;
}

TEST(ChooseMemory, TakesTheNearestThatFits) {
  constexpr int kLayers = 15;
  constexpr int64_t kWeightBytes = (kLayers + 1) * 64 * 64 * 4;
  const FindOptions options;
  const auto found = [&](ir::JobRequest job, int64_t bytes) {
    mesh::Topology topology = mesh::Topology::Local(1);
    topology.devices[0].memory_bytes = bytes;
    return FindPlan(job, topology, options, SystemClock());
  };
  ir::JobRequest job = Products(kLayers);
  job.parallel.optimizer_memory = job.parallel.weights_memory = "auto";
  job.parallel.gradients_memory = job.parallel.activations_memory = "auto";
  struct Case {
    int64_t bytes;
    const char* text;
  };
  for (const Case& c : {Case{5 * kWeightBytes, "all on the device"},
                        Case{3 * kWeightBytes, ": optimizer in the memory of the host"}}) {
    const auto plan = found(job, c.bytes);
    ASSERT_TRUE(plan.has_value()) << c.bytes << ": " << plan.error();
    ASSERT_FALSE(plan->plan.notes.empty());
    EXPECT_NE(plan->plan.notes.back().find(c.text), std::string::npos) << plan->plan.notes.back();
    EXPECT_LE(plan->plan.memory[0].total_bytes, c.bytes);
  }
  const auto least = found(job, kWeightBytes);
  ASSERT_TRUE(least.has_value()) << least.error();
  EXPECT_LE(least->plan.memory[0].total_bytes, kWeightBytes);
  // A host that has no room for it either: the disk is farther.
  mesh::Topology small = mesh::Topology::Local(1);
  small.devices[0].memory_bytes = 3 * kWeightBytes;
  small.hosts[small.devices[0].host].memory_bytes = kWeightBytes / 2;
  ir::JobRequest state = Products(kLayers);
  state.parallel.optimizer_memory = "auto";
  const auto on_disk = FindPlan(state, small, options, SystemClock());
  ASSERT_TRUE(on_disk.has_value()) << on_disk.error();
  EXPECT_NE(on_disk->plan.notes.back().find("optimizer on the disk"), std::string::npos)
      << on_disk->plan.notes.back();
  // Nothing is open: the refusal names what would help.
  const auto refused = found(Products(kLayers), kWeightBytes);
  ASSERT_FALSE(refused.has_value());
  for (const char* const key : {"optimizer_memory", "weights_memory"}) {
    EXPECT_NE(refused.error().message().find(std::string("parallelism.") + key + " = \"host\""),
              std::string::npos)
        << refused.error();
  }
}

// With one microbatch gradients have no slots that stay: those that wait in the host's memory take
// nothing from layer to layer.
TEST(FindPlan, GradientsOfOneMicrobatchWaitInTheHostsMemory) {
  constexpr int kLayers = 15;
  constexpr int64_t kWeightBytes = (kLayers + 1) * 64 * 64 * 4;
  ir::JobRequest job = Products(kLayers, true);
  job.parallel = ir::OpenParallel();
  job.parallel.offload_chunk_bytes = 16 << 10;
  job.parallel.activations_memory = "device";
  job.parallel.optimizer_memory = job.parallel.weights_memory = "host";
  job.parallel.gradients_memory = "device";
  job.parallel.microbatches = 1;
  mesh::Topology topology = mesh::Topology::Local(1);
  topology.devices[0].memory_bytes = kWeightBytes * 3 / 4;
  EXPECT_FALSE(FindPlan(job, topology, {}, SystemClock()).has_value());
  job.parallel.gradients_memory = "host";
  const auto found = FindPlan(job, topology, {}, SystemClock());
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_LE(found->plan.memory[0].total_bytes, topology.devices[0].memory_bytes);
}

// Of what fits near, the step may be longer than on devices without a limit; then one kind more is
// priced, and taken where it is faster.
TEST(ChooseMemory, PricesWhatIsFartherWhereRoomCostsTime) {
  ir::JobRequest job = Products(3);
  job.parallel.optimizer_memory = job.parallel.weights_memory = "auto";
  mesh::Topology limited = mesh::Topology::Local(1);
  limited.devices[0].memory_bytes = 1 << 20;
  std::vector<std::string> asked;
  // A plan whose forecast is that of as many layers as the case says.
  const auto found_with = [&](std::function<int(const ir::ParallelSpec&, bool)> layers) {
    const FindOnDevices find = [&asked, layers](const ir::JobRequest& decided,
                                                const mesh::Topology& topology, const SearchTime&) {
      const bool limit = topology.devices[0].memory_bytes > 0;
      asked.push_back(decided.parallel.optimizer_memory + "," + decided.parallel.weights_memory +
                      (limit ? "" : ",no limit"));
      return FindPlan(Products(layers(decided.parallel, limit)), mesh::Topology::Local(1), {},
                      SystemClock());
    };
    return FindInMemories(job, limited, SearchTime(1, 1, kStill), find);
  };
  // As fast as without a limit: nothing else is asked.
  const auto near = found_with([](const ir::ParallelSpec&, bool) { return 4; });
  ASSERT_TRUE(near.has_value()) << near.error();
  EXPECT_EQ(asked, (std::vector<std::string>{"device,device", "device,device,no limit"}));
  // The weights in the host's memory make the step short again.
  asked.clear();
  const auto far = found_with([](const ir::ParallelSpec& spec, bool limit) {
    return !limit || spec.weights_memory == "host" ? 4 : 40;
  });
  ASSERT_TRUE(far.has_value()) << far.error();
  EXPECT_EQ(asked.size(), 4u);
  const std::string& note = far->plan.notes.back();
  EXPECT_NE(note.find("weights in the memory of the host; a step is forecast"), std::string::npos)
      << note;
  EXPECT_NE(note.find("not taken: all on the device takes "), std::string::npos) << note;
  EXPECT_NE(note.find("; optimizer in the memory of the host takes "), std::string::npos) << note;
}

// Of each nearer choice, and of each that is as near, what was wrong with it.
TEST(ChooseMemory, SaysWhatWasWrongWithTheOthers) {
  ir::JobRequest job = Products(3);
  job.parallel.optimizer_memory = job.parallel.weights_memory = "auto";
  job.parallel.gradients_memory = "auto";
  const FindOnDevices find = [](const ir::JobRequest& decided, const mesh::Topology&,
                                const SearchTime&) -> Result<FoundPlan> {
    const ir::ParallelSpec& spec = decided.parallel;
    const bool near = spec.optimizer_memory == "device" && spec.weights_memory == "device";
    if (near && spec.gradients_memory == "device") return Fail(ResourceExhausted("needs 2, has 1"));
    if (spec.optimizer_memory == "host") return Fail(ResourceExhausted("too small"));
    const int layers = spec.weights_memory == "host" ? 40 : 4;
    return FindPlan(Products(layers), mesh::Topology::Local(1), {}, SystemClock());
  };
  const auto found =
      FindInMemories(job, mesh::Topology::Local(1), SearchTime(9000, 9000, kStill), find);
  ASSERT_TRUE(found.has_value()) << found.error();
  const std::string& note = found->plan.notes.back();
  for (const char* const part :
       {"memories that are open: gradients in the memory of the host; a step is forecast to take ",
        "; not taken: all on the device does not fit (needs 2, has 1); ",
        "optimizer in the memory of the host does not fit",
        "; weights in the memory of the host takes "}) {
    EXPECT_NE(note.find(part), std::string::npos) << part << ": " << note;
  }
}

TEST(ChooseMemory, NeverUsesADiskThatNoWorkerHasAFolderOn) {
  ir::JobRequest job = Products(3);
  mesh::Topology folderless = mesh::Topology::Local(1);
  folderless.devices[0].disk = mesh::Disk::kNoFolder;
  int asked = 0;
  const FindOnDevices misfit = [&](const ir::JobRequest& decided, const mesh::Topology&,
                                   const SearchTime&) -> Result<FoundPlan> {
    ++asked;
    EXPECT_NE(decided.parallel.optimizer_memory, "disk");
    return Fail(ResourceExhausted("too small"));
  };
  job.parallel.optimizer_memory = "auto";
  const auto open = FindInMemories(job, folderless, SearchTime(1, 1, kStill), misfit);
  ASSERT_FALSE(open.has_value());
  EXPECT_EQ(asked, 2) << "the device and the host";
  EXPECT_NE(open.error().message().find("--scratch-dir DIR"), std::string::npos) << open.error();

  asked = 0;
  job.parallel.optimizer_memory = "disk";
  const auto said = FindInMemories(job, folderless, SearchTime(1, 1, kStill), misfit);
  ASSERT_FALSE(said.has_value());
  EXPECT_EQ(asked, 0) << "before anything is planned";
  EXPECT_EQ(said.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(said.error().message().find("parallelism.optimizer_memory = \"disk\": no worker was "
                                        "started with a folder for it; start the workers with "
                                        "--scratch-dir DIR"),
            std::string::npos)
      << said.error();
  folderless.devices[0].disk = mesh::Disk::kOfGpu;
  EXPECT_NE(FindInMemories(job, folderless, SearchTime(1, 1, kStill), misfit)
                .error()
                .message()
                .find("GPUs keep nothing on a disk"),
            std::string::npos);
}

// A defect of the planner with one memory leaves the others.
TEST(ChooseMemory, PassesOverWhatTheVerifierRejects) {
  ir::JobRequest job = Products(3);
  job.parallel.optimizer_memory = "auto";
  const FindOnDevices find = [](const ir::JobRequest& decided, const mesh::Topology&,
                                const SearchTime&) -> Result<FoundPlan> {
    if (decided.parallel.optimizer_memory == "device") return Fail(ResourceExhausted("too small"));
    if (decided.parallel.optimizer_memory == "host") return Fail(Internal("no such slot"));
    return FindPlan(Products(3), mesh::Topology::Local(1), {}, SystemClock());
  };
  const auto found = FindInMemories(job, mesh::Topology::Local(1), SearchTime(1, 1, kStill), find);
  ASSERT_TRUE(found.has_value()) << found.error();
  const std::vector<std::string>& notes = found->plan.notes;
  EXPECT_NE(notes.back().find("optimizer on the disk"), std::string::npos) << notes.back();
  EXPECT_NE(notes[notes.size() - 2].find("in the memory of the host is left out, no such slot"),
            std::string::npos)
      << notes[notes.size() - 2];
}

}  // namespace
}  // namespace meshwright::search
