// A step allocates nothing: counted by replacing the global operator new of this test binary.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/worker/program_maker.h"

namespace {

std::atomic<int64_t> allocations{0};

void* CountedNew(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = alignment == 0 ? std::malloc(bytes)
                                : std::aligned_alloc(
                                      alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: the compiler would see malloc and free without their partners and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return CountedNew(bytes, 0); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return CountedNew(bytes, 0); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace meshwright::worker {
namespace {

// Two devices: kernels, a bucket, a gather with packing, a boxed SEND/RECV, a donated slot, FREE.
std::vector<ir::Program> BusyPrograms() {
  const MeshSpec mesh{{{"data", 2}}, {}, 0};
  const auto graph = GraphOf(R"(graph "busy" {
    %0 = input {name="w"} : f32[8,8]
    %1 = scale(%0) {factor=0.5} : f32[8,8]
    %2 = einsum(%0, %1) {equation="ik,kj->ij"} : f32[8,8]
    %3 = sum_squares(%2) : f32[]
    %4, %5 = all_reduce(%2, %3) {axes=["data"], kind="sum"} : f32[8,8], f32[]
    %6 = all_gather(%4) {axes=["data"], dim=1} : f32[8,16]
    %7 = slice(%6) {dim=1, size=8, start=8} : f32[8,8]
    %8 = add(%0, %7) : f32[8,8]
    output "w" %8
    output "wide" %6
  })");
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    ProgramMaker maker("step", rank, mesh);
    const SlotId w = maker.Persistent("w", F32({8, 8}));
    const SlotId wide = maker.Transient(F32({8, 16}));
    const ir::Box half{{0, 8}, {8, 8}};
    maker.Run(maker.Executable(graph), {w}, {w, wide});
    if (rank == 0) maker.Send(wide, maker.Channel(true, 1, "c", 512), half);
    if (rank == 1) maker.Recv(wide, maker.Channel(false, 0, "c", 512), half);
    maker.Free({wide});
    programs.push_back(maker.Finish());
  }
  return programs;
}

int64_t AllocationsOf(JobRuntime& runtime, int64_t steps) {
  const int64_t before = allocations.load();
  EXPECT_TRUE(runtime.Launch({"step", 0, steps}).has_value());
  return allocations.load() - before;
}

TEST(JobRuntimeAllocation, StepsAllocateNothing) {
  for (ops::Backend backend : {ops::Backend::kReference, ops::Backend::kCpu}) {
    RuntimeOptions options = LocalOptions(2, BusyPrograms());
    options.backend = backend;
    options.threads_per_device = 2;
    auto runtime = MustLoad(std::move(options));
    AllocationsOf(*runtime, 3);  // what threads set up once
    const int64_t few = AllocationsOf(*runtime, 2);
    const int64_t many = AllocationsOf(*runtime, 202);
    // A launch has a fixed cost (posting, reports); 200 more steps may not show, whatever queues
    // do.
    EXPECT_LE(many - few, 10) << "backend " << static_cast<int>(backend);
  }
}

}  // namespace
}  // namespace meshwright::worker
