// The NCCL of the system, loaded when it is asked for.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "collective/nccl/library.h"
#include "collective/nccl/log.h"

namespace meshwright::collective::nccl {
namespace {

constexpr const char* kDefaultPath = "libnccl.so.2";

class DynamicLibrary final : public Library {
 public:
  DynamicLibrary(const Functions& functions, std::string log_path)
      : nccl_(functions), log_path_(std::move(log_path)) {}

  Code GetVersion(int* version) override { return nccl_.GetVersion(version); }
  Code GetUniqueId(UniqueId* id) override { return nccl_.GetUniqueId(id); }
  Code CommInitRankConfig(CommHandle* comm, int ranks, const UniqueId& id, int rank,
                          const CommOptions& options) override {
    Config config = ConfigOf(options);
    return nccl_.CommInitRankConfig(comm, ranks, id, rank, &config);
  }
  Code CommInitRankScalable(CommHandle* comm, int ranks, std::span<const UniqueId> ids, int rank,
                            const CommOptions& options) override {
    Config config = ConfigOf(options);
    std::vector<UniqueId> copies(ids.begin(), ids.end());
    // Older ones start slowly from one listener, but start.
    if (nccl_.CommInitRankScalable == nullptr) {
      return nccl_.CommInitRankConfig(comm, ranks, copies.front(), rank, &config);
    }
    return nccl_.CommInitRankScalable(comm, ranks, rank, static_cast<int>(copies.size()),
                                      copies.data(), &config);
  }
  Code CommSplit(CommHandle parent, int color, int key, CommHandle* comm,
                 const CommOptions& options) override {
    Config config = ConfigOf(options);
    return nccl_.CommSplit(parent, color, key, comm, &config);
  }
  Code CommFinalize(CommHandle comm) override { return nccl_.CommFinalize(comm); }
  Code CommDestroy(CommHandle comm) override { return nccl_.CommDestroy(comm); }
  Code CommAbort(CommHandle comm) override { return nccl_.CommAbort(comm); }
  Code CommGetAsyncError(CommHandle comm, Code* state) override {
    return nccl_.CommGetAsyncError(comm, state);
  }
  std::string GetErrorString(Code code) override { return Text(nccl_.GetErrorString(code)); }
  std::string GetLastError(CommHandle comm) override { return Text(nccl_.GetLastError(comm)); }
  Code GroupStart() override { return nccl_.GroupStart(); }
  Code GroupEnd() override { return nccl_.GroupEnd(); }

  Code AllReduce(const Transfer& t, RedOp op) override {
    return nccl_.AllReduce(t.input, t.output, t.count, t.type, op, t.comm, t.stream);
  }
  Code AllGather(const Transfer& t) override {
    return nccl_.AllGather(t.input, t.output, t.count, t.type, t.comm, t.stream);
  }
  Code ReduceScatter(const Transfer& t, RedOp op) override {
    return nccl_.ReduceScatter(t.input, t.output, t.count, t.type, op, t.comm, t.stream);
  }
  Code AllToAll(const Transfer& t, int ranks) override {
    if (nccl_.AlltoAll != nullptr) {
      return nccl_.AlltoAll(t.input, t.output, t.count, t.type, t.comm, t.stream);
    }
    const size_t block = t.count * static_cast<size_t>(DataTypeBytes(t.type));
    return AsOne([&](const auto& keep) {
      for (int peer = 0; peer < ranks; ++peer) {
        const size_t offset = static_cast<size_t>(peer) * block;
        if (!keep(nccl_.Send(static_cast<const char*>(t.input) + offset, t.count, t.type, peer,
                             t.comm, t.stream)) ||
            !keep(nccl_.Recv(static_cast<char*>(t.output) + offset, t.count, t.type, peer, t.comm,
                             t.stream))) {
          return;
        }
      }
    });
  }
  Code Exchange(const Transfer& t, int to, int from) override {
    return AsOne([&](const auto& keep) {
      if (!keep(nccl_.Send(t.input, t.count, t.type, to, t.comm, t.stream))) return;
      (void)keep(nccl_.Recv(t.output, t.count, t.type, from, t.comm, t.stream));
    });
  }
  Code Broadcast(const Transfer& t, int root) override {
    return nccl_.Broadcast(t.input, t.output, t.count, t.type, root, t.comm, t.stream);
  }
  Code Send(const Transfer& t, int peer) override {
    return nccl_.Send(t.input, t.count, t.type, peer, t.comm, t.stream);
  }
  Code Recv(const Transfer& t, int peer) override {
    return nccl_.Recv(t.output, t.count, t.type, peer, t.comm, t.stream);
  }
  std::string log_path() const override { return log_path_; }

