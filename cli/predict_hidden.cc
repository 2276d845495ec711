#include "cli/predict_hidden.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/predict_text.h"

namespace meshwright::cli {
namespace {

constexpr const char* kRowInput = "row";

}  // namespace

bool IsAskedForHidden(const ir::JobRequest& job) {
  const ir::JobProgram* const program = job.FindProgram(kPredictProgram);
  return program != nullptr && program->inputs.size() == 1 && program->inputs.contains(kRowInput);
}

Result<std::vector<HiddenToken>> PredictHidden(client::Session& session,
                                               const std::vector<int32_t>& tokens, int64_t mask,
                                               int64_t id, int top) {
  if (std::find(tokens.begin(), tokens.end(), mask) == tokens.end()) {
    return Fail(InvalidArgument(fmt::format(
        "the model of job {} says what is hidden, and no token of the text is: write the mask, "
        "token {}, in its place (\"The sky is [MASK].\" with most tokenizers)",
        id, mask)));
  }
  MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(session, id));
  const auto row = inputs.find(kRowInput);
  if (row == inputs.end() || row->second.rank() != 2) {
    return Fail(FailedPrecondition(
        fmt::format("the program '{}' of job {} takes no \"{}\"", kPredictProgram, id, kRowInput)));
  }
  const ir::TensorType& type = row->second;
  if (std::ssize(tokens) > type.dims[1]) {
    return Fail(InvalidArgument(fmt::format(
        "the text has {} tokens, and a row of job {} {} (training.seq_len): shorten the text",
        tokens.size(), id, type.dims[1])));
  }
  std::vector<int32_t> padded(tokens);
  padded.resize(static_cast<size_t>(type.elements()), 0);
  MW_ASSIGN_OR_RETURN(
      const client::Answer answer,
      session.Run(kPredictProgram, {{kRowInput, client::Tensor::Of<int32_t>(type.dims, padded)}}));
  MW_TRY(CheckLogits(answer, std::ssize(tokens)));
  const client::Tensor& logits = answer.tensors.at(kLogitsOutput);
  const int64_t vocabulary = logits.type.dims.back();
  MW_TRY(CheckTokens(tokens, vocabulary));
  const std::vector<double> all = logits.RealsOfRow(0);
  std::vector<HiddenToken> hidden;
  for (int64_t i = 0; i < std::ssize(tokens); ++i) {
    if (tokens[static_cast<size_t>(i)] != mask) continue;
    const auto first = all.begin() + i * vocabulary;
    hidden.push_back({i, report::Likeliest({first, first + vocabulary}, top)});
  }
  return hidden;
}

}  // namespace meshwright::cli
