// Compares abi.h with nccl.h, where there is one.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)

#include <nccl.h>

#include <type_traits>

#include "collective/nccl/abi.h"

namespace meshwright::collective::nccl {
namespace {

template <typename Ours, typename Theirs>
constexpr bool Equal(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}

static_assert(NCCL_VERSION_CODE >= kOldestVersion);
static_assert(sizeof(Code) == sizeof(ncclResult_t));
static_assert(Equal(Code::kSuccess, ncclSuccess));
static_assert(Equal(Code::kUnhandledCudaError, ncclUnhandledCudaError));
static_assert(Equal(Code::kSystemError, ncclSystemError));
static_assert(Equal(Code::kInternalError, ncclInternalError));
static_assert(Equal(Code::kInvalidArgument, ncclInvalidArgument));
static_assert(Equal(Code::kInvalidUsage, ncclInvalidUsage));
static_assert(Equal(Code::kRemoteError, ncclRemoteError));
static_assert(Equal(Code::kInProgress, ncclInProgress));

static_assert(sizeof(DataType) == sizeof(ncclDataType_t));
static_assert(Equal(DataType::kInt8, ncclInt8));
static_assert(Equal(DataType::kUint8, ncclUint8));
static_assert(Equal(DataType::kInt32, ncclInt32));
static_assert(Equal(DataType::kInt64, ncclInt64));
static_assert(Equal(DataType::kFloat16, ncclFloat16));
static_assert(Equal(DataType::kFloat32, ncclFloat32));
static_assert(Equal(DataType::kFloat64, ncclFloat64));
static_assert(Equal(DataType::kBfloat16, ncclBfloat16));

static_assert(sizeof(RedOp) == sizeof(ncclRedOp_t));
static_assert(Equal(RedOp::kSum, ncclSum));
static_assert(Equal(RedOp::kMax, ncclMax));

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == 1);
static_assert(kUniqueIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(kNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(kUndefined == NCCL_CONFIG_UNDEF_INT);

// A shorter configuration of an older version is a prefix of the newer one.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(alignof(Config) == alignof(ncclConfig_t));
#define MW_SAME_PLACE(ours, theirs)                                        \
  static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs)); \
  static_assert(sizeof(Config::ours) == sizeof(ncclConfig_t::theirs))
MW_SAME_PLACE(size, size);
MW_SAME_PLACE(magic, magic);
MW_SAME_PLACE(version, version);
MW_SAME_PLACE(blocking, blocking);
MW_SAME_PLACE(cga_cluster_size, cgaClusterSize);
MW_SAME_PLACE(min_ctas, minCTAs);
MW_SAME_PLACE(max_ctas, maxCTAs);
MW_SAME_PLACE(net_name, netName);
MW_SAME_PLACE(split_share, splitShare);
#undef MW_SAME_PLACE

constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(kTheirs.magic == kConfigMagic);
static_assert(kTheirs.blocking == kUndefined && kTheirs.splitShare == kUndefined);

// Handles are pointers and enums are passed as int, so that a signature is the same for the caller
// when it is the same after this.
template <typename T>
struct Abi {
  using type = T;
};
template <>
struct Abi<ncclComm_t> {
  using type = CommHandle;
};
template <>
struct Abi<ncclComm_t*> {
  using type = CommHandle*;
};
template <>
struct Abi<cudaStream_t> {
  using type = StreamHandle;
};
template <>
struct Abi<ncclResult_t> {
  using type = Code;
};
template <>
struct Abi<ncclResult_t*> {
  using type = Code*;
};
template <>
struct Abi<ncclDataType_t> {
  using type = DataType;
};
template <>
struct Abi<ncclRedOp_t> {
  using type = RedOp;
};
template <>
struct Abi<ncclUniqueId> {
  using type = UniqueId;
};
template <>
struct Abi<ncclUniqueId*> {
  using type = UniqueId*;
};
template <>
struct Abi<ncclConfig_t*> {
  using type = Config*;
};
template <typename R, typename... Args>
struct Abi<R (*)(Args...)> {
  using type = typename Abi<R>::type (*)(typename Abi<Args>::type...);
};

#define MW_SAME_SIGNATURE(name) \
  static_assert(std::is_same_v<decltype(Functions::name), Abi<decltype(&nccl##name)>::type>, #name)
MW_SAME_SIGNATURE(GetVersion);
MW_SAME_SIGNATURE(GetUniqueId);
MW_SAME_SIGNATURE(CommInitRankConfig);
MW_SAME_SIGNATURE(CommSplit);
MW_SAME_SIGNATURE(CommFinalize);
MW_SAME_SIGNATURE(CommDestroy);
MW_SAME_SIGNATURE(CommAbort);
MW_SAME_SIGNATURE(CommGetAsyncError);
MW_SAME_SIGNATURE(GetErrorString);
MW_SAME_SIGNATURE(GetLastError);
MW_SAME_SIGNATURE(GroupStart);
MW_SAME_SIGNATURE(GroupEnd);
MW_SAME_SIGNATURE(AllReduce);
MW_SAME_SIGNATURE(AllGather);
MW_SAME_SIGNATURE(ReduceScatter);
MW_SAME_SIGNATURE(Broadcast);
MW_SAME_SIGNATURE(Send);
MW_SAME_SIGNATURE(Recv);
#if NCCL_VERSION_CODE >= 22300
MW_SAME_SIGNATURE(CommInitRankScalable);
#endif
#if NCCL_VERSION_CODE >= 22800
MW_SAME_SIGNATURE(AlltoAll);
#endif
#undef MW_SAME_SIGNATURE

}  // namespace
}  // namespace meshwright::collective::nccl

#endif  // __has_include(<nccl.h>)