 private:
  // Calls body(keep): calls that belong together. keep(code) says whether the call was taken.
  template <typename Body>
  Code AsOne(const Body& body) {
    Code failed = nccl_.GroupStart();
    if (failed != Code::kSuccess) return failed;
    body([&](Code code) {
      if (code != Code::kSuccess && code != Code::kInProgress) failed = code;
      return failed == Code::kSuccess;
    });
    const Code ended = nccl_.GroupEnd();
    return failed == Code::kSuccess ? ended : failed;
  }

  static std::string Text(const char* text) { return text == nullptr ? "" : text; }

  const Functions nccl_;
  const std::string log_path_;
};

// Looks functions up and keeps the name of the first that is missing.
class Lookup {
 public:
  explicit Lookup(void* library) : library_(library) {}

  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  template <typename Function>
  void FindNewer(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

Result<Functions> FindFunctions(void* library, const std::string& path) {
  Functions functions;
  Lookup lookup(library);
  lookup.Find("ncclGetVersion", &functions.GetVersion);
  lookup.Find("ncclGetUniqueId", &functions.GetUniqueId);
  lookup.Find("ncclCommInitRankConfig", &functions.CommInitRankConfig);
  lookup.FindNewer("ncclCommInitRankScalable", &functions.CommInitRankScalable);
  lookup.Find("ncclCommSplit", &functions.CommSplit);
  lookup.Find("ncclCommFinalize", &functions.CommFinalize);
  lookup.Find("ncclCommDestroy", &functions.CommDestroy);
  lookup.Find("ncclCommAbort", &functions.CommAbort);
  lookup.Find("ncclCommGetAsyncError", &functions.CommGetAsyncError);
  lookup.Find("ncclGetErrorString", &functions.GetErrorString);
  lookup.Find("ncclGetLastError", &functions.GetLastError);
  lookup.Find("ncclGroupStart", &functions.GroupStart);
  lookup.Find("ncclGroupEnd", &functions.GroupEnd);
  lookup.Find("ncclAllReduce", &functions.AllReduce);
  lookup.Find("ncclAllGather", &functions.AllGather);
  lookup.Find("ncclReduceScatter", &functions.ReduceScatter);
  lookup.FindNewer("ncclAlltoAll", &functions.AlltoAll);
  lookup.Find("ncclBroadcast", &functions.Broadcast);
  lookup.Find("ncclSend", &functions.Send);
  lookup.Find("ncclRecv", &functions.Recv);
  if (!lookup.missing().empty()) {
    return Fail(
        FailedPrecondition(fmt::format("{} has no {}: NCCL {} or newer is needed (2.28 is tested)",
                                       path, lookup.missing(), VersionText(kOldestVersion))));
  }
  return functions;
}

}  // namespace

void DisableSwitchSums() {
  constexpr int kKeepTheUsers = 0;
  (void)::setenv("NCCL_NVLS_ENABLE", "0", kKeepTheUsers);
}

// The library is never unloaded: its threads and the driver hold on to it.
Result<std::unique_ptr<Library>> OpenLibrary(const std::string& path) {
  const std::string name = path.empty() ? kDefaultPath : path;
  const std::string log_path = ConfigureLog();
  DisableSwitchSums();
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Fail(FailedPrecondition(fmt::format(
        "NCCL cannot be loaded from {}: {}; install it (package libnccl2, or nvidia-nccl-cu13 of "
        "pip) and let LD_LIBRARY_PATH name its folder",
        name, why == nullptr ? "unknown error" : why)));
  }
  MW_ASSIGN_OR_RETURN(const Functions functions, FindFunctions(handle, name));
  auto library = std::make_unique<DynamicLibrary>(functions, log_path);
  int version = 0;
  if (const Code code = library->GetVersion(&version); code != Code::kSuccess) {
    return Fail(ErrorOf(*library, code, "asking NCCL for its version"));
  }
  if (version < kOldestVersion) {
    return Fail(FailedPrecondition(fmt::format("{} is NCCL {}, {} or newer is needed", name,
                                               VersionText(version), VersionText(kOldestVersion))));
  }
  return std::unique_ptr<Library>(std::move(library));
}

}  // namespace meshwright::collective::nccl
