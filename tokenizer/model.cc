#include "tokenizer/model.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"

namespace meshwright::tokenizer {
namespace {

// The type that is meant where an old file does not say it.
Result<std::string> TypeOf(const JsonNode& node) {
  if (node.Find("type")) return node.Text("type");
  if (node.Find("merges")) return std::string("BPE");
  if (node.Find("continuing_subword_prefix")) return std::string("WordPiece");
  if (node.Find("vocab") && node.Find("vocab")->IsArray()) return std::string("Unigram");
  return std::string("WordLevel");
}

}  // namespace

bool CanTakeBytes(const JsonNode& node) {
  const Result<std::string> type = TypeOf(node);
  if (!type.has_value() || *type != "BPE") return false;
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Result<std::string> text = node.TextOr(affix, "");
    if (!text.has_value() || !text->empty()) return false;
  }
  const Result<bool> fallback = node.BoolOr("byte_fallback", false);
  return fallback.has_value() && !*fallback;
}

Result<std::shared_ptr<const Model>> LoadModel(const JsonNode& node, bool bytes) {
  MW_ASSIGN_OR_RETURN(const std::string type, TypeOf(node));
  if (type == "BPE") return LoadBpe(node, bytes);
  MW_CHECK(!bytes) << type;
  if (type == "Unigram") return LoadUnigram(node);
  if (type == "WordPiece") return LoadWordPiece(node);
  if (type == "WordLevel") return LoadWordLevel(node);
  return Fail(node.Wrong(
      fmt::format("unknown model '{}'{}; known: BPE, Unigram, WordPiece, WordLevel", type,
                  DidYouMean(type, {"BPE", "Unigram", "WordPiece", "WordLevel"}))));
}

}  // namespace meshwright::tokenizer
