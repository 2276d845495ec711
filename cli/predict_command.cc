// predict: what the model of a job says to a text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/predict_file.h"
#include "client/evaluation.h"
#include "report/prediction.h"

namespace meshwright::cli {
namespace {

constexpr const char* kProgram = "predict";
constexpr const char* kInput = "window";

struct Asked {
  std::unique_ptr<client::Session> session;
  std::string format;  // of the job's data
};

// A job that runs is asked between its steps; of one that has ended, the weights.
Result<Asked> Open(client::Client& client, const PredictArgs& args) {
  MW_ASSIGN_OR_RETURN(const client::JobInfo info, client.Get(args.id));
  MW_ASSIGN_OR_RETURN(const proto::JobDescription description, client.Describe(args.id));
  const client::SessionOptions options{.open_timeout_ms = args.timeout_s * 1000,
                                       .timeout_ms = args.timeout_s * 1000};
  Asked asked{nullptr, description.job.data.format};
  if (!client::IsTerminal(info.state)) {
    MW_ASSIGN_OR_RETURN(asked.session, client.AttachSession(args.id, options));
    return asked;
  }
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, client::PredictionOf(description, args.id));
  MW_ASSIGN_OR_RETURN(asked.session, client.OpenSession(job, options));
  return asked;
}

Result<std::vector<int32_t>> TokensOf(const PredictArgs& args, const std::string& format) {
  if (!args.tokens.empty()) return report::ParseTokens(args.tokens);
  if (format != "bytes") {
    return Fail(InvalidArgument(fmt::format(
        "the data of job {} are {} tokens, not text: give --tokens 12,7,300", args.id, format)));
  }
  std::vector<int32_t> tokens;
  for (const char c : args.text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

// The last tokens that the window has room for, then zeros.
client::Tensor WindowOf(std::vector<int32_t>& tokens, const ir::TensorType& type) {
  const auto positions = static_cast<size_t>(type.dims[1] - 1);
  if (tokens.size() > positions)
    tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(positions));
  std::vector<int32_t> window(tokens);
  window.resize(static_cast<size_t>(type.elements()), 0);
  return client::Tensor::Of<int32_t>(type.dims, window);
}

std::vector<double> AsDoubles(const client::Tensor& tensor) {
  if (tensor.type.dtype == ir::DType::kF64) return tensor.Values<double>();
  const std::vector<float> values = tensor.Values<float>();
  return {values.begin(), values.end()};
}

void Print(const report::Prediction& prediction, const PredictArgs& args, bool bytes, bool json) {
  const auto text = [&](int32_t token) {
    return bytes ? report::ByteText(token) : std::to_string(token);
  };
  if (json) {
    nlohmann::ordered_json object = {{"job", args.id}, {"predicted", prediction.predicted}};
    object["loss"] = std::isnan(prediction.loss) ? nlohmann::ordered_json()
                                                 : nlohmann::ordered_json(prediction.loss);
    object["next"] = nlohmann::ordered_json::array();
    for (const report::NextToken& next : prediction.next) {
      object["next"].push_back(
          {{"token", next.token}, {"text", text(next.token)}, {"probability", next.probability}});
    }
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  if (prediction.predicted > 0) {
    fmt::print("loss {:.4f} nats per token over {} tokens\n", prediction.loss,
               prediction.predicted);
  }
  fmt::print("next:\n");
  for (const report::NextToken& next : prediction.next) {
    fmt::print("  {:>6.2f} %  {}\n", 100 * next.probability,
               bytes ? fmt::format("'{}'", text(next.token)) : text(next.token));
  }
}

Result<int> Predict(const PredictArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto client, Connect(global));
  MW_ASSIGN_OR_RETURN(Asked asked, Open(*client, args));
  if (!args.data.empty()) {
    MW_ASSIGN_OR_RETURN(const int64_t rows, PredictFile(*asked.session, args, asked.format));
    MW_TRY(asked.session->Close());
    if (global.json) {
      fmt::print(
          "{}\n",
          nlohmann::ordered_json{{"job", args.id}, {"rows", rows}, {"out", args.out}}.dump());
    } else {
      fmt::print("{} rows written to {}\n", rows, args.out);
    }
    return kExitOk;
  }
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, TokensOf(args, asked.format));
  const auto programs = asked.session->programs();
  const auto program = programs.find(kProgram);
  if (program == programs.end() || !program->second.contains(kInput)) {
    return Fail(FailedPrecondition(
        fmt::format("job {} has no program '{}': its model cannot be asked", args.id, kProgram)));
  }
  const client::Tensor window = WindowOf(tokens, program->second.at(kInput));
  auto answer = asked.session->Run(kProgram, {{kInput, window}});
  const Status closed = asked.session->Close();
  MW_TRY(answer);
  MW_TRY(closed);
  const client::Tensor& logits = answer->tensors.at("logits");
  const int64_t vocabulary = logits.type.dims.back();
  Print(report::Predict(tokens, AsDoubles(logits), vocabulary, args.top), args, args.tokens.empty(),
        global.json);
  return kExitOk;
}

}  // namespace

int RunPredict(const PredictArgs& args, const GlobalArgs& global) {
  const Result<int> code = Predict(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
