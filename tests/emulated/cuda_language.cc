#include "tests/emulated/cuda_language.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/emulated/driver.h"

#if defined(MW_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(MW_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace meshwright::emulated {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr unsigned kMaxThreads = 1024;
constexpr int64_t kMaxSharedBytes = int64_t{227} << 10;
constexpr unsigned kMaxRows = 65535;  // blocks along y and z
constexpr int32_t kInvalidConfiguration = 9;
constexpr unsigned kWarp = 32;

#if defined(MW_THREAD_SANITIZER)
constexpr bool kJumps = false;
#else
constexpr bool kJumps = true;
#endif

[[noreturn]] void Die(const char* message) {
  std::fprintf(stderr, "emulated GPU: block (%u, %u, %u), thread (%u, %u, %u): %s\n", blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, message);
  std::abort();
}

// A place of execution: a stack of its own, or that of the host thread.
struct Context {
  ucontext_t start;
  void* state[5] = {};  // of __builtin_setjmp
  bool started = false;
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // of the address sanitizer
  void* fiber = nullptr;       // of the thread sanitizer
};

// Saves where `from` is and goes on with `to`. A switch of glibc's contexts is a system call, and
// jumps are not. The compiler's own jumps are none that the address sanitizer clears stacks for;
// the thread sanitizer understands only contexts.
[[gnu::noinline, gnu::no_sanitize_address]] void Switch(Context& from, Context& to) {
#if defined(MW_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
#if defined(MW_THREAD_SANITIZER)
  __tsan_switch_to_fiber(to.fiber, 0);
#endif
  if (!kJumps) {
    (void)::swapcontext(&from.start, &to.start);
  } else if (__builtin_setjmp(from.state) == 0) {
    if (to.started) __builtin_longjmp(to.state, 1);
    to.started = true;
    (void)::setcontext(&to.start);
  }
#if defined(MW_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

struct Warp {
  uint64_t values[2][kWarp];  // of this exchange and of the one before
  unsigned arrived = 0;       // lanes
  unsigned round = 0;
};

// Runs the blocks of a host thread. A fiber runs thread after thread of a block until one of them
// has to wait; then it stays with that thread, and another fiber takes the next ones.
class Machine {
 public:
  static Machine& Of() {
    static thread_local Machine machine;
    return machine;
  }
  ~Machine() {
    for (const auto& fiber : fibers_) {
#if defined(MW_THREAD_SANITIZER)
      __tsan_destroy_fiber(fiber->context.fiber);
#endif
#if defined(MW_ADDRESS_SANITIZER)
      // Frames that never returned left their marks, which would outlive the mapping.
      __asan_unpoison_memory_region(fiber->context.stack, kStackBytes);
#endif
      (void)::munmap(const_cast<void*>(fiber->context.stack), kStackBytes);
    }
  }

  void RunBlock(int64_t shared_bytes, const std::function<void()>& thread, uint64_t seed) {
    thread_ = &thread;
    total_ = blockDim.x * blockDim.y * blockDim.z;
    alive_ = total_;
    next_ = 0;
    first_ = static_cast<unsigned>(seed % total_);
    backwards_ = (seed >> 32 & 1) != 0;
    shared_.assign(static_cast<size_t>(shared_bytes), std::byte{0xff});
    warps_.assign((total_ + kWarp - 1) / kWarp, Warp{});
    EnterHost();
    while (alive_ > 0) {
      if (!ready_.empty()) {
        Resume(ready_.back(), true);
      } else if (next_ < total_) {
        Resume(FreeFiber(), false);
      } else {
        Die("some threads wait for others that have ended or wait elsewhere");
      }
    }
  }

  std::byte* shared() { return shared_.data(); }
  unsigned linear() const { return running_->linear; }

  void WaitForBlock() {
    if (block_waiting_.size() + 1 == alive_) {
      ReleaseBlock();
      return;
    }
    block_waiting_.push_back(running_);
    Yield();
  }

  // Returns the values of all lanes.
  const uint64_t* Exchange(unsigned mask, uint64_t value) {
    Warp& warp = warps_[running_->linear / kWarp];
    const unsigned lane = running_->linear % kWarp;
    if ((mask >> lane & 1) == 0) Die("the thread is not in the mask that it gives");
    if ((warp.arrived >> lane & 1) != 0) Die("a lane is twice in one exchange");
    const unsigned round = warp.round;
    warp.values[round % 2][lane] = value;
    warp.arrived |= 1u << lane;
    if (warp.arrived == mask) {
      warp.arrived = 0;
      ++warp.round;
      ReleaseWarp(running_->linear / kWarp);
    } else {
      warp_waiting_.push_back(running_);
      Yield();
    }
    return warp.values[round % 2];
  }

 private:
  struct Fiber {
    Context context;
    unsigned linear = 0;  // the thread that it runs
    dim3 index;
  };

  void EnterHost() {
#if defined(MW_THREAD_SANITIZER)
    host_.fiber = __tsan_get_current_fiber();
#endif
    host_.started = true;
  }

  Fiber* FreeFiber() {
    if (free_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      free_.push_back(fibers_.back().get());
      MakeStack(fibers_.back()->context);
    }
    Fiber* fiber = free_.back();
    free_.pop_back();
    return fiber;
  }

  static void MakeStack(Context& context) {
    void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) Die("no memory for a stack");
    context.stack = stack;
    context.stack_bytes = kStackBytes;
#if defined(MW_THREAD_SANITIZER)
    context.fiber = __tsan_create_fiber(0);
#endif
    PrepareStart(context.start, stack);
  }

  // Apart: what returns twice keeps no variables.
  [[gnu::noinline]] static void PrepareStart(ucontext_t& start, void* stack) {
    (void)::getcontext(&start);
    start.uc_stack.ss_sp = stack;
    start.uc_stack.ss_size = kStackBytes;
    start.uc_link = nullptr;
    ::makecontext(&start, &Machine::FiberMain, 0);
  }

  void Resume(Fiber* fiber, bool waited) {
    if (waited) ready_.pop_back();
    running_ = fiber;
    if (waited) threadIdx = fiber->index;
    Switch(host_, fiber->context);
  }

  void Yield() {
    Fiber* fiber = running_;
    Switch(fiber->context, host_);
  }

  static void FiberMain() {
    Machine& machine = Of();
    Fiber& fiber = *machine.running_;
#if defined(MW_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(nullptr, &machine.host_.stack, &machine.host_.stack_bytes);
#endif
    for (;;) {
      machine.RunThreads(fiber);
      machine.free_.push_back(&fiber);
      Switch(fiber.context, machine.host_);
    }
  }

  // Those that are left, one after the other.
  void RunThreads(Fiber& fiber) {
    while (next_ < total_) {
      const unsigned order = backwards_ ? total_ - 1 - next_ : next_;
      ++next_;
      fiber.linear = (first_ + order) % total_;
      fiber.index = {fiber.linear % blockDim.x, fiber.linear / blockDim.x % blockDim.y,
                     fiber.linear / blockDim.x / blockDim.y};
      threadIdx = fiber.index;
      (*thread_)();
      --alive_;
      if (alive_ > 0 && block_waiting_.size() == alive_) ReleaseBlock();
    }
  }

  void ReleaseBlock() {
    ready_.insert(ready_.end(), block_waiting_.begin(), block_waiting_.end());
    block_waiting_.clear();
  }

  void ReleaseWarp(unsigned warp) {
    size_t kept = 0;
    for (Fiber* fiber : warp_waiting_) {
      if (fiber->linear / kWarp == warp) {
        ready_.push_back(fiber);
      } else {
        warp_waiting_[kept++] = fiber;
      }
    }
    warp_waiting_.resize(kept);
  }

  const std::function<void()>* thread_ = nullptr;
  unsigned total_ = 0;
  unsigned alive_ = 0;
  unsigned next_ = 0;  // how many threads have been started
  unsigned first_ = 0;
  bool backwards_ = false;
  Context host_;
  Fiber* running_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  std::vector<Fiber*> ready_;
  std::vector<Fiber*> block_waiting_;
  std::vector<Fiber*> warp_waiting_;
  std::vector<Warp> warps_;
  std::vector<std::byte> shared_;
};

