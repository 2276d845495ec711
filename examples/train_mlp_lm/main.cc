// A language model of one's own: collate, loss and predict are written here, the cluster does the
// rest.
//
//   train_mlp_lm TEXT_FILE [DATA_DEGREE] [STEPS]        controller: $MESHWRIGHT_ADDRESS or
//   127.0.0.1:7700
//
// The model reads the last four bytes and predicts the next one with an MLP.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client/client.h"
#include "client/trainer.h"

namespace {

using meshwright::Result;
using meshwright::ValueId;
namespace client = meshwright::client;
namespace ir = meshwright::ir;

constexpr int64_t kContext = 4;
constexpr int64_t kWidth = 32;
constexpr int64_t kHidden = 128;

// window i32[b, s+1] -> the bytes at distance 1..kContext before each label.
client::Batch Collate(client::Builder& b, ValueId window) {
  const int64_t count = b.dims(window)[1] - kContext;
  client::Batch batch;
  for (int64_t i = 0; i < kContext; ++i) {
    batch["byte" + std::to_string(i)] = b.Slice(window, 1, i, count);
  }
  batch["labels"] = b.Slice(window, 1, kContext, count);
  return batch;
}

// Each position has its own first matrix; their sum is the hidden state.
ValueId Predict(client::Builder& b, const client::Batch& batch) {
  b.SetLayer(0);
  const ValueId table = b.Param("embedding", {256, kWidth});
  ValueId hidden;
  for (int64_t i = 0; i < kContext; ++i) {
    const std::string name = std::to_string(i);
    const ValueId x = b.Lookup(table, batch.at("byte" + name));
    const ValueId part = b.Linear(x, "position" + name, kHidden, {.bias = i == 0, .std_dev = 0.1});
    hidden = i == 0 ? part : b.AddTo(hidden, part);
  }
  return b.Linear(b.Gelu(hidden), "head", 256);
}

client::Loss Loss(client::Builder& b, const client::Batch& batch) {
  return b.CrossEntropy(Predict(b, batch), batch.at("labels"));
}

bool PrintUpdate(const client::JobUpdate& update) {
  for (const client::StepMetrics& step : update.steps) {
    const auto done = static_cast<long long>(step.step) + 1;  // people count steps from 1
    if (done == 1 || done % 20 == 0) std::printf("step %4lld  loss %.4f\n", done, step.loss);
    if (!std::isnan(step.validation_loss))
      std::printf("validation loss %.4f\n", step.validation_loss);
  }
  return true;
}

Result<client::JobInfo> Train(const std::string& text_file, int64_t data_degree, int64_t steps) {
  MW_ASSIGN_OR_RETURN(const auto connection, client::Client::Connect({}));
  ir::DataSpec data;
  MW_ASSIGN_OR_RETURN(data.blob, connection->UploadFile(text_file));
  ir::ParallelSpec parallel;
  parallel.data = data_degree;
  ir::OptimizerSpec optimizer;
  optimizer.lr = 3e-3;
  const client::TrainerFunctions functions{Collate, Loss, Predict};
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, client::JobBuilder("mlp-lm")
                                                    .Batch(32, 64)
                                                    .Steps(steps)
                                                    .Data(data)
                                                    .Optimizer(optimizer)
                                                    .Parallel(parallel)
                                                    .Build(functions));
  MW_ASSIGN_OR_RETURN(const int64_t id, connection->Submit(job));
  std::printf("job %lld submitted\n", static_cast<long long>(id));
  return connection->Watch(id, PrintUpdate);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s TEXT_FILE [DATA_DEGREE] [STEPS]\n", argv[0]);
    return 2;
  }
  const auto end =
      Train(argv[1], argc > 2 ? std::atoll(argv[2]) : 2, argc > 3 ? std::atoll(argv[3]) : 200);
  if (!end) {
    std::fprintf(stderr, "error: %s\n", end.error().message().c_str());
    return 1;
  }
  if (end->state != client::JobState::kSucceeded) {
    std::fprintf(stderr, "error: the job is %s: %s: %s\n", client::JobStateName(end->state),
                 end->reason.c_str(), end->message.c_str());
    return 1;
  }
  std::printf("%s, final loss %.4f, files in %s\n", client::JobStateName(end->state), end->loss,
              end->directory.c_str());
  return 0;
}
