// NVRTC takes the generated text, for every architecture of the plugin. It needs no GPU; where
// there is no toolkit the test is skipped. The library is opened by name: no test links CUDA.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "ops/cuda/chain_source.h"
#include "tests/unit/ops/cuda_fixture.h"

namespace meshwright::ops {
namespace {

using ir::DType;
using ir::Op;

class Nvrtc {
 public:
  Nvrtc() {
    for (const char* name :
         {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      if (library_ == nullptr) library_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }
  bool there() const { return library_ != nullptr; }

  // The log; empty: the text is fine.
  std::string Compile(const std::string& text, const std::string& architecture) {
    void* program = nullptr;
    using Create =
        int (*)(void**, const char*, const char*, int, const char* const*, const char* const*);
    using Run = int (*)(void*, int, const char* const*);
    using Size = int (*)(void*, size_t*);
    using Log = int (*)(void*, char*);
    using Destroy = int (*)(void**);
    Find<Create>("nvrtcCreateProgram")(&program, text.c_str(), "generated.cu", 0, nullptr, nullptr);
    const std::string option = "--gpu-architecture=" + architecture;
    const std::vector<const char*> options = {option.c_str(), "--std=c++17", "--fmad=false"};
    const int code =
        Find<Run>("nvrtcCompileProgram")(program, static_cast<int>(options.size()), options.data());
    size_t bytes = 0;
    Find<Size>("nvrtcGetProgramLogSize")(program, &bytes);
    std::string log(bytes, '\0');
    Find<Log>("nvrtcGetProgramLog")(program, log.data());
    Find<Destroy>("nvrtcDestroyProgram")(&program);
    return code == 0 ? "" : "error " + std::to_string(code) + ": " + log;
  }

 private:
  template <typename F>
  F Find(const char* name) {
    return reinterpret_cast<F>(::dlsym(library_, name));
  }
  void* library_ = nullptr;
};

std::string SourceOf(const KernelSpec& spec) {
  const Result<ir::Graph> body = ir::ExpandFused(spec.attrs, spec.inputs);
  if (!body) return body.error().ToString();
  const auto plan = cuda::PlanChain(*body, -1, spec.coords);
  return plan && *plan ? cuda::ChainSource(**plan) : "no plan";
}

// All gates, casts, masks and layouts of operands between them.
std::vector<std::string> Sources() {
  const ir::Attrs rows = {{"dims", std::vector<int64_t>{0}}};
  const ir::Attrs mask = {{"rate", 0.1}, {"name", "mask"}};
  std::vector<std::string> sources;
  for (const int64_t width : {32, 31}) {
    const std::vector<ir::TensorType> types = {
        {DType::kBF16, {64, width}}, {DType::kBF16, {width}}, {DType::kF32, {64, width}}};
    sources.push_back(SourceOf(FusedSpec(types, {{{Op::kAdd, {0, 1}, {}},
                                                  {Op::kDropout, {3}, mask},
                                                  {Op::kSilu, {4}, {}},
                                                  {Op::kCast, {5}, {{"dtype", "f32"}}},
                                                  {Op::kAdd, {2, 6}, {}},
                                                  {Op::kGeluGrad, {7, 2}, {}},
                                                  {Op::kReduceSum, {8}, rows}},
                                                 {4, 8, 9}})));
    sources.push_back(SourceOf(FusedSpec({{DType::kF16, {64, width}}, {DType::kF16, {width}}},
                                         {{{Op::kMul, {0, 1}, {}},
                                           {Op::kGelu, {2}, {}},
                                           {Op::kSiluGrad, {3, 2}, {}},
                                           {Op::kScale, {4}, {{"factor", 0.5}}}},
                                          {5}})));
  }
  return sources;
}

TEST(Nvrtc, TakesTheGeneratedTextForEveryArchitecture) {
  Nvrtc nvrtc;
  if (!nvrtc.there()) GTEST_SKIP() << "there is no libnvrtc on this machine";
  for (const std::string& source : Sources()) {
    for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
      EXPECT_EQ(nvrtc.Compile(source, architecture), "") << architecture << "\n" << source;
    }
  }
}

TEST(Nvrtc, RefusesTextThatIsNoKernel) {
  Nvrtc nvrtc;
  if (!nvrtc.there()) GTEST_SKIP() << "there is no libnvrtc on this machine";
  EXPECT_NE(nvrtc.Compile("__global__ void chain() { return 1; }", "sm_90"), "");
}

}  // namespace
}  // namespace meshwright::ops
