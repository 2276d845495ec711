#include "tokenizer/word_cache.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace meshwright::tokenizer {

WordCache& WordCache::OfThread() {
  thread_local WordCache cache;
  return cache;
}

uint64_t WordCache::NewOwner() {
  static std::atomic<uint64_t> next = 1;
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::span<const uint32_t> WordCache::Find(uint64_t owner, std::string_view text,
                                          uint64_t hash) const {
  const uint64_t key = KeyOf(owner, hash);
  const Place& place = places_[key % kPlaces];
  if (place.key != key || place.bytes != text.size()) return {};
  if (std::memcmp(place.text.data(), text.data(), text.size()) != 0) return {};
  return {place.ids.data(), place.tokens};
}

void WordCache::Put(uint64_t owner, std::string_view text, uint64_t hash,
                    std::span<const uint32_t> ids) {
  if (text.size() > kMaxBytes || ids.empty() || ids.size() > kMaxTokens) return;
  const uint64_t key = KeyOf(owner, hash);
  Place& place = places_[key % kPlaces];
  place.key = key;
  place.bytes = static_cast<uint8_t>(text.size());
  place.tokens = static_cast<uint8_t>(ids.size());
  std::copy(text.begin(), text.end(), place.text.begin());
  std::copy(ids.begin(), ids.end(), place.ids.begin());
}

}  // namespace meshwright::tokenizer
