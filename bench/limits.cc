#include "bench/limits.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <dnnl.hpp>

#include "base/check.h"
#include "base/thread_team.h"

namespace meshwright::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 7;
constexpr double kEnoughSeconds = 0.25;  // stop repeating after this long
constexpr int64_t kCopyBytes = int64_t{256} << 20;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

template <typename Body>
double MedianSeconds(const Body& body) {
  body();
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < kRepeats && (seconds.size() < 3 || total < kEnoughSeconds)) {
    const Clock::time_point start = Clock::now();
    body();
    seconds.push_back(Seconds(start));
    total += seconds.back();
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

// Touched memory on large pages.
class Buffer {
 public:
  explicit Buffer(int64_t bytes)
      : bytes_(static_cast<size_t>((bytes + (2 << 20)) & ~((2 << 20) - 1))) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)::madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  ~Buffer() { ::munmap(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

void OneOpenMpThread() {
  using SetThreads = void (*)(int);
  const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(1);
}

// One thread's part of a product.
class Product {
 public:
  Product(const MatmulShape& shape, ir::DType dtype)
      : shape_(shape),
        element_(ir::DTypeBytes(dtype)),
        a_(shape.m * shape.k * element_),
        b_(shape.k * shape.n * element_),
        c_(shape.m * shape.n * 4) {
    using Tag = dnnl::memory::format_tag;
    const auto type =
        dtype == ir::DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    const dnnl::memory::desc a({shape.m, shape.k}, type, shape.a_transposed ? Tag::ba : Tag::ab);
    const dnnl::memory::desc b({shape.k, shape.n}, type, Tag::any);
    const dnnl::memory::desc c({shape.m, shape.n}, dnnl::memory::data_type::f32, Tag::ab);
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, b, c), engine_);
    packed_ = dnnl::memory(made.weights_desc(), engine_);
    std::memset(packed_.get_data_handle(), 0, made.weights_desc().get_size());
    matmul_ = dnnl::matmul(made);
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(a, engine_, a_.data())},
                  {DNNL_ARG_WEIGHTS, packed_},
                  {DNNL_ARG_DST, dnnl::memory(c, engine_, c_.data())}};
  }

  void RunPrimitive() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }

  void RunSgemm() const {
    const int64_t lda = shape_.a_transposed ? shape_.m : shape_.k;
    const int64_t ldb = shape_.b_transposed ? shape_.k : shape_.n;
    dnnl_sgemm(shape_.a_transposed ? 'T' : 'N', shape_.b_transposed ? 'T' : 'N', shape_.m, shape_.n,
               shape_.k, 1.0f, reinterpret_cast<const float*>(a_.data()), lda,
               reinterpret_cast<const float*>(b_.data()), ldb, 0.0f,
               reinterpret_cast<float*>(c_.data()), shape_.n);
  }

 private:
  MatmulShape shape_;
  int64_t element_;
  Buffer a_, b_, c_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::memory packed_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

constexpr int64_t kReadStep = 64;

// Several sums at once, so that no addition waits for another. bytes: a multiple of kReadStep.
__attribute__((target_clones("avx512f", "avx2", "default"))) uint64_t SumOf(const char* data,
                                                                            int64_t bytes) {
  std::array<uint64_t, kReadStep / sizeof(uint64_t)> sums{};
  for (int64_t i = 0; i < bytes; i += kReadStep) {
    std::array<uint64_t, kReadStep / sizeof(uint64_t)> some;
    std::memcpy(some.data(), data + i, kReadStep);
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += some[k];
  }
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

}  // namespace

bool HasProductsOf(ir::DType dtype) {
  try {
    Product({1, 1, 1, false, false}, dtype);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

double MatmulSeconds(const MatmulShape& shape, ir::DType dtype, int threads) {
  std::vector<std::unique_ptr<Product>> parts(static_cast<size_t>(threads));
  MatmulShape part = shape;
  part.m = (shape.m + threads - 1) / threads;
  OneOpenMpThread();
  for (auto& product : parts) product = std::make_unique<Product>(part, dtype);
  ThreadTeam team(threads);
  team.ParallelFor(threads, [](int64_t, int64_t, int) { OneOpenMpThread(); });
  const double primitive = MedianSeconds([&] {
    team.ParallelFor(threads, [&](int64_t begin, int64_t, int) {
      parts[static_cast<size_t>(begin)]->RunPrimitive();
    });
  });
  if (dtype != ir::DType::kF32) return primitive;
  const double sgemm = MedianSeconds([&] {
    team.ParallelFor(threads, [&](int64_t begin, int64_t, int) {
      parts[static_cast<size_t>(begin)]->RunSgemm();
    });
  });
  return std::min(primitive, sgemm);
}

double CopyBandwidth(int threads) {
  const Buffer from(kCopyBytes);
  const Buffer to(kCopyBytes);
  const int64_t part = kCopyBytes / threads;
  ThreadTeam team(threads);
  const double seconds = MedianSeconds([&] {
    team.ParallelFor(threads, [&](int64_t begin, int64_t, int) {
      std::memcpy(to.data() + begin * part, from.data() + begin * part, static_cast<size_t>(part));
    });
  });
  return 2.0 * static_cast<double>(part * threads) / seconds;
}

double ReadBandwidth(int threads) {
  const Buffer from(kCopyBytes);
  const int64_t part = kCopyBytes / threads / kReadStep * kReadStep;
  ThreadTeam team(threads);
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  const double seconds = MedianSeconds([&] {
    team.ParallelFor(threads, [&](int64_t begin, int64_t, int) {
      sums[static_cast<size_t>(begin)] += SumOf(from.data() + begin * part, part);
    });
  });
  MW_CHECK(sums[0] == 0) << "the buffer holds zeros";
  return static_cast<double>(part * threads) / seconds;
}

}  // namespace meshwright::bench