// The order of blocks and threads is another one for each launch.
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15ull;
  return value ^ (value >> 29);
}

void RunGrid(dim3 grid, dim3 block, int64_t shared_bytes, const std::function<void()>& thread,
             uint64_t seed) {
  gridDim = grid;
  blockDim = block;
  const uint64_t count = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t first = Mix(seed) % count;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = (seed % 2 == 0 ? first + i : first + count - i) % count;
    blockIdx = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                static_cast<unsigned>(at / grid.x / grid.y)};
    Machine::Of().RunBlock(shared_bytes, thread, Mix(seed + i));
  }
}

}  // namespace

int32_t PushBlocks(void* stream, dim3 grid, dim3 block, int64_t shared_bytes,
                   std::function<void()> thread) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads || blocks == 0 || grid.x > INT32_MAX ||
      grid.y > kMaxRows || grid.z > kMaxRows || shared_bytes > kMaxSharedBytes) {
    return kInvalidConfiguration;
  }
  static std::atomic<uint64_t> launches{0};
  const uint64_t seed = Mix(++launches);
  return static_cast<Stream*>(stream)->Push(
      [grid, block, shared_bytes, thread = std::move(thread), seed] {
        RunGrid(grid, block, shared_bytes, thread, seed);
        return true;
      });
}

std::byte* DynamicShared() { return Machine::Of().shared(); }
void WaitForBlock() { Machine::Of().WaitForBlock(); }
int Lane() { return static_cast<int>(Machine::Of().linear() % kWarp); }

uint64_t Exchange(unsigned mask, uint64_t value, int lane) {
  if ((mask >> lane & 1) == 0) Die("a shuffle reads a lane outside of its mask");
  return Machine::Of().Exchange(mask, value)[lane];
}

void ExchangeAll(unsigned mask, uint64_t value, uint64_t (&values)[32]) {
  std::memcpy(values, Machine::Of().Exchange(mask, value), sizeof(values));
}

}  // namespace meshwright::emulated
