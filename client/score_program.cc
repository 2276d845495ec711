#include "client/score_program.h"

#include <vector>

namespace meshwright::client {

namespace {

constexpr const char* kSource = "source";
constexpr const char* kTarget = "target";

// Whether rows are a source and a target.
bool ArePairs(const std::vector<InputSpec>& rows) {
  return rows.size() == 2 && rows[0].name == kSource && rows[1].name == kTarget;
}

// logits [b, t, v], labels and counts [b, t]
void GiveOut(Builder& b, ValueId logits, ValueId labels, ValueId counts, ir::DType dtype) {
  const Dims dims = b.dims(labels);
  if (dims.size() != 2) return;  // after an error
  const ValueId places = b.Reshape(labels, {dims[0], dims[1], 1});
  const ValueId picked = b.Reshape(b.Gather(b.LogSoftmax(logits), places, 2), dims);
  b.SetOutput("log_likelihood", b.ReduceSum(b.MulBy(picked, counts), {1}));
  const ValueId hits = b.Equal(b.ArgMax(logits, 2), labels);
  b.SetOutput("hits", b.ReduceSum(b.MulBy(b.Cast(hits, dtype), counts), {1}));
}

}  // namespace

Result<ir::JobProgram> ScoreProgram(const GraphShape& shape, const TrainerFunctions& functions) {
  if (!functions.predict) {
    return Fail(InvalidArgument("program 'score': TrainerFunctions.predict is empty"));
  }
  std::vector<InputSpec> inputs;
  if (functions.inputs) inputs = functions.inputs(shape);
  if (functions.corrupt || (functions.inputs && !ArePairs(inputs))) {
    return Fail(Unimplemented(
        "the model does not read a text from the left to the right, so it says no likelihood of "
        "one; `meshwright predict` gives its logits"));
  }
  const bool pairs = !inputs.empty();
  if (!pairs) {
    const ir::TensorType tokens{ir::DType::kI32, {shape.batch, shape.sequence}};
    inputs = {{"tokens", tokens}, {"labels", tokens}};
  }
  const ir::Dims labels = inputs[1].type.dims;
  inputs.push_back({"counts", {shape.dtype, labels}});
  const auto body = [&](Builder& b, const Batch& in) {
    const Batch asked = pairs ? Batch{{kSource, in.at(kSource)}, {kTarget, in.at(kTarget)}}
                              : Batch{{"tokens", in.at("tokens")}};
    GiveOut(b, functions.predict(b, asked), in.at(pairs ? kTarget : "labels"), in.at("counts"),
            shape.dtype);
    return OkStatus();
  };
  return MakeProgram(kScoreProgram, inputs, body, {shape.dtype});
}

}  // namespace meshwright::client
