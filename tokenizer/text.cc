#include "tokenizer/text.h"

#include <algorithm>

#include "base/check.h"

namespace meshwright::tokenizer {

void Rewriting::Put(char32_t code, size_t aligned) {
  const size_t before = out_.bytes.size();
  AppendUtf8(code, out_.bytes);
  if (aligned < text_.of_start && out_.of_start == before) out_.of_start = out_.bytes.size();
}

void Rewriting::Finish() {
  while (!done()) Keep();
  text_ = std::move(out_);
}

void Prepend(std::string_view front, Text& text) {
  if (text.bytes.empty()) return;
  text.bytes.insert(0, front);
  // All of it, and the character that was first, are aligned with that one.
  if (text.of_start > 0) text.of_start += front.size();
}

void Pieces::Add(const Piece& piece, Span span) {
  MW_DCHECK(span.begin <= span.end && span.end <= piece.bytes.size());
  if (span.begin == span.end) return;
  const size_t of_start =
      piece.of_start > span.begin ? std::min(piece.of_start, span.end) - span.begin : 0;
  list_.push_back({piece.bytes.substr(span.begin, span.end - span.begin), of_start, -1});
}

namespace {

// Where the previous match and what it is merged with become one part.
std::vector<Span> Merged(const std::vector<Match>& matches, SplitBehavior behavior) {
  std::vector<Span> parts;
  bool previous = false;
  const auto take = [&](const Match& match, bool joins) {
    if (joins && !parts.empty()) {
      parts.back().begin = std::min(parts.back().begin, match.span.begin);
      parts.back().end = std::max(parts.back().end, match.span.end);
    } else {
      parts.push_back(match.span);
    }
    previous = match.matched;
  };
  switch (behavior) {
    case SplitBehavior::kContiguous:
      for (const Match& match : matches) take(match, match.matched == previous);
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Match& match : matches) take(match, match.matched && !previous);
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = matches.size(); i-- > 0;) take(matches[i], matches[i].matched && !previous);
      std::reverse(parts.begin(), parts.end());
      break;
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      MW_CHECK(false) << "nothing is merged";
  }
  return parts;
}

}  // namespace

void AddSplit(const Piece& piece, const std::vector<Match>& matches, SplitBehavior behavior,
              Pieces& pieces) {
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
    for (const Match& match : matches) {
      if (match.matched && behavior == SplitBehavior::kRemoved) continue;
      pieces.Add(piece, match.span);
    }
    return;
  }
  for (const Span& part : Merged(matches, behavior)) pieces.Add(piece, part);
}

}  // namespace meshwright::tokenizer
