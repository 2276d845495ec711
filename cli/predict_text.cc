#include "cli/predict_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/check.h"

namespace meshwright::cli {
namespace {

constexpr const char* kAskRows = "ask it by rows of a file: --data FILE --out FILE.jsonl";

std::string NamesOf(const std::map<std::string, client::Tensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(fmt::format("\"{}\" {}", name, tensor.type.ToString()));
  }
  return names.empty() ? "no tensor" : fmt::format("{}", fmt::join(names, ", "));
}

// The last tokens that the window has room for, then zeros.
client::Tensor WindowOf(std::vector<int32_t>& tokens, const ir::TensorType& type) {
  const auto positions = static_cast<size_t>(type.dims[1] - 1);
  if (tokens.size() > positions) {
    tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(positions));
  }
  std::vector<int32_t> window(tokens);
  window.resize(static_cast<size_t>(type.elements()), 0);
  return client::Tensor::Of<int32_t>(type.dims, window);
}

}  // namespace

Result<Signature> PredictSignature(const client::Session& session, int64_t id) {
  const auto programs = session.programs();
  const auto program = programs.find(kPredictProgram);
  if (program != programs.end()) return program->second;
  return Fail(FailedPrecondition(
      fmt::format("job {} has no program '{}': its model cannot be asked", id, kPredictProgram)));
}

Status CheckWindow(const Signature& inputs) {
  const auto window = inputs.find(kWindowInput);
  if (window == inputs.end()) {
    return FailedPrecondition(
        fmt::format("the program '{}' has no input \"{}\" that takes tokens; {}", kPredictProgram,
                    kWindowInput, kAskRows));
  }
  const ir::TensorType& type = window->second;
  if (type.dtype != ir::DType::kI32 || type.rank() != 2 || type.dims[1] < 2) {
    return FailedPrecondition(fmt::format(
        "input \"{}\" of the program '{}' is {}, and tokens need i32[batch, positions + 1]; {}",
        kWindowInput, kPredictProgram, type.ToString(), kAskRows));
  }
  for (const auto& [name, other] : inputs) {
    if (name == kWindowInput) continue;
    return FailedPrecondition(fmt::format("the program '{}' takes \"{}\" {} beside the tokens; {}",
                                          kPredictProgram, name, other.ToString(), kAskRows));
  }
  return OkStatus();
}

Status CheckLogits(const client::Answer& answer, int64_t tokens) {
  const auto logits = answer.tensors.find(kLogitsOutput);
  if (logits == answer.tensors.end()) {
    return FailedPrecondition(
        fmt::format("the program '{}' has no output \"{}\"; it gives out {}; {}", kPredictProgram,
                    kLogitsOutput, NamesOf(answer.tensors), kAskRows));
  }
  const ir::TensorType& type = logits->second.type;
  if (ir::IsFloating(type.dtype) && type.rank() == 3 && type.dims[1] >= tokens) return OkStatus();
  return FailedPrecondition(
      fmt::format("output \"{}\" of the program '{}' is {}, and what follows {} tokens needs "
                  "floating point numbers [batch, positions, vocabulary]; {}",
                  kLogitsOutput, kPredictProgram, type.ToString(), tokens, kAskRows));
}

Status CheckTokens(const std::vector<int32_t>& tokens, int64_t vocabulary) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return InvalidArgument(
        fmt::format("token {} is not among the {} that output \"{}\" of the program '{}' tells "
                    "apart; tokens are in [0, {})",
                    token, vocabulary, kLogitsOutput, kPredictProgram, vocabulary));
  }
  return OkStatus();
}

Result<report::Prediction> PredictionOf(const client::Answer& answer, int64_t row,
                                        const std::vector<int32_t>& tokens, int top) {
  const client::Tensor& logits = answer.tensors.at(kLogitsOutput);
  const int64_t vocabulary = logits.type.dims.back();
  MW_TRY(CheckTokens(tokens, vocabulary));
  return report::Predict(tokens, logits.RealsOfRow(row), vocabulary, top);
}

Result<report::Prediction> PredictText(client::Session& session, std::vector<int32_t> tokens,
                                       int64_t id, int top) {
  MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(session, id));
  MW_TRY(CheckWindow(inputs));
  if (tokens.empty()) return Fail(InvalidArgument("no token to ask about: give a text"));
  const client::Tensor window = WindowOf(tokens, inputs.at(kWindowInput));
  MW_ASSIGN_OR_RETURN(const client::Answer answer,
                      session.Run(kPredictProgram, {{kWindowInput, window}}));
  MW_TRY(CheckLogits(answer, static_cast<int64_t>(tokens.size())));
  return PredictionOf(answer, 0, tokens, top);
}

}  // namespace meshwright::cli
