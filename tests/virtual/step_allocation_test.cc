// The step path allocates nothing.
//
// The step path: what the threads of a device (its own and its team) do from the first to the last
// instruction of a program, RUN, SEND, RECV and FREE, kernels, collectives and channels included.
// Not in it: posting a launch and reading its reports, on the thread that asks for them; and what
// the matrix library keeps for itself by malloc. Counted by replacing the global operator new of
// this test binary, on all threads but the test's own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "report/recorded_run.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace {

std::atomic<int64_t> allocations{0};
thread_local bool counted = true;

void* CountedNew(std::size_t bytes, std::size_t alignment) {
  if (counted) allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, whole);
}

void* CountedNewOrThrow(std::size_t bytes, std::size_t alignment) {
  if (void* memory = CountedNew(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

constexpr std::size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

// Not inlined: the compiler would see aligned_alloc and free without their partners and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return CountedNewOrThrow(bytes, kDefault);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return CountedNewOrThrow(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return CountedNew(bytes, kDefault);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace meshwright::testing {
namespace {

struct Layout {
  const char* family;
  int data, tensor, pipeline, microbatches;
  bool compile;
};

// One for each instruction, and one for each node of its RUNs.
size_t MarksOf(const ir::Program& program) {
  size_t marks = program.instructions.size();
  for (const ir::Instruction& run : program.instructions) {
    if (run.op != ir::Opcode::kRun) continue;
    for (const ir::Node& node : program.executables[run.executable.index()].graph->nodes) {
      marks += node.op == ir::Op::kInput ? 0 : 1;
    }
  }
  return marks;
}

// Allocations of the devices in steps 3 and later.
int64_t AllocationsOf(const Layout& layout) {
  TinyOptions options;
  options.family = layout.family;
  options.dtype = ir::DType::kF32;
  options.layers = 2;
  options.dropout = 0.1;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = layout.data;
  job.parallel.tensor = layout.tensor;
  job.parallel.pipeline = layout.pipeline;
  job.parallel.microbatches = layout.microbatches;
  job.train.compile = layout.compile;
  SyntheticTokens tokens(61);
  auto cluster = VirtualCluster::Start(job, layout.data * layout.tensor * layout.pipeline, &tokens);
  EXPECT_TRUE(cluster) << cluster.error();
  if (!cluster) return -1;
  EXPECT_TRUE((*cluster)->Train(0, 3));  // what threads set up once
  const int64_t before = allocations.load();
  EXPECT_GT(before, 0) << "nothing is counted";
  // Also while they write down what they do: the room for that is taken before, by this thread.
  worker::JobRuntime& runtime = (*cluster)->runtime();
  EXPECT_TRUE(runtime.Launch({"step", 3, 6, {4, 4}}));
  const int64_t made = allocations.load() - before;
  const std::vector<ir::StepRecord> records = runtime.TakeRecorded();
  EXPECT_EQ(records.size(), 4u * (*cluster)->plan().Main().size());
  for (const ir::StepRecord& record : records) {
    EXPECT_GE(record.step, 4);
    EXPECT_EQ(record.left_out, 0);
    const ir::Program& program = (*cluster)->plan().Main()[static_cast<size_t>(record.rank)];
    EXPECT_TRUE(report::CheckRecord(program, record).ok()) << report::CheckRecord(program, record);
    EXPECT_EQ(record.marks.size(), MarksOf(program));
  }
  return made;
}

TEST(StepAllocation, DevicesAllocateNothing) {
  counted = false;
  for (const bool compile : {true, false}) {
    for (const char* family : {"gpt2", "llama", "mixtral"}) {
      EXPECT_EQ(AllocationsOf({family, 1, 1, 1, 1, compile}), 0) << family;
      EXPECT_EQ(AllocationsOf({family, 2, 2, 2, 4, compile}), 0) << family;
    }
  }
  counted = true;
}

}  // namespace
}  // namespace meshwright::testing
