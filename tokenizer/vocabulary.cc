#include "tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace meshwright::tokenizer {

uint64_t HashText(std::string_view text) {
  // Words of 8 bytes, multiplied and folded; the tail is read with the bytes before it.
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  const auto mix = [](uint64_t a, uint64_t b) {
    a *= b;
    return a ^ a >> 32;
  };
  const auto load = [&](size_t at, size_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, bytes);
    return word;
  };
  uint64_t hash = mix(text.size() + 1, kFactor);
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) hash = mix(hash ^ load(at, 8), kFactor);
  if (at < text.size()) hash = mix(hash ^ load(at, text.size() - at), kFactor);
  return mix(hash, 0xd6e8feb86659fd93);
}

void Vocabulary::Reserve(size_t tokens, size_t bytes) {
  texts_.reserve(bytes);
  by_id_.reserve(tokens);
  Grow(std::bit_ceil(2 * tokens + 16));
}

void Vocabulary::Grow(size_t slots) {
  std::vector<Slot> before = std::move(slots_);
  slots_.assign(slots, Slot());
  for (const Slot& slot : before) {
    if (slot.id_plus_one == 0) continue;
    const std::string_view text = At(slot.place);
    slots_[SlotOf(text, HashText(text))] = slot;
  }
}

size_t Vocabulary::SlotOf(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t at = hash & mask;
  while (slots_[at].id_plus_one != 0 && !(slots_[at].tag == tag && At(slots_[at].place) == text)) {
    at = (at + 1) & mask;
  }
  return at;
}

void Vocabulary::Add(std::string_view text, uint32_t id) {
  MW_CHECK(id <= kMaxTokenId) << id;
  if (slots_.size() < 2 * (size_ + 1)) Grow(std::max<size_t>(16, 2 * slots_.size()));
  const uint64_t hash = HashText(text);
  Slot& slot = slots_[SlotOf(text, hash)];
  if (slot.id_plus_one == 0) {
    ++size_;
    slot.tag = static_cast<uint32_t>(hash >> 32);
    slot.place = {static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(text.size()), true};
    texts_ += text;
  }
  slot.id_plus_one = id + 1;
  if (by_id_.size() <= id) by_id_.resize(id + 1);
  by_id_[id] = slot.place;
}

std::optional<uint32_t> Vocabulary::Find(std::string_view text, uint64_t hash) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[SlotOf(text, hash)];
  if (slot.id_plus_one == 0) return std::nullopt;
  return slot.id_plus_one - 1;
}

std::optional<std::string_view> Vocabulary::TextOf(uint32_t id) const {
  if (id >= by_id_.size() || !by_id_[id].there) return std::nullopt;
  return At(by_id_[id]);
}

Result<Vocabulary> LoadVocabulary(const JsonNode& node) {
  Vocabulary vocabulary;
  MW_ASSIGN_OR_RETURN(const size_t count, node.Count());
  vocabulary.Reserve(count, 10 * count);
  MW_TRY(node.ForEachMember([&](std::string_view text, const JsonNode& value) -> Status {
    const Result<int64_t> id = value.AsInt();
    if (!id.has_value() || *id < 0 || *id > kMaxTokenId) {
      return node.Wrong(
          fmt::format("the id of '{}' is not a number from 0 to {}", text, kMaxTokenId));
    }
    vocabulary.Add(text, static_cast<uint32_t>(*id));
    return OkStatus();
  }));
  return vocabulary;
}

}  // namespace meshwright::tokenizer
