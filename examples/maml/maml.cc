#include "maml.h"

#include <string>
#include <utility>

#include "client/program.h"
#include "client/trainer.h"
#include "sinusoids.h"

namespace maml {
namespace {

using meshwright::Result;
using meshwright::ValueId;
namespace client = meshwright::client;
namespace ir = meshwright::ir;

constexpr int64_t kTestBatches = 8;
constexpr uint64_t kTestSeeds = uint64_t{1} << 32;  // no step has such a seed

// A weight and a bias for each layer; those of task t are at [t, ...].
using Weights = std::vector<ValueId>;

Weights StartOf(client::Builder& b, int64_t tasks) {
  const std::vector<int64_t> widths = {1, 40, 40, 1};
  Weights weights;
  for (size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    const int64_t in = widths[layer];
    const int64_t out = widths[layer + 1];
    const double std_dev = layer == 0 ? 1 : 0.2;
    const ValueId weight = b.Param(name + ".weight", {in, out}, {.std_dev = std_dev});
    const ValueId bias = b.Param(name + ".bias", {out}, {.std_dev = 0.5});
    weights.push_back(b.BroadcastTo(weight, {tasks, in, out}));
    weights.push_back(b.BroadcastTo(bias, {tasks, 1, out}));
  }
  return weights;
}

// x [tasks, points, 1] -> [tasks, points, 1], each task with its own weights.
ValueId Predict(client::Builder& b, const Weights& weights, ValueId x) {
  for (size_t i = 0; i < weights.size(); i += 2) {
    x = b.AddTo(b.Einsum("tpi,tio->tpo", x, weights[i]), weights[i + 1]);
    if (i + 2 < weights.size()) x = b.Tanh(x);
  }
  return x;
}

ValueId SquaredError(client::Builder& b, const Weights& weights, ValueId x, ValueId y) {
  return b.ReduceSum(b.Square(b.Sub(Predict(b, weights, x), y)), {0, 1, 2});
}

// The error of a task depends on its own weights only: one gradient of the sum is that of each.
Weights Adapt(client::Builder& b, const Weights& weights, const client::Batch& in,
              const Options& options) {
  const ValueId error = SquaredError(b, weights, in.at("support_x"), in.at("support_y"));
  const std::vector<ValueId> slopes = b.Grad(error, weights);
  Weights adapted;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double rate = options.inner_lr / static_cast<double>(options.points);
    adapted.push_back(b.Sub(weights[i], b.Scale(slopes[i], rate)));
  }
  return adapted;
}

ValueId QueryError(client::Builder& b, const Weights& weights, const client::Batch& in) {
  return SquaredError(b, weights, in.at("query_x"), in.at("query_y"));
}

Result<ir::JobRequest> MakeJob(const Options& options) {
  const ir::TensorType points{options.dtype, {options.tasks, options.points, 1}};
  const std::vector<client::InputSpec> inputs = {
      {"support_x", points}, {"support_y", points}, {"query_x", points}, {"query_y", points}};
  const client::ProgramOptions floats{options.dtype};
  const auto loss = [&](client::Builder& b, const client::Batch& in) {
    const Weights adapted = Adapt(b, StartOf(b, options.tasks), in, options);
    const double count = static_cast<double>(points.elements());
    return client::Loss{QueryError(b, adapted, in), b.Fill({}, count)};
  };
  const auto test = [&](client::Builder& b, const client::Batch& in) {
    const Weights weights = StartOf(b, options.tasks);
    b.SetOutput("unadapted", QueryError(b, weights, in));
    b.SetOutput("adapted", QueryError(b, Adapt(b, weights, in, options), in));
    return meshwright::Status();
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram trained, client::TrainedProgram(inputs, loss, floats));
  MW_ASSIGN_OR_RETURN(ir::JobProgram tested, client::MakeProgram("test", inputs, test, floats));
  ir::OptimizerSpec optimizer;
  optimizer.lr = 0.003;
  optimizer.weight_decay = 0;
  return client::JobBuilder("maml")
      .Batch(options.tasks, 1)
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
  const Tasks tasks = SampleTasks(options.tasks, options.points, seed);
  const auto tensor = [&](const std::vector<double>& values) {
    return client::Tensor::OfReals(options.dtype, {options.tasks, options.points, 1}, values);
  };
  return {{"support_x", tensor(tasks.support.x)},
          {"support_y", tensor(tasks.support.y)},
          {"query_x", tensor(tasks.query.x)},
          {"query_y", tensor(tasks.query.y)}};
}

Result<Errors> Test(client::Session& session, const Options& options) {
  Errors errors;
  for (int64_t batch = 0; batch < kTestBatches; ++batch) {
    const uint64_t seed = kTestSeeds + static_cast<uint64_t>(batch);
    MW_ASSIGN_OR_RETURN(const client::Answer answer, session.Run("test", FeedsOf(options, seed)));
    errors.unadapted += answer.values.at("unadapted");
    errors.adapted += answer.values.at("adapted");
  }
  const auto count = static_cast<double>(kTestBatches * options.tasks * options.points);
  return Errors{errors.unadapted / count, errors.adapted / count};
}

}  // namespace

Result<Outcome> Run(client::Client& client, const Options& options) {
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, MakeJob(options));
  MW_ASSIGN_OR_RETURN(const auto session, client.OpenSession(job));
  Outcome outcome;
  MW_ASSIGN_OR_RETURN(outcome.before, Test(*session, options));
  for (int64_t step = 0; step < options.steps; ++step) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(step);
    MW_ASSIGN_OR_RETURN(const client::Answer answer, session->Run("step", FeedsOf(options, seed)));
    outcome.losses.push_back(answer.values.at("loss"));
    options.on_step(step, outcome.losses.back());
  }
  MW_ASSIGN_OR_RETURN(outcome.after, Test(*session, options));
  MW_TRY(session->Close());
  return outcome;
}

}  // namespace maml
