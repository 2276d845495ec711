// What an evaluation asks a model, and what comes of the answers.
//
//   a row has                          is asked                                  tells
//   "prompt", "choices", "answer"      each choice behind the prompt             accuracy
//   anything a job may train on        each document (cli/documents.h)           perplexity
//   "source" and "target", or          the target behind the source, by a        perplexity
//   "input" and "output"               model with an encoder
//
// Choices are scored as lm-evaluation-harness 0.4 scores those of a causal model: the prompt's
// tokens are those of the prompt alone, spaces at its end belong to the choice, the model sees the
// last tokens that it has positions for. "acc" takes the likeliest choice, "acc_norm" the likeliest
// by character; of equal ones the first. `answer` is the number of a choice, from 0, or its text.
// A model with an encoder reads the prompt as its source, and a choice is what it writes, without
// the token that ends a text, as in the harness.
//
// Thread rule: values, pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/documents.h"

namespace meshwright::cli {

// Tokens that a model sees, and the labels of the last `scored` of them; the others do not count.
struct EvalRow {
  std::vector<int32_t> tokens;  // of a pair the source
  std::vector<int32_t> labels;  // of each token; of a pair the target
  std::vector<bool> counts;     // of each label
};

struct RowScore {
  double log_likelihood = 0;
  double hits = 0;
};

// A question with its choices: rows [first, first + lengths.size()).
struct Question {
  size_t first = 0;
  std::vector<double> lengths;  // characters of each choice
  size_t answer = 0;
};

struct EvalData {
  std::vector<EvalRow> rows;
  std::vector<Question> questions;  // none: rows are pieces of documents
  int64_t bytes = 0;                // of the documents' texts, or of the targets
  int64_t cut = 0;                  // sources and targets of pairs that were too long
};

using EncodeText = std::function<Result<std::vector<int32_t>>(const std::string& text)>;

struct EvalRules {
  int64_t positions = 1024;     // tokens that a row may have
  std::string delimiter = " ";  // between a prompt and a choice
  int64_t limit = 0;            // lines at most; 0: all
  // Stands for a prompt that is empty. None: such a prompt is an error.
  std::optional<int32_t> prefix;
};

// Whether the first line that is not empty is a question.
bool HasQuestions(std::string_view jsonl);
// Errors: kInvalidArgument with the line: no JSON, no field, an answer that is none of the choices.
Result<EvalData> ReadQuestions(std::string_view jsonl, const EncodeText& encode,
                               const EvalRules& rules);
// Pieces of `rules.positions` tokens: each label is asked for once, with what is before it in its
// piece.
EvalData RowsOfDocuments(const std::vector<Document>& documents, const EvalRules& rules);

// How a model with an encoder has its texts.
struct PairEncoders {
  EncodeText whole;  // with the tokens around a text
  EncodeText bare;   // without them
};

// Pairs, or questions, of at most `rules.positions` tokens on each side. A pair that is longer
// keeps the token that ends it, as rows of training do; a prompt loses its beginning. Errors: as
// ReadQuestions.
Result<EvalData> ReadPairs(std::string_view jsonl, const PairEncoders& encode,
                           const EvalRules& rules);

struct MetricValue {
  std::string name;
  double value = 0;
  std::optional<double> error;  // standard error of a mean
};

// REQUIRES: a score for each row. Perplexity and bits per byte are of nats per token and per byte.
std::vector<MetricValue> MetricsOf(const EvalData& data, const std::vector<RowScore>& scores);
// The choice that each question's scores take. by_character: as acc_norm.
size_t ChoiceOf(const Question& question, const std::vector<RowScore>& scores, bool by_character);

}  // namespace meshwright::cli
