#include "tests/emulated/compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <regex>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "tests/emulated/driver.h"

namespace meshwright::emulated {
namespace {

using device::cuda::Code;

constexpr Code kNoBinary = 209;  // cudaErrorNoKernelImageForDevice
constexpr Code kSymbolNotFound = 500;

constexpr const char* kLanguage = R"(
#define __global__
#define __device__
#define memcpy __builtin_memcpy
#define expf __builtin_expf
struct EmulatedPlace { unsigned x, y, z; };
static thread_local EmulatedPlace threadIdx, blockIdx, blockDim, gridDim;
)";

constexpr const char* kEntry = R"(
extern "C" void emulated_{0}(const void* arguments, unsigned blocks, unsigned threads) {{
  gridDim = {{blocks, 1, 1}};
  blockDim = {{threads, 1, 1}};
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {{
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {{
      {0}(*static_cast<const {1}*>(arguments));
    }}
  }}
}}
)";

std::string HostText(const std::string& text) {
  std::string host = kLanguage + text;
  const std::regex kernel(R"(extern "C" __global__ void (\w+)\(const (\w+) \w+\))");
  for (std::sregex_iterator it(text.begin(), text.end(), kernel), end; it != end; ++it) {
    host += fmt::format(fmt::runtime(kEntry), it->str(1), it->str(2));
  }
  return host;
}

// Shared objects and handles of this process; objects stay mapped until its end.
struct Objects {
  std::mutex mutex;
  std::map<std::string, std::string> by_text;  // text's digest -> object
  std::map<std::string, void*> handles;        // object's digest -> handle
  Result<TempDir> folder = TempDir::Make("meshwright-emulated");
};

Objects& TheObjects() {
  static Objects objects;
  return objects;
}

Result<std::string> CompileOnHost(const std::string& text) {
  Objects& objects = TheObjects();
  if (!objects.folder) return Fail(objects.folder.error());
  const std::string name = Sha256Hex(text).substr(0, 16);
  const std::string source = objects.folder->File(name + ".cc");
  const std::string object = objects.folder->File(name + ".so");
  const std::string log = objects.folder->File(name + ".log");
  MW_TRY(WriteFileAtomic(source, HostText(text)));
  const std::string command = fmt::format(
      "c++ -std=c++17 -O1 -w -shared -fPIC -fno-strict-aliasing -ffp-contract=off "
      "-o {} {} -lm > {} 2>&1",
      object, source, log);
  if (std::system(command.c_str()) != 0) {
    const Result<std::string> said = ReadFile(log);
    return Fail(InvalidArgument("the host's compiler: " + (said ? *said : "")));
  }
  return ReadFile(object);
}

using Entry = void (*)(const void*, unsigned, unsigned);

}  // namespace

std::string EmulatedCompiler::Version() const {
  return "emulated " + Sha256Hex(std::string(kLanguage) + kEntry).substr(0, 12);
}

Result<std::string> EmulatedCompiler::Compile(const ops::cuda::SourceCode& code) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++compiled_;
  }
  Objects& objects = TheObjects();
  const std::lock_guard<std::mutex> lock(objects.mutex);
  std::string& object = objects.by_text[Sha256Hex(code.text)];
  if (object.empty()) {
    MW_ASSIGN_OR_RETURN(object, CompileOnHost(code.text));
  }
  return object;
}

Code EmulatedCompiler::Load(std::string_view binary, ops::cuda::ModuleHandle* module) {
  Objects& objects = TheObjects();
  const std::lock_guard<std::mutex> lock(objects.mutex);
  const std::string digest = Sha256Hex(binary);
  void*& handle = objects.handles[digest];
  if (handle == nullptr && objects.folder &&
      binary.substr(0, 4) ==
          "\x7f"
          "ELF") {
    const std::string path = objects.folder->File(digest + ".loaded.so");
    if (WriteFileAtomic(path, binary).ok()) handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) return kNoBinary;
  *module = handle;
  const std::lock_guard<std::mutex> own(mutex_);
  ++loaded_;
  return device::cuda::kSuccess;
}

Code EmulatedCompiler::Unload(ops::cuda::ModuleHandle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --loaded_;
  return device::cuda::kSuccess;
}

Code EmulatedCompiler::Find(ops::cuda::ModuleHandle module, const char* kernel,
                            ops::cuda::FunctionHandle* function) {
  *function = ::dlsym(module, fmt::format("emulated_{}", kernel).c_str());
  return *function == nullptr ? kSymbolNotFound : device::cuda::kSuccess;
}

Code EmulatedCompiler::Launch(ops::cuda::FunctionHandle function, const ops::cuda::KernelCall& call,
                              device::cuda::StreamHandle stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++launched_;
  }
  // Words, so that the copy is aligned as the fields are.
  std::vector<uint64_t> kept(static_cast<size_t>((call.argument_bytes + 7) / 8));
  std::memcpy(kept.data(), call.arguments, static_cast<size_t>(call.argument_bytes));
  const auto entry = reinterpret_cast<Entry>(function);
  const auto blocks = static_cast<unsigned>(call.blocks);
  const auto threads = static_cast<unsigned>(call.threads);
  return static_cast<Stream*>(stream)->Push([entry, blocks, threads, kept = std::move(kept)] {
    entry(kept.data(), blocks, threads);
    return true;
  });
}

int EmulatedCompiler::compiled() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return compiled_;
}

int EmulatedCompiler::launched() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return launched_;
}

int EmulatedCompiler::loaded() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return loaded_;
}

}  // namespace meshwright::emulated
