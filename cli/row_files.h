// Lines of JSON become rows of tokens: what models are trained on whose samples are whole texts.
//
//   of a model for   a line                                        fields of a row
//   pairs            {"source": .., "target": ..}, or "input"      "source" i32[tokens], "target"
//                    and "output"
//   pairs of texts   {"text": ..}, or the line itself              the same: what is left of a
//   text,
//                                                                  and its hidden spans
//   labelled texts   {"text": .., "label": ..}, and maybe          "tokens", "types" i32[tokens],
//                    "text_pair"                                   "label" i32
//
// A text has the tokens that the tokenizer puts around it. What is longer than its row is cut, and
// keeps the token that ends it; behind a shorter one stands padding. A label is a number, or one of
// the model's names.
//
// Without a tokenizer a token is a byte: byte b is token b + 3, 1 ends a text, 2 begins one that is
// labelled, 0 is padding, 259 and on stand for hidden spans. Source of the numbers: ByT5, Xue et
// al. 2022.
//
// Texts whose spans are hidden (data/spans.h) stand one behind the other, each with its end, and
// are cut where a row is full; which spans are hidden is said by the seed, the file, the row and
// the pass over the data: the first passes have rows of their own, in turns (data/mixture.h).
//
// A file of rows is kept by content beside the texts, as files of tokens are (cli/token_files.h).
// Thread rule: reads and writes files, on threads of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"
#include "ir/data_spec.h"
#include "models/registry.h"

namespace meshwright::cli {

inline constexpr uint32_t kEndOfBytes = 1;
inline constexpr uint32_t kStartOfBytes = 2;
inline constexpr uint32_t kFirstByte = 3;
inline constexpr uint32_t kFirstByteSentinel = 259;

struct RowFilesRequest {
  std::vector<std::string> files;
  std::string tokenizer;   // a file, or the folder of a model; empty: bytes
  models::ModelRows rows;  // not of windows
  int64_t tokens = 1;      // of the source, or of the text
  int64_t vocabulary = 0;  // tokens are below it
  bool lines = false;      // of plain text, no JSON
  uint64_t seed = 0;       // of what is hidden
  int64_t pass = 0;        // over the data: other spans are hidden in each
  std::string cache;       // folder, which is made
};

struct RowFiles {
  std::vector<std::string> paths;  // safetensors, in the order of the texts
  int64_t made = 0;                // files; the others were there
  int64_t cut = 0;                 // texts of these that were longer than their row
};

// Errors: kInvalidArgument naming file and line: no UTF-8, no JSON, no such field, an unknown
// label, a token beyond the vocabulary; those of Tokenizer::Load, reading and writing.
Result<RowFiles> MakeRowFiles(const RowFilesRequest& request);

// What a job reads whose model is not trained on windows: the rows of its lines, which are made
// unless they are there. What was cut is told on stderr. Errors name the key of the job file:
// another format than "jsonl", no file; those of MakeRowFiles.
Result<ir::DataStream> FindRows(const config::JobConfig& config, const models::Model& model);

// The folder or file of the tokenizer that rows are made with; "": bytes.
std::string RowTokenizerOf(const config::JobConfig& config);

// The part of it that costs no time: the format. Errors: kInvalidArgument.
Status CheckRowFormat(const config::JobConfig& config, const models::Model& model);

}  // namespace meshwright::cli
