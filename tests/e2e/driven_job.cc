#include "tests/e2e/driven_job.h"

#include <utility>
#include <vector>

#include "base/philox.h"
#include "client/program.h"
#include "client/trainer.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kRowsOfAStep = 8;
constexpr int64_t kWeights = 4;

}  // namespace

Result<ir::JobRequest> MakeDrivenJob(int64_t data, int64_t grace_s) {
  const std::vector<client::InputSpec> inputs = {{"x", {ir::DType::kF64, {kRowsOfAStep, kWeights}}},
                                                 {"y", {ir::DType::kI32, {kRowsOfAStep}}}};
  const client::ProgramOptions f64{.dtype = ir::DType::kF64};
  const auto logits = [](client::Builder& b, ValueId x) { return b.Linear(x, "head", 3); };
  MW_ASSIGN_OR_RETURN(ir::JobProgram loss, client::TrainedProgram(
                                               inputs,
                                               [&](client::Builder& b, const client::Batch& in) {
                                                 return b.CrossEntropy(logits(b, in.at("x")),
                                                                       in.at("y"));
                                               },
                                               f64));
  MW_ASSIGN_OR_RETURN(ir::JobProgram predict, client::MakeProgram(
                                                  "predict", {inputs[0]},
                                                  [&](client::Builder& b, const client::Batch& in) {
                                                    b.SetOutput("logits", logits(b, in.at("x")));
                                                    return OkStatus();
                                                  },
                                                  f64));
  ir::ParallelSpec parallel;
  parallel.data = data;
  client::JobBuilder builder("driven");
  return builder.Batch(kRowsOfAStep, 1)
      .DType(ir::DType::kF64)
      .Parallel(parallel)
      .Program(std::move(loss))
      .Program(std::move(predict))
      .Driver({ir::DriverKind::kClient, "", 0, grace_s})
      .SaveWeights(false)
      .Build();
}

client::Feeds DrivenRows(int64_t step) {
  std::vector<double> x;
  std::vector<int32_t> y;
  for (int64_t row = 0; row < kRowsOfAStep; ++row) {
    for (int64_t i = 0; i < kWeights; ++i) {
      const uint32_t bits = PhiloxBits(3, 5, static_cast<uint64_t>(step * kRowsOfAStep + row),
                                       static_cast<uint64_t>(i));
      x.push_back(static_cast<double>(bits) / 4294967296.0 - 0.5);
    }
    y.push_back(x[x.size() - kWeights] > 0 ? 1 : 0);
  }
  return {{"x", client::Tensor::Of<double>({kRowsOfAStep, kWeights}, x)},
          {"y", client::Tensor::Of<int32_t>({kRowsOfAStep}, y)}};
}

}  // namespace meshwright::testing
