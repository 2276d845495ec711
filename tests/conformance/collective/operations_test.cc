// Every collective on every transport against plain loops in list order, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>

#include "base/half.h"
#include "collective/cpu/group_base.h"
#include "tests/conformance/collective/cluster.h"
#include "tests/scale.h"

namespace meshwright::collective {
namespace {

using ir::DType;

// How the ranks of a test case are spread.
enum class Wiring : uint8_t {
  kMemory,         // one process, threads
  kSharedMemory,   // one forked process per rank
  kTcp,            // one forked process per rank
  kMixed,          // two forked processes, shared memory between them
  kTls,            // likewise, mutual TLS
  kTcpThreads,     // one fabric per rank in one process, TCP: for the thread sanitizer
  kTlsThreads,     // likewise, mutual TLS
  kSharedThreads,  // likewise with shared memory
  kNccl,           // emulated GPUs, one fabric per rank in one process
  kNcclMemory      // emulated GPUs, one fabric
};

const char* WiringName(Wiring wiring) {
  constexpr const char* kNames[] = {"Memory", "SharedMemory", "Tcp",        "Mixed",
                                    "Tls",    "TcpThreads",   "TlsThreads", "SharedThreads",
                                    "Nccl",   "NcclMemory"};
  return kNames[static_cast<int>(wiring)];
}

std::vector<std::string> RunWired(Wiring wiring, int size, const RankBody& body) {
  if (wiring == Wiring::kNccl || wiring == Wiring::kNcclMemory) {
    const ClusterSpec spec = NcclCluster(size, wiring == Wiring::kNccl ? 1 : size);
    return RunAsThreads(spec, OnWorld(spec, body));
  }
  const bool tls = wiring == Wiring::kTls || wiring == Wiring::kTlsThreads;
  const bool tcp = tls || wiring == Wiring::kTcp || wiring == Wiring::kTcpThreads;
  const int per_process = wiring == Wiring::kMemory  ? size
                          : wiring == Wiring::kMixed ? (size + 1) / 2
                                                     : 1;
  ClusterSpec spec = EvenCluster(size, per_process, tcp ? Transport::kTcp : Transport::kAuto);
  spec.tls = tls;
  const bool threads = wiring == Wiring::kMemory || wiring == Wiring::kTcpThreads ||
                       wiring == Wiring::kTlsThreads || wiring == Wiring::kSharedThreads;
  if (threads) {
    return RunAsThreads(spec, OnWorld(spec, body));
  }
  return ForkedCluster(spec, OnWorld(spec, body)).Results();
}

// A value that depends on rank, position and salt, and rounds in every floating dtype.
double Value(int rank, int64_t index, int salt) {
  uint64_t bits = static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15ULL +
                  static_cast<uint64_t>(rank * 131 + salt) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 29)) * 0x94d049bb133111ebULL;
  return static_cast<double>(static_cast<int64_t>(bits >> 40) - (1 << 23)) / (1 << 20);
}

template <typename T>
T FromDouble(double value) {
  return static_cast<T>(value * (std::is_integral_v<T> ? 1e6 : 1.0));
}

