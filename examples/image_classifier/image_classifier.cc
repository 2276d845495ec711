#include "image_classifier.h"

#include <utility>

#include "client/program.h"
#include "client/trainer.h"
#include "images.h"

namespace image_classifier {
namespace {

using meshwright::Result;
using meshwright::ValueId;
namespace client = meshwright::client;
namespace ir = meshwright::ir;

constexpr uint64_t kTestSeeds = uint64_t{1} << 32;  // no step has such a seed

// Halves the sides of the images.
ValueId Block(client::Builder& b, ValueId images, const std::string& name, int64_t channels) {
  const client::WindowOptions same_size{.padding = {1, 1, 1, 1}};
  const client::WindowOptions apart{.strides = {2, 2}};
  const ValueId y = b.Conv2d(images, name, {3, 3}, channels, same_size, {.std_dev = 0.2});
  return b.MaxPool(b.Relu(y), {2, 2}, apart);
}

ValueId Logits(client::Builder& b, ValueId images) {
  const ValueId features = Block(b, Block(b, images, "block1", 8), "block2", 16);
  const client::Dims dims = b.dims(features);
  const ValueId flat = b.Reshape(features, {dims[0], dims[1] * dims[2] * dims[3]});
  const ValueId hidden = b.Relu(b.Linear(flat, "hidden", 32, {.std_dev = 0.1}));
  return b.Linear(hidden, "head", kClasses, {.std_dev = 0.2});
}

Result<ir::JobRequest> MakeJob(const Options& options) {
  const std::vector<client::InputSpec> inputs = {
      {"images", {options.dtype, {options.batch, kSide, kSide, 1}}},
      {"labels", {ir::DType::kI32, {options.batch}}}};
  const client::ProgramOptions floats{options.dtype};
  const auto loss = [](client::Builder& b, const client::Batch& in) {
    return b.CrossEntropy(Logits(b, in.at("images")), in.at("labels"));
  };
  const auto test = [&](client::Builder& b, const client::Batch& in) {
    const ValueId right = b.Equal(b.ArgMax(Logits(b, in.at("images")), -1), in.at("labels"));
    b.SetOutput("right", b.ReduceSum(b.Cast(right, options.dtype), {0}));
    return meshwright::Status();
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram trained, client::TrainedProgram(inputs, loss, floats));
  MW_ASSIGN_OR_RETURN(ir::JobProgram tested, client::MakeProgram("test", inputs, test, floats));
  ir::OptimizerSpec optimizer;
  optimizer.lr = 0.005;
  return client::JobBuilder("image-classifier")
      .Batch(options.batch, 1)
      .Seed(options.seed)
      .DType(options.dtype)
      .Optimizer(optimizer)
      .Parallel(options.parallel)
      .Program(std::move(trained))
      .Program(std::move(tested))
      .DrivenByClient()
      .Build();
}

client::Feeds FeedsOf(const Options& options, uint64_t seed) {
  const Images images = Draw(options.batch, seed);
  return {{"images",
           client::Tensor::OfReals(options.dtype, {options.batch, kSide, kSide, 1}, images.pixels)},
          {"labels", client::Tensor::Of<int32_t>({options.batch}, images.labels)}};
}

}  // namespace

Result<Outcome> Run(client::Client& client, const Options& options) {
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, MakeJob(options));
  MW_ASSIGN_OR_RETURN(const auto session, client.OpenSession(job));
  Outcome outcome;
  for (int64_t step = 0; step < options.steps; ++step) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(step);
    MW_ASSIGN_OR_RETURN(const client::Answer answer, session->Run("step", FeedsOf(options, seed)));
    outcome.losses.push_back(answer.values.at("loss"));
    options.on_step(step, outcome.losses.back());
  }
  double right = 0;
  for (int64_t batch = 0; batch < options.test_batches; ++batch) {
    const uint64_t seed = kTestSeeds + options.seed + static_cast<uint64_t>(batch);
    MW_ASSIGN_OR_RETURN(const client::Answer answer, session->Run("test", FeedsOf(options, seed)));
    right += answer.values.at("right");
  }
  outcome.accuracy = right / static_cast<double>(options.test_batches * options.batch);
  MW_TRY(session->Close());
  return outcome;
}

}  // namespace image_classifier
