#include "tests/unit/base/counting_allocator.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// In a file of its own: where these are visible, the compiler mistakes them for a mismatch. Clang's
// thread sanitizer does not let them be replaced: nothing is counted there.
#if !defined(MW_THREAD_SANITIZER)
void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace meshwright {

int64_t AllocationCount() { return allocations.load(std::memory_order_relaxed); }

}  // namespace meshwright
