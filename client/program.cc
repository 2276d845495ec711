#include "client/program.h"

#include <fmt/format.h>

#include <utility>

#include "ir/verify.h"

namespace meshwright::client {
namespace {

ir::Attrs FeedAttrs(const InputSpec& input) {
  ir::Attrs attrs = {{"source", input.name}};
  if (!input.batch) attrs.Set("batch", int64_t{0});
  return attrs;
}

}  // namespace

InputSpec OutputOf(std::string name, ir::TensorType type, std::string program, std::string output) {
  return {std::move(name),
          std::move(type),
          ir::InputFrom::kOutput,
          true,
          {std::move(program), std::move(output)}};
}

Result<ir::JobProgram> MakeProgram(const std::string& name, const std::vector<InputSpec>& inputs,
                                   const std::function<Status(Builder&, const Batch&)>& body,
                                   ProgramOptions options) {
  Builder builder(name, options.dtype);
  Batch batch;
  ir::JobProgram program;
  program.name = name;
  for (const InputSpec& input : inputs) {
    const ValueId fed = builder.AddOne(ir::Op::kFeed, {}, FeedAttrs(input), {input.type});
    if (!batch.emplace(input.name, fed).second) {
      return Fail(
          InvalidArgument(fmt::format("program '{}' has two inputs '{}'", name, input.name)));
    }
    if (input.from != ir::InputFrom::kData) program.inputs[input.name] = input.from;
    if (input.from == ir::InputFrom::kOutput) program.reads[input.name] = input.output;
  }
  MW_TRY(body(builder, batch));
  MW_ASSIGN_OR_RETURN(program.graph, builder.Finish());
  MW_TRY(ir::VerifyGraph(program.graph).WithContext(fmt::format("program '{}'", name)));
  if (!program.graph.outputs.empty()) return program;
  return Fail(InvalidArgument(
      fmt::format("program '{}' gives nothing out; name something with SetOutput", name)));
}

Result<ir::JobProgram> TrainedProgram(const std::vector<InputSpec>& inputs,
                                      const std::function<Loss(Builder&, const Batch&)>& body,
                                      ProgramOptions options) {
  const auto with_loss = [&](Builder& builder, const Batch& batch) {
    const Loss loss = body(builder, batch);
    builder.SetOutput("loss_sum", loss.loss_sum);
    builder.SetOutput("count", loss.count);
    return OkStatus();
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram program, MakeProgram("loss", inputs, with_loss, options));
  program.trained = true;
  return program;
}

}  // namespace meshwright::client
