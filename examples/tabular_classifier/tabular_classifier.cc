#include "tabular_classifier.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "client/program.h"
#include "client/trainer.h"

namespace tabular_classifier {
namespace {

using meshwright::Result;
using meshwright::ValueId;
namespace client = meshwright::client;
namespace ir = meshwright::ir;

ValueId Logits(client::Builder& b, ValueId x, int64_t classes) {
  const ValueId first = b.Relu(b.Linear(x, "hidden1", 64, {.std_dev = 1}));
  const ValueId second = b.Relu(b.Linear(first, "hidden2", 64, {.std_dev = 0.2}));
  return b.Linear(second, "head", classes, {.std_dev = 0.2});
}

Result<ir::JobRequest> MakeJob(const Table& table, const Options& options) {
  const std::vector<client::InputSpec> inputs = {
      {"x", {options.dtype, {options.batch, table.features}}},
      {"y", {ir::DType::kI32, {options.batch}}}};
  const client::ProgramOptions floats{options.dtype};
  const auto loss = [&](client::Builder& b, const client::Batch& in) {
    return b.CrossEntropy(Logits(b, in.at("x"), table.classes), in.at("y"));
  };
  const auto predict = [&](client::Builder& b, const client::Batch& in) {
    b.SetOutput("logits", Logits(b, in.at("x"), table.classes));
    return meshwright::Status();
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram trained, client::TrainedProgram(inputs, loss, floats));
  MW_ASSIGN_OR_RETURN(ir::JobProgram answers,
                      client::MakeProgram("predict", {inputs[0]}, predict, floats));
  ir::OptimizerSpec optimizer;
  optimizer.lr = 0.01;
  return client::JobBuilder("tabular-classifier")
      .Batch(options.batch, 1)
      .Seed(options.seed)
      .DType(options.dtype)
      .Optimizer(optimizer)
      .Parallel(options.parallel)
      .Program(std::move(trained))
      .Program(std::move(answers))
      .DrivenByClient()
      .Build();
}

// Each fifth row is held back.
bool HeldBack(int64_t row) { return row % 5 == 4; }

std::vector<int64_t> RowsOf(const Table& table, bool held_back) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < table.rows(); ++row) {
    if (HeldBack(row) == held_back) rows.push_back(row);
  }
  return rows;
}

client::Tensor FeaturesOf(const Table& table, const std::vector<int64_t>& rows, ir::DType dtype) {
  std::vector<double> x;
  for (const int64_t row : rows) {
    const auto begin = table.x.begin() + row * table.features;
    x.insert(x.end(), begin, begin + table.features);
  }
  return client::Tensor::OfReals(dtype, {static_cast<int64_t>(rows.size()), table.features}, x);
}

client::Tensor LabelsOf(const Table& table, const std::vector<int64_t>& rows) {
  std::vector<int32_t> y;
  for (const int64_t row : rows) y.push_back(table.y[static_cast<size_t>(row)]);
  return client::Tensor::Of<int32_t>({static_cast<int64_t>(rows.size())}, y);
}

// A program has one batch size: the last batch is filled up with rows that do not count.
Result<double> Accuracy(client::Session& session, const Table& table, const Options& options) {
  const std::vector<int64_t> rows = RowsOf(table, true);
  const auto batch = static_cast<size_t>(options.batch);
  const auto classes = static_cast<size_t>(table.classes);
  int64_t right = 0;
  for (size_t first = 0; first < rows.size(); first += batch) {
    const size_t count = std::min(batch, rows.size() - first);
    std::vector<int64_t> asked(rows.begin() + static_cast<std::ptrdiff_t>(first),
                               rows.begin() + static_cast<std::ptrdiff_t>(first + count));
    asked.resize(batch, rows[0]);
    MW_ASSIGN_OR_RETURN(const client::Answer answer,
                        session.Run("predict", {{"x", FeaturesOf(table, asked, options.dtype)}}));
    const std::vector<double> logits = answer.tensors.at("logits").Reals();
    for (size_t i = 0; i < count; ++i) {
      const double* row = &logits[i * classes];
      const auto likeliest = std::max_element(row, row + classes) - row;
      right += likeliest == table.y[static_cast<size_t>(asked[i])] ? 1 : 0;
    }
  }
  return static_cast<double>(right) / static_cast<double>(rows.size());
}

}  // namespace

Result<Outcome> Run(client::Client& client, const Table& table, const Options& options) {
  if (table.rows() < 5) {
    return Fail(meshwright::InvalidArgument("a table of " + std::to_string(table.rows()) +
                                            " rows: each fifth is held back, so 5 are needed"));
  }
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, MakeJob(table, options));
  MW_ASSIGN_OR_RETURN(const auto session, client.OpenSession(job));
  const std::vector<int64_t> trained_on = RowsOf(table, false);
  std::mt19937_64 random(options.seed);
  std::uniform_int_distribution<size_t> pick(0, trained_on.size() - 1);
  Outcome outcome;
  for (int64_t step = 0; step < options.steps; ++step) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < options.batch; ++i) rows.push_back(trained_on[pick(random)]);
    MW_ASSIGN_OR_RETURN(const client::Answer answer,
                        session->Run("step", {{"x", FeaturesOf(table, rows, options.dtype)},
                                              {"y", LabelsOf(table, rows)}}));
    outcome.losses.push_back(answer.values.at("loss"));
    options.on_step(step, outcome.losses.back());
  }
  MW_ASSIGN_OR_RETURN(outcome.accuracy, Accuracy(*session, table, options));
  MW_TRY(session->Close());
  return outcome;
}

}  // namespace tabular_classifier
