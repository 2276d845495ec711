// segments: the number of separators before each place of a row.
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {

KernelResult MakeSegments(const KernelSpec& spec) {
  const int64_t width = spec.inputs[0].dims.back();
  const auto separator = static_cast<int32_t>(spec.attrs.Int("separator"));
  return MakeFunctionKernel(
      [width, separator](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* ids = inputs[0].as<int32_t>();
        int32_t segment = 0;
        for (int64_t i = 0; i < inputs[0].elements(); ++i) {
          if (i % width == 0) segment = 0;
          outputs[0].as<int32_t>()[i] = segment;
          if (ids[i] == separator) ++segment;
        }
        return {};
      });
}

}  // namespace meshwright::ops::reference
