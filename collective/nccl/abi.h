// NCCL's binary interface, declared by hand: values, structs and the types of its functions.
//
// Building needs no NCCL; abi_check.cc compares all of this with nccl.h where there is one. The
// values have not changed since 2.18. The configuration says how long it is and of which version:
// a newer library takes a shorter one, so the fields end with those of 2.18, which are all that is
// set here.
//
// Thread rule: plain values. Source: nccl.h of NCCL 2.18 to 2.28.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace meshwright::collective::nccl {

inline constexpr int kOldestVersion = 21800;  // 10000 * major + 100 * minor + patch
inline constexpr int kUniqueIdBytes = 128;
inline constexpr int kNoColor = -1;
inline constexpr int kUndefined = std::numeric_limits<int>::min();
inline constexpr unsigned kConfigMagic = 0xcafebeef;

// ncclResult_t
enum class Code : int32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

// ncclDataType_t
enum class DataType : int32_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};

// ncclRedOp_t
enum class RedOp : int32_t { kSum = 0, kMax = 2 };

// ncclUniqueId
struct UniqueId {
  char bytes[kUniqueIdBytes] = {};
};

// ncclConfig_t as of 2.18.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = kConfigMagic;
  unsigned version = kOldestVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  // Padding of 2.18, in which later versions found room for a field: it must not be chance.
  int not_yet_used = kUndefined;
};

using CommHandle = void*;    // ncclComm_t
using StreamHandle = void*;  // cudaStream_t

// The functions, as the library exports them.
struct Functions {
  Code (*GetVersion)(int*) = nullptr;
  Code (*GetUniqueId)(UniqueId*) = nullptr;
  Code (*CommInitRankConfig)(CommHandle*, int ranks, UniqueId, int rank, Config*) = nullptr;
  Code (*CommInitRankScalable)(CommHandle*, int ranks, int rank, int ids, UniqueId*,
                               Config*) = nullptr;  // since 2.23
  Code (*CommSplit)(CommHandle, int color, int key, CommHandle*, Config*) = nullptr;
  Code (*CommFinalize)(CommHandle) = nullptr;
  Code (*CommDestroy)(CommHandle) = nullptr;
  Code (*CommAbort)(CommHandle) = nullptr;
  Code (*CommGetAsyncError)(CommHandle, Code*) = nullptr;
  const char* (*GetErrorString)(Code) = nullptr;
  const char* (*GetLastError)(CommHandle) = nullptr;
  Code (*GroupStart)() = nullptr;
  Code (*GroupEnd)() = nullptr;
  Code (*AllReduce)(const void*, void*, size_t, DataType, RedOp, CommHandle,
                    StreamHandle) = nullptr;
  Code (*AllGather)(const void*, void*, size_t, DataType, CommHandle, StreamHandle) = nullptr;
  Code (*ReduceScatter)(const void*, void*, size_t, DataType, RedOp, CommHandle,
                        StreamHandle) = nullptr;
  Code (*AlltoAll)(const void*, void*, size_t, DataType, CommHandle,
                   StreamHandle) = nullptr;  // since 2.28
  Code (*Broadcast)(const void*, void*, size_t, DataType, int root, CommHandle,
                    StreamHandle) = nullptr;
  Code (*Send)(const void*, size_t, DataType, int peer, CommHandle, StreamHandle) = nullptr;
  Code (*Recv)(void*, size_t, DataType, int peer, CommHandle, StreamHandle) = nullptr;
};

}  // namespace meshwright::collective::nccl
