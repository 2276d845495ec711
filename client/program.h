// Programs of a job, written as functions on a graph builder.
//
//   JobBuilder builder("iris");
//   builder.Batch(32, 1).Driver({.kind = ir::DriverKind::kClient});
//   const std::vector<InputSpec> rows = {{"x", {ir::DType::kF32, {32, 4}}},
//                                        {"y", {ir::DType::kI32, {32}}}};
//   MW_ASSIGN_OR_RETURN(auto loss, TrainedProgram(rows, [](Builder& b, const Batch& in) {
//     return b.CrossEntropy(b.Linear(in.at("x"), "head", 3), in.at("y"));
//   }));
//   MW_ASSIGN_OR_RETURN(auto predict, MakeProgram("predict", {rows[0]}, [](Builder& b, const Batch&
//   in) {
//     b.SetOutput("logits", b.Linear(in.at("x"), "head", 3));
//     return OkStatus();
//   }));
//   MW_ASSIGN_OR_RETURN(auto job, builder.Program(loss).Program(predict).Build());
//
// A param is the same weight in every program that names it. Thread rule: the functions are called
// once, on the calling thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/layers.h"
#include "ir/graph.h"
#include "ir/job.h"

namespace meshwright::client {

using Batch = std::map<std::string, ValueId, std::less<>>;

// A named, typed input. The first dim is that of the batch, unless batch is false: then there is
// one value for the whole step, of any shape.
struct InputSpec {
  std::string name;
  ir::TensorType type;
  ir::InputFrom from = ir::InputFrom::kClient;
  bool batch = true;
  ir::ProgramOutput output = {};  // of InputFrom::kOutput
};

// An input that is what another program gave out when it was last called. It stays on the devices:
// nothing travels.
//   MakeProgram("head", {OutputOf("h", {ir::DType::kF32, {32, 64}}, "encode", "hidden")}, ..)
InputSpec OutputOf(std::string name, ir::TensorType type, std::string program, std::string output);

struct ProgramOptions {
  ir::DType dtype = ir::DType::kF32;  // of what the builder makes
};

// `body` gives out what it names with Builder::SetOutput: scalars are reported, tensors go to who
// asks. A scalar that is a mean over its batch says so, ir::Reduction::kMean: over several batches
// it is averaged, others are summed. Errors: what the body did wrong; kInvalidArgument: an input
// twice, or nothing given out.
Result<ir::JobProgram> MakeProgram(const std::string& name, const std::vector<InputSpec>& inputs,
                                   const std::function<Status(Builder&, const Batch&)>& body,
                                   ProgramOptions options = {});

// The program that the job trains, named "loss"; further outputs of the body are reported with
// every step. Errors: as MakeProgram.
Result<ir::JobProgram> TrainedProgram(const std::vector<InputSpec>& inputs,
                                      const std::function<Loss(Builder&, const Batch&)>& body,
                                      ProgramOptions options = {});

}  // namespace meshwright::client
