// sum: the operands one after the other over flat ranges of f32.
#include <cstring>

#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {

KernelResult MakeSum(const KernelSpec&) {
  return MakeFunctionKernel([](const RunContext& context, Inputs inputs,
                               Outputs outputs) -> Status {
    float* out = outputs[0].as<float>();
    ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      if (inputs.size() == 1) {
        std::memmove(out + begin, inputs[0].as<float>() + begin,
                     static_cast<size_t>(end - begin) * sizeof(float));
        return;
      }
      VecAdd(inputs[0].as<float>() + begin, inputs[1].as<float>() + begin, out + begin,
             end - begin);
      for (size_t k = 2; k < inputs.size(); ++k) {
        VecAdd(out + begin, inputs[k].as<float>() + begin, out + begin, end - begin);
      }
    });
    return {};
  });
}

}  // namespace meshwright::ops::cpu
