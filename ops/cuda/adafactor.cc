// adafactor: six launches, between which the sums of rows lie in scratch.
#include "ir/loss_scale.h"
#include "ops/cuda/cuda.h"
#include "ops/optimizer_math.h"

namespace meshwright::ops::cuda {

KernelResult MakeAdafactor(const Maker& maker) {
  const AdafactorConfig config = AdafactorConfig::From(maker.spec.attrs, maker.spec.inputs[0].dims);
  AdafactorArgs args;
  args.matrices = config.matrices;
  args.row_count = config.rows;
  args.column_count = config.columns;
  args.decay_rate = config.decay_rate;
  args.clip_threshold = config.clip_threshold;
  args.weight_decay = config.weight_decay;
  args.scales = config.scale_parameter;
  args.skips = maker.spec.attrs.Int(ir::kSkipsAttr) != 0;
  args.type = TypeOf(maker.spec.inputs[0]);
  constexpr int64_t kScalars = 2;
  const int64_t floats = config.matrices * (2 * config.rows + 1) + kScalars;
  return MakeCall(maker, floats * static_cast<int64_t>(sizeof(float)),
                  [args](Kernels& kernels, StreamHandle stream, const RunContext& context,
                         Inputs inputs, Outputs outputs) {
                    AdafactorArgs call = args;
                    call.p = inputs[0].data;
                    call.g = inputs[1].data;
                    call.rows = inputs[2].as<float>();
                    call.columns = inputs[3].as<float>();
                    call.multiplier = inputs[4].as<float>();
                    call.lr = inputs[5].as<float>();
                    call.p_to = outputs[0].data;
                    call.rows_to = outputs[1].as<float>();
                    call.columns_to = outputs[2].as<float>();
                    call.state = context.state;
                    call.scratch = ScratchOf<float>(context);
                    return kernels.Adafactor(call, stream);
                  });
}

}  // namespace meshwright::ops::cuda
