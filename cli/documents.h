// From the texts of a data set to documents of tokens, and which of these a model is to learn.
//
//   format  a document                  its tokens                          answers
//   text    a file                      those of the text                   all of it
//   jsonl   a line, a JSON object       of "text"                           all of it
//                                       of "messages", by the chat          what the assistant says
//                                       template beside the tokenizer
//                                       of "prompt" and "completion", or    the completion
//                                       "input" and "output", in a row
//
// Behind each document stands the separator; it is learned where the token before it is. A token
// that an answer shares with what stands around it is the answer's, as in transformers.
//
// Thread rule: immutable; any number of threads use one maker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::cli {

struct DocumentRules {
  std::string format = "text";  // or "jsonl"
  std::string tokenizer = {};   // a file, or the folder of a model; empty: tokens are bytes
  std::optional<int64_t> separator = {};  // else the tokenizer's end of a text, if it has one
  bool answers = false;                   // only answers are learned
};

struct Document {
  std::vector<uint32_t> ids;
  std::vector<bool> learned;  // of each id
  int64_t bytes = 0;          // of its text, or of its answers where these alone are learned
};

class DocumentMaker {
 public:
  // Errors: those of Tokenizer::Load; of a chat template only once a line wants one.
  static Result<DocumentMaker> Make(const DocumentRules& rules);

  const std::string& format() const { return rules_.format; }
  // Of everything here that decides what documents come of a text.
  const std::string& identity() const { return identity_; }
  // One more than the largest id that documents have.
  int64_t id_end() const;
  // Of each id, whether it goes on with the word of the one before it, as a vocabulary of
  // WordPiece says with "##". Errors: kInvalidArgument: no id does.
  Result<std::vector<bool>> Continuations() const;

  // Those of a part of a file, empty ones left out. last: of its file. first_line: the number of
  // the part's first line, for errors. Errors: kInvalidArgument naming the line of JSON, or the
  // byte: no UTF-8, no JSON, no field, a message that a template would leave out.
  Result<std::vector<Document>> OfPart(std::string_view part, bool last, int64_t first_line) const;

 private:
  explicit DocumentMaker(DocumentRules rules) : rules_(std::move(rules)) {}
  DocumentMaker OfBytes() &&;
  void SetIdentity(const std::string& files);
  Result<std::vector<uint32_t>> Encode(std::string_view text) const;
  Result<Document> OfText(std::string_view text) const;
  Result<Document> OfAnswers(std::string_view text,
                             const std::vector<tokenizer::TextSpan>& answers) const;
  Result<Document> OfMessages(std::string_view line) const;
  Result<Document> OfLine(std::string_view line) const;
  void EndWithSeparator(Document& document) const;

  DocumentRules rules_;
  std::string identity_;
  std::optional<tokenizer::Tokenizer> tokenizer_;
  std::optional<tokenizer::ChatTemplate> chat_;
  Status no_chat_;  // why there is none, for the line that wants one
  std::optional<uint32_t> separator_;
};

// The folder in which a tokenizer's other files stand.
std::string FolderOfTokenizer(const std::string& path);

// Whether a path is a tokenizer's file, or a folder that has one.
bool HasTokenizer(const std::string& path);

// The token that ends a text by tokenizer_config.json, else by its usual names.
std::optional<uint32_t> EndOfText(const std::string& folder, const tokenizer::Tokenizer& tokenizer);
// Of the tokenizer at a path; nothing, too, where none is there.
std::optional<uint32_t> EndOfText(const std::string& path);

}  // namespace meshwright::cli
