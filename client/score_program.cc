#include "client/score_program.h"

#include <vector>

namespace meshwright::client {

Result<ir::JobProgram> ScoreProgram(const GraphShape& shape, const TrainerFunctions& functions) {
  if (!functions.predict) {
    return Fail(InvalidArgument("program 'score': TrainerFunctions.predict is empty"));
  }
  if (functions.inputs || functions.corrupt) {
    return Fail(Unimplemented(
        "the model does not read a text from the left to the right, so it says no likelihood of "
        "one; `meshwright predict` gives its logits"));
  }
  const Dims dims = {shape.batch, shape.sequence};
  const std::vector<InputSpec> inputs = {{"tokens", {ir::DType::kI32, dims}},
                                         {"labels", {ir::DType::kI32, dims}},
                                         {"counts", {shape.dtype, dims}}};
  const auto body = [&](Builder& b, const Batch& in) {
    const ValueId counts = in.at("counts");
    const ValueId logits = functions.predict(b, {{"tokens", in.at("tokens")}});
    const ValueId places = b.Reshape(in.at("labels"), {shape.batch, shape.sequence, 1});
    const ValueId picked = b.Reshape(b.Gather(b.LogSoftmax(logits), places, 2), dims);
    b.SetOutput("log_likelihood", b.ReduceSum(b.MulBy(picked, counts), {1}));
    const ValueId hits = b.Equal(b.ArgMax(logits, 2), in.at("labels"));
    b.SetOutput("hits", b.ReduceSum(b.MulBy(b.Cast(hits, shape.dtype), counts), {1}));
    return OkStatus();
  };
  return MakeProgram(kScoreProgram, inputs, body, {shape.dtype});
}

}  // namespace meshwright::client
