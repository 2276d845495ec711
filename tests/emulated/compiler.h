// EmulatedCompiler: generated kernels on the host.
//
// The text that NVRTC would get is compiled by the host's compiler into a shared object, behind a
// few lines that define what it uses of CUDA's language; threads run one after the other, so a
// kernel may have no barriers. A launch is work of an emulated stream (driver.h). Objects are kept
// for the life of the process by their text: a suite compiles each text once.
//
// Thread rule: thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "ops/cuda/compiler.h"

namespace meshwright::emulated {

class EmulatedCompiler final : public ops::cuda::Compiler {
 public:
  // Of the lines around the text: with the text they say what comes out.
  std::string Version() const override;
  Result<std::string> Compile(const ops::cuda::SourceCode& code) override;
  device::cuda::Code Load(std::string_view binary, ops::cuda::ModuleHandle* module) override;
  device::cuda::Code Unload(ops::cuda::ModuleHandle module) override;
  device::cuda::Code Find(ops::cuda::ModuleHandle module, const char* kernel,
                          ops::cuda::FunctionHandle* function) override;
  device::cuda::Code Launch(ops::cuda::FunctionHandle function, const ops::cuda::KernelCall& call,
                            device::cuda::StreamHandle stream) override;

  // How often Compile() and Launch() were called and how many modules are loaded.
  int compiled() const;
  int launched() const;
  int loaded() const;

 private:
  mutable std::mutex mutex_;
  int compiled_ = 0;
  int launched_ = 0;
  int loaded_ = 0;
};

}  // namespace meshwright::emulated