// A buffer of `count` elements of a dtype.
class Tensor {
 public:
  Tensor(DType dtype, int64_t count)
      : dtype_(dtype), bytes_(static_cast<size_t>(count * ir::DTypeBytes(dtype))) {}
  void Set(int64_t index, double value) {
    switch (dtype_) {
      case DType::kF32:
        return Put(index, FromDouble<float>(value));
      case DType::kF64:
        return Put(index, FromDouble<double>(value));
      case DType::kBF16:
        return Put(index, FloatToBf16(static_cast<float>(value)));
      case DType::kF16:
        return Put(index, FloatToF16(static_cast<float>(value)));
      case DType::kI32:
        return Put(index, FromDouble<int32_t>(value));
      case DType::kI64:
        return Put(index, FromDouble<int64_t>(value));
      case DType::kBool:
        return Put(index, static_cast<uint8_t>(value > 0));
    }
  }
  template <typename T>
  void Put(int64_t index, T value) {
    std::memcpy(bytes_.data() + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
  }
  template <typename T>
  T Get(int64_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
    return value;
  }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  DType dtype() const { return dtype_; }
  friend bool operator==(const Tensor& a, const Tensor& b) { return a.bytes_ == b.bytes_; }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

Tensor Filled(DType dtype, int64_t count, int rank, int salt) {
  Tensor tensor(dtype, count);
  for (int64_t i = 0; i < count; ++i) {
    tensor.Set(i, Value(rank, i, salt));
  }
  return tensor;
}

template <typename T>
T Combine(T a, T b, Reduction reduction) {
  if (reduction == Reduction::kMax) {
    return std::max(a, b);
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (reduction == Reduction::kLogSumExp) {
      const T high = std::max(a, b);
      return high + std::log1p(std::exp(std::min(a, b) - high));
    }
  }
  return static_cast<T>(a + b);
}

// The plain loop: inputs of all ranks combined in list order, wide for the 16-bit dtypes.
Tensor Reduced(const std::vector<Tensor>& inputs, int64_t count, Reduction reduction) {
  const DType dtype = inputs[0].dtype();
  Tensor result(dtype, count);
  const auto combine = [&](auto get, auto put) {
    for (int64_t i = 0; i < count; ++i) {
      auto value = get(inputs[0], i);
      for (size_t j = 1; j < inputs.size(); ++j) {
        value = Combine(value, get(inputs[j], i), reduction);
      }
      put(i, value);
    }
  };
  const auto plain = [&]<typename T>(T) {
    combine([](const Tensor& t, int64_t i) { return t.Get<T>(i); },
            [&](int64_t i, T value) { result.Put(i, value); });
  };
  switch (dtype) {
    case DType::kF32:
      plain(float{});
      break;
    case DType::kF64:
      plain(double{});
      break;
    case DType::kI32:
      plain(int32_t{});
      break;
    case DType::kI64:
      plain(int64_t{});
      break;
    case DType::kBF16:
      combine([](const Tensor& t, int64_t i) { return Bf16ToFloat(t.Get<uint16_t>(i)); },
              [&](int64_t i, float value) { result.Put(i, FloatToBf16(value)); });
      break;
    case DType::kF16:
      combine([](const Tensor& t, int64_t i) { return F16ToFloat(t.Get<uint16_t>(i)); },
              [&](int64_t i, float value) { result.Put(i, FloatToF16(value)); });
      break;
    case DType::kBool:
      break;
  }
  return result;
}

std::vector<Tensor> AllInputs(DType dtype, int64_t count, int size, int salt) {
  std::vector<Tensor> inputs;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(Filled(dtype, count, rank, salt));
  }
  return inputs;
}

// A case of the matrix and how its failure reads.
struct Case {
  DType dtype;
  int64_t count;
  Reduction reduction = Reduction::kSum;
};

std::string Verdict(const char* operation, const Case& c, const RankSite& site,
                    const Status& status, bool equal) {
  if (status.ok() && equal) {
    return "";
  }
  return fmt::format("{} {} count {} reduction {} on rank {}: {}\n", operation,
                     ir::DTypeName(c.dtype), c.count, static_cast<int>(c.reduction), site.rank,
                     status.ok() ? "wrong result" : status.ToString());
}

std::string CheckReductions(RankSite& site, const Case& c) {
  const int salt = static_cast<int>(c.count % 97);
  const int64_t block_count = (c.count + site.size - 1) / site.size;
  const int64_t full = block_count * site.size;
  const std::vector<Tensor> inputs = AllInputs(c.dtype, c.count, site.size, salt);
  Tensor data = inputs[static_cast<size_t>(site.rank)];
  const Status reduced = site.world->AllReduce(data.data(), c.count, c.dtype, c.reduction);
  std::string errors =
      Verdict("all_reduce", c, site, reduced, data == Reduced(inputs, c.count, c.reduction));

  const std::vector<Tensor> wide = AllInputs(c.dtype, full, site.size, salt);
  Tensor block(c.dtype, block_count);
  const Status scattered = site.world->ReduceScatter(
      wide[static_cast<size_t>(site.rank)].data(), block.data(), block_count, c.dtype, c.reduction);
  const Tensor expected = Reduced(wide, full, c.reduction);
  const auto block_bytes = static_cast<size_t>(block_count * ir::DTypeBytes(c.dtype));
  const bool equal =
      block_bytes == 0 ||
      std::memcmp(block.data(), expected.data() + static_cast<size_t>(site.rank) * block_bytes,
                  block_bytes) == 0;
  return errors + Verdict("reduce_scatter", c, site, scattered, equal);
}

std::string CheckMoves(RankSite& site, const Case& c) {
  const int64_t full = c.count * site.size;
  const Tensor own = Filled(c.dtype, c.count, site.rank, 1);
  Tensor gathered(c.dtype, full);
  Tensor exchanged(c.dtype, full);
  Tensor expected_gather(c.dtype, full);
  Tensor expected_exchange(c.dtype, full);
  for (int i = 0; i < site.size; ++i) {
    for (int64_t k = 0; k < c.count; ++k) {
      expected_gather.Set(i * c.count + k, Value(i, k, 1));
      expected_exchange.Set(i * c.count + k, Value(i, site.rank * c.count + k, 2));
    }
  }
  const Status gather = site.world->AllGather(own.data(), gathered.data(), c.count, c.dtype);
  const Tensor blocks = Filled(c.dtype, full, site.rank, 2);
  const Status exchange = site.world->AllToAll(blocks.data(), exchanged.data(), c.count, c.dtype);
  std::string errors = Verdict("all_gather", c, site, gather, gathered == expected_gather) +
                       Verdict("all_to_all", c, site, exchange, exchanged == expected_exchange);
  for (int by = 1; by < site.size; ++by) {
    Tensor shifted(c.dtype, c.count);
    const Status moved = site.world->RingShift(own.data(), shifted.data(), c.count, c.dtype, by);
    const int before = (site.rank - by + site.size) % site.size;
    errors += Verdict("ring_shift", c, site, moved, shifted == Filled(c.dtype, c.count, before, 1));
  }
  for (int root = 0; root < site.size; ++root) {
    Tensor data = Filled(c.dtype, c.count, site.rank, 3);
    const Status sent = site.world->Broadcast(data.data(), c.count, c.dtype, root);
    errors += Verdict("broadcast", c, site, sent, data == Filled(c.dtype, c.count, root, 3));
  }
  return errors;
}

using MatrixParam = std::tuple<Wiring, int>;

class OperationMatrix : public testing::TestWithParam<MatrixParam> {
 protected:
  Wiring wiring() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  void ExpectClean(const RankBody& body) {
    for (const std::string& result : RunWired(wiring(), size(), body)) {
      EXPECT_EQ(result, "");
    }
  }
};

// 65536 f32 elements are one chunk.
constexpr int64_t kSmallCounts[] = {0, 1, 2, 3, 7, 64, 1009};
constexpr int64_t kLargeCounts[] = {65'537, 65'536, 400'009};
constexpr size_t kLargeCases = kSanitizedBuild ? 1 : 3;

TEST_P(OperationMatrix, RanksAreReachedTheIntendedWay) {
  const bool tcp = wiring() == Wiring::kTcp || wiring() == Wiring::kTcpThreads ||
                   wiring() == Wiring::kTls || wiring() == Wiring::kTlsThreads;
  const int per_process = wiring() == Wiring::kMemory  ? size()
                          : wiring() == Wiring::kMixed ? (size() + 1) / 2
                                                       : 1;
  const bool nccl = wiring() == Wiring::kNccl || wiring() == Wiring::kNcclMemory;
  ExpectClean([&](RankSite& site) {
    std::string errors;
    for (int peer = 0; peer < site.size; ++peer) {
      const bool here = peer / per_process == site.rank / per_process;
      // What NCCL moves between ranks of one process is NCCL's, too.
      const std::string expected = nccl && site.size > 1 && !(here && wiring() == Wiring::kNccl)
                                       ? "nccl"
                                   : here ? "memory"
                                   : tcp  ? "tcp"
                                          : "shared_memory";
      if (site.fabric->transport(peer) != expected) {
        errors += fmt::format("rank {} reaches {} by {}\n", site.rank, peer,
                              site.fabric->transport(peer));
      }
    }
    return errors;
  });
}

TEST_P(OperationMatrix, ReductionsEqualPlainLoopsInListOrder) {
  ExpectClean([](RankSite& site) {
    std::string errors;
    for (const DType dtype :
         {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
      for (const int64_t count : kSmallCounts) {
        errors += CheckReductions(site, {dtype, count, Reduction::kSum});
        errors += CheckReductions(site, {dtype, count, Reduction::kMax});
        if (ir::IsFloating(dtype)) {
          errors += CheckReductions(site, {dtype, count, Reduction::kLogSumExp});
        }
      }
    }
    return errors;
  });
}

TEST_P(OperationMatrix, MovesDeliverEveryBlock) {
  ExpectClean([](RankSite& site) {
    std::string errors;
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kBool}) {
      for (const int64_t count : kSmallCounts) {
        errors += CheckMoves(site, {dtype, count});
      }
    }
    return errors;
  });
}

TEST_P(OperationMatrix, MessagesLongerThanAChunkArriveWhole) {
  ExpectClean([](RankSite& site) {
    std::string errors;
    for (const int64_t count : std::span(kLargeCounts).first(kLargeCases)) {
      errors += CheckReductions(site, {DType::kF32, count, Reduction::kSum});
    }
    errors += CheckReductions(site, {DType::kBF16, 131'101, Reduction::kSum});
    errors += CheckMoves(site, {DType::kF32, 100'003});
    return errors;
  });
}

// What one member puts on the wire, from the definitions.
int64_t ExpectedBytes(Kind kind, int size, int position, int64_t count, int64_t width) {
  const auto [begin, end] = BlockRange(count, size, position);
  switch (kind) {
    case Kind::kAllReduce:
      return (count - (end - begin) + (size - 1) * (end - begin)) * width;
    case Kind::kAllGather:
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
      return (size - 1) * count * width;
    case Kind::kRingShift:
      return count * width;
    case Kind::kBroadcast:
      return position == 0 ? (size - 1) * count * width : 0;
    case Kind::kSendRecv:
      break;
  }
  return 0;
}

TEST_P(OperationMatrix, CountersFollowTheClosedForms) {
  ExpectClean([](RankSite& site) {
    const int64_t count = 840 * 100 + 1;  // not divisible: the last block is short
    const int64_t width = 4;
    Tensor data(DType::kF32, count * site.size);
    Tensor out(DType::kF32, count * site.size);
    Group& g = *site.world;
    const bool ran =
        g.AllReduce(data.data(), count, DType::kF32, Reduction::kSum).ok() &&
        g.AllGather(data.data(), out.data(), count, DType::kF32).ok() &&
        g.ReduceScatter(data.data(), out.data(), count, DType::kF32, Reduction::kMax).ok() &&
        g.AllToAll(data.data(), out.data(), count, DType::kF32).ok() &&
        (site.size == 1 || g.RingShift(data.data(), out.data(), count, DType::kF32, 1).ok()) &&
        g.Broadcast(data.data(), count, DType::kF32, 0).ok();
    std::string errors = ran ? "" : "an operation failed\n";
    int64_t all_reduce_total = 0;
    for (int i = 0; i < site.size; ++i) {
      all_reduce_total += ExpectedBytes(Kind::kAllReduce, site.size, i, count, width);
    }
    if (all_reduce_total != 2 * (site.size - 1) * count * width) {
      errors += "the test's all_reduce bytes do not add up to 2(q-1)n\n";
    }
    for (const Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter,
                            Kind::kAllToAll, Kind::kRingShift, Kind::kBroadcast}) {
      if (kind == Kind::kRingShift && site.size == 1) continue;
      const Counters counters = g.counters(kind);
      const int64_t expected = ExpectedBytes(kind, site.size, site.rank, count, width);
      if (counters.calls != 1 || counters.bytes != expected || counters.seconds < 0) {
        errors += fmt::format("{} on rank {}: {} calls, {} bytes, expected 1 and {}\n",
                              KindName(kind), site.rank, counters.calls, counters.bytes, expected);
      }
    }
    return errors;
  });
}

TEST_P(OperationMatrix, RepeatedSumsAreBitwiseEqual) {
  ExpectClean([](RankSite& site) -> std::string {
    const int64_t count = 10'007;
    Tensor first = Filled(DType::kF32, count, site.rank, 5);
    if (!site.world->AllReduce(first.data(), count, DType::kF32, Reduction::kSum).ok()) {
      return "failed";
    }
    for (int round = 0; round < 20; ++round) {
      Tensor again = Filled(DType::kF32, count, site.rank, 5);
      const Status status =
          site.world->AllReduce(again.data(), count, DType::kF32, Reduction::kSum);
      if (!status.ok() || !(again == first)) {
        return fmt::format("round {}: {}", round, status.ToString());
      }
    }
    return "";
  });
}

std::string ParamName(const testing::TestParamInfo<MatrixParam>& info) {
  return fmt::format("{}{}", WiringName(std::get<0>(info.param)), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Threads, OperationMatrix,
                         testing::Combine(testing::Values(Wiring::kMemory),
                                          testing::Values(1, 2, 3, 4, 8)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Processes, OperationMatrix,
                         testing::Combine(testing::Values(Wiring::kSharedMemory, Wiring::kTcp),
                                          testing::Values(2, 3, 4)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Mixed, OperationMatrix,
                         testing::Combine(testing::Values(Wiring::kMixed), testing::Values(3, 4)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Fabrics, OperationMatrix,
                         testing::Combine(testing::Values(Wiring::kTcpThreads,
                                                          Wiring::kSharedThreads),
                                          testing::Values(2, 3)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Secure, OperationMatrix,
                         testing::Combine(testing::Values(Wiring::kTls, Wiring::kTlsThreads),
                                          testing::Values(2, 3)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Nccl, OperationMatrix,
                         testing::Combine(testing::Values(Wiring::kNccl, Wiring::kNcclMemory),
                                          testing::Values(1, 2, 3)),
                         ParamName);

}  // namespace
}  // namespace meshwright::collective
