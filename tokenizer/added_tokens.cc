#include "tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::tokenizer {
namespace {

Result<AddedToken> TokenOf(const JsonNode& node) {
  AddedToken token;
  MW_ASSIGN_OR_RETURN(token.content, node.Text("content"));
  MW_ASSIGN_OR_RETURN(token.single_word, node.Bool("single_word"));
  MW_ASSIGN_OR_RETURN(token.lstrip, node.Bool("lstrip"));
  MW_ASSIGN_OR_RETURN(token.rstrip, node.Bool("rstrip"));
  MW_ASSIGN_OR_RETURN(token.normalized, node.Bool("normalized"));
  MW_ASSIGN_OR_RETURN(token.special, node.Bool("special"));
  return token;
}

bool WordBefore(std::string_view text, size_t at) {
  return at > 0 && IsWord(CharacterAt(text, LastCharacter(text.substr(0, at))).code);
}

bool WordAt(std::string_view text, size_t at) {
  return at < text.size() && IsWord(CharacterAt(text, at).code);
}

// Where the spaces before `at` begin, not before `least`.
size_t SpacesBefore(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const size_t last = LastCharacter(text.substr(0, at));
    if (!IsWhitespace(CharacterAt(text, last).code)) break;
    at = last;
  }
  return std::max(at, least);
}

size_t SpacesEnd(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character next = CharacterAt(text, at);
    if (!IsWhitespace(next.code)) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

Result<AddedTokens> AddedTokens::Load(const JsonNode& list, const Model& model,
                                      const Normalizer* normalizer) {
  AddedTokens added;
  auto next = static_cast<uint32_t>(model.size());
  MW_ASSIGN_OR_RETURN(const std::vector<JsonNode> nodes, list.AsList());
  for (const JsonNode& node : nodes) {
    MW_ASSIGN_OR_RETURN(AddedToken token, TokenOf(node));
    if (token.content.empty()) continue;
    std::optional<uint32_t> id = added.Find(token.content);
    if (!id) id = model.vocabulary().Find(token.content);
    if (!id) id = next++;
    if (*id > kMaxTokenId) return Fail(node.Wrong(fmt::format("gets the id {}", *id)));
    MW_TRY(added.Add(std::move(token), *id, normalizer));
  }
  for (const auto& [id, entry] : added.by_id_) {
    if (entry.text.empty()) continue;  // nothing is left of it
    Finder& finder = added.finders_[entry.token.normalized ? 1 : 0];
    finder.tree.Add(entry.text, id);
    finder.first_bytes[static_cast<unsigned char>(entry.text[0])] = true;
  }
  return added;
}

Status AddedTokens::Add(AddedToken token, uint32_t id, const Normalizer* normalizer) {
  Text text = {token.content, 0};
  if (token.normalized && normalizer != nullptr) MW_TRY(normalizer->Apply(text));
  if (token.special) special_.insert(token.content);
  by_content_.insert_or_assign(token.content, id);
  by_id_.insert_or_assign(id, Entry{std::move(token), std::move(text.bytes)});
  return OkStatus();
}

std::optional<AddedTokens::Found> AddedTokens::FindNext(const Finder& finder, std::string_view text,
                                                        size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!finder.first_bytes[static_cast<unsigned char>(text[at])]) continue;
    Found found = {at, at, 0};
    finder.tree.ForEachPrefix(text.substr(at), [&](size_t bytes, uint32_t id) {
      found.end = at + bytes;
      found.id = id;
    });
    if (found.end > at) return found;
  }
  return std::nullopt;
}

void AddedTokens::Cut(const Piece& piece, bool normalized, Pieces& pieces) const {
  const Finder& finder = finders_[normalized ? 1 : 0];
  const std::string_view text = piece.bytes;
  size_t covered = 0;
  for (size_t from = 0; !finder.tree.empty();) {
    const std::optional<Found> found = FindNext(finder, text, from);
    if (!found) break;
    from = found->end;
    const AddedToken& token = by_id_.at(found->id).token;
    if (token.single_word && (WordBefore(text, found->begin) || WordAt(text, found->end))) continue;
    // Spaces that a token before this one took stay with it.
    const size_t begin = token.lstrip ? SpacesBefore(text, found->begin, covered) : found->begin;
    const size_t end = token.rstrip ? SpacesEnd(text, found->end) : found->end;
    if (covered < begin) pieces.Add(piece, {covered, begin});
    pieces.list().push_back({text.substr(begin, end - begin), 0, found->id});
    covered = end;
  }
  pieces.Add(piece, {covered, text.size()});
}

std::optional<uint32_t> AddedTokens::Find(std::string_view content) const {
  const auto at = by_content_.find(content);
  return at == by_content_.end() ? std::nullopt : std::optional(at->second);
}

const AddedToken* AddedTokens::Of(uint32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &at->second.token;
}

std::vector<uint32_t> AddedTokens::ids() const {
  std::vector<uint32_t> ids;
  for (const auto& [id, entry] : by_id_) ids.push_back(id);
  return ids;
}

}  // namespace meshwright::tokenizer
