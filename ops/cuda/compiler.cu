// The compiler of generated kernels: NVRTC, and the runtime's libraries of kernels (CUDA 12 and
// later), which load binaries without the driver's own interface.
#include "ops/cuda/compiler.h"

#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include <memory>
#include <string>

#include "ops/cuda/plugin_tools.h"

namespace meshwright::ops::cuda {
namespace {

using device::cuda::Code;

// Leaves no code behind for a cudaGetLastError() of others.
Code Clear(cudaError_t code) {
  if (code != cudaSuccess) (void)cudaGetLastError();
  return static_cast<Code>(code);
}

std::string NvrtcText(nvrtcResult result, const char* what) {
  return std::string(what) + ": " + nvrtcGetErrorString(result);
}

class Program {
 public:
  Program() = default;
  ~Program() {
    if (program_ != nullptr) nvrtcDestroyProgram(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcProgram* place() { return &program_; }
  nvrtcProgram get() const { return program_; }

  std::string Log() const {
    size_t bytes = 0;
    if (nvrtcGetProgramLogSize(program_, &bytes) != NVRTC_SUCCESS || bytes == 0) return "";
    std::string log(bytes, '\0');
    if (nvrtcGetProgramLog(program_, log.data()) != NVRTC_SUCCESS) return "";
    log.resize(bytes - 1);  // its terminator
    return log;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

class NvrtcCompiler final : public Compiler {
 public:
  std::string Version() const override {
    int major = 0;
    int minor = 0;
    nvrtcVersion(&major, &minor);
    return "nvrtc " + std::to_string(major) + "." + std::to_string(minor);
  }

  Result<std::string> Compile(const SourceCode& code) override {
    Program program;
    nvrtcResult result =
        nvrtcCreateProgram(program.place(), code.text.c_str(), "generated.cu", 0, nullptr, nullptr);
    if (result != NVRTC_SUCCESS) return Fail(Internal(NvrtcText(result, "nvrtcCreateProgram")));
    const std::string architecture = "--gpu-architecture=" + code.architecture;
    std::vector<const char*> options = {architecture.c_str()};
    for (const std::string& option : code.options) options.push_back(option.c_str());
    result = nvrtcCompileProgram(program.get(), static_cast<int>(options.size()), options.data());
    if (result == NVRTC_ERROR_INVALID_OPTION) {
      return Fail(Unimplemented(NvrtcText(result, "nvrtcCompileProgram") + " for " + architecture +
                                ": " + program.Log()));
    }
    if (result != NVRTC_SUCCESS) {
      return Fail(InvalidArgument(NvrtcText(result, "nvrtcCompileProgram") + ": " + program.Log()));
    }
    size_t bytes = 0;
    result = nvrtcGetCUBINSize(program.get(), &bytes);
    std::string binary(bytes, '\0');
    if (result == NVRTC_SUCCESS) result = nvrtcGetCUBIN(program.get(), binary.data());
    if (result != NVRTC_SUCCESS) return Fail(Internal(NvrtcText(result, "nvrtcGetCUBIN")));
    return binary;
  }

  Code Load(std::string_view binary, ModuleHandle* module) override {
    cudaLibrary_t library = nullptr;
    const cudaError_t code =
        cudaLibraryLoadData(&library, binary.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    *module = library;
    return Clear(code);
  }

  Code Unload(ModuleHandle module) override {
    return Clear(cudaLibraryUnload(static_cast<cudaLibrary_t>(module)));
  }

  Code Find(ModuleHandle module, const char* kernel, FunctionHandle* function) override {
    cudaKernel_t found = nullptr;
    const cudaError_t code =
        cudaLibraryGetKernel(&found, static_cast<cudaLibrary_t>(module), kernel);
    *function = found;
    return Clear(code);
  }

  Code Launch(FunctionHandle function, const KernelCall& call,
              device::cuda::StreamHandle stream) override {
    void* arguments[] = {const_cast<void*>(call.arguments)};
    return Clear(cudaLaunchKernel(static_cast<const void*>(function),
                                  dim3(static_cast<unsigned>(call.blocks)),
                                  dim3(static_cast<unsigned>(call.threads)), arguments, 0,
                                  static_cast<cudaStream_t>(stream)));
  }
};

}  // namespace

std::unique_ptr<Compiler> MakeNvrtcCompiler() { return std::make_unique<NvrtcCompiler>(); }

}  // namespace meshwright::ops::cuda
