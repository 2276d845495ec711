// Compiler: text of kernels to binaries of one architecture, and launches of what is in them.
//
// The plugin implements it with NVRTC and the runtime's libraries of kernels (compiler.cu); tests
// compile the same text for the host. A kernel of generated code has one argument: a struct by
// value.
//
// Thread rule: thread-safe; Launch() is on the device that the calling thread uses. Modules and
// functions are of the whole process and work on every device of their architecture.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cuda/driver.h"

namespace meshwright::ops::cuda {

using ModuleHandle = void*;
using FunctionHandle = void*;

struct SourceCode {
  std::string text;
  std::string architecture;          // "sm_90"
  std::vector<std::string> options;  // of NVRTC, beyond the architecture
};

// Blocks and threads in one dimension; arguments: `argument_bytes` bytes, of which a copy is kept.
struct KernelCall {
  int64_t blocks = 1;
  int64_t threads = 1;
  const void* arguments = nullptr;
  int64_t argument_bytes = 0;
};

class Compiler {
 public:
  virtual ~Compiler() = default;

  // What binaries depend on beside the source: "nvrtc 13.0".
  virtual std::string Version() const = 0;
  // Needs no GPU. Errors: kInvalidArgument with the compiler's log; kUnimplemented for an
  // architecture that it does not know.
  virtual Result<std::string> Compile(const SourceCode& code) = 0;

  virtual device::cuda::Code Load(std::string_view binary, ModuleHandle* module) = 0;
  virtual device::cuda::Code Unload(ModuleHandle module) = 0;
  virtual device::cuda::Code Find(ModuleHandle module, const char* kernel,
                                  FunctionHandle* function) = 0;
  virtual device::cuda::Code Launch(FunctionHandle function, const KernelCall& call,
                                    device::cuda::StreamHandle stream) = 0;
};

}  // namespace meshwright::ops::cuda
