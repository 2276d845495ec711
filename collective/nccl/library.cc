#include "collective/nccl/library.h"

#include <fmt/format.h>

#include "collective/nccl/log.h"

namespace meshwright::collective::nccl {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kSuccess:
      return "ncclSuccess";
    case Code::kUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case Code::kSystemError:
      return "ncclSystemError";
    case Code::kInternalError:
      return "ncclInternalError";
    case Code::kInvalidArgument:
      return "ncclInvalidArgument";
    case Code::kInvalidUsage:
      return "ncclInvalidUsage";
    case Code::kRemoteError:
      return "ncclRemoteError";
    case Code::kInProgress:
      return "ncclInProgress";
  }
  return "an unknown error of NCCL";
}

Config ConfigOf(const CommOptions& options) {
  Config config;
  config.blocking = 0;
  config.split_share = options.split_share ? 1 : 0;
  if (options.max_ctas > 0) config.max_ctas = options.max_ctas;
  return config;
}

int64_t DataTypeBytes(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

std::string VersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Status ErrorOf(Library& library, Code code, const std::string& what) {
  std::string text = fmt::format("{}: {} ({})", what, CodeName(code), library.GetErrorString(code));
  const std::string last = library.GetLastError(nullptr);
  if (!last.empty()) text += fmt::format("; NCCL says: {}", last);
  const std::string path = library.log_path();
  if (!path.empty()) {
    const std::string tail = LogTail(path);
    text += tail.empty() ? fmt::format("; its log is {}", path)
                         : fmt::format("; its log {} ends with: {}", path, tail);
  }
  switch (code) {
    case Code::kSystemError:
    case Code::kUnhandledCudaError:
    case Code::kRemoteError:
      return Unavailable(text).WithBlame(code == Code::kRemoteError ? Blame::kPeerVictim
                                                                    : Blame::kInfra);
    default:
      return Internal(text);
  }
}

}  // namespace meshwright::collective::nccl
