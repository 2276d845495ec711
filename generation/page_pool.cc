#include "generation/page_pool.h"

#include "base/check.h"

namespace meshwright::generation {

PagePool::PagePool(int64_t pages, int64_t page_tokens)
    : page_tokens_(page_tokens), pages_(static_cast<size_t>(pages)) {
  for (int32_t page = 0; page < pages; ++page) Free(page);
}

PagePool::Beginning PagePool::Find(std::span<const int32_t> text, int64_t most,
                                   PageName before) const {
  Beginning found;
  found.pages.last_name = before;
  for (int64_t i = 0; i < most; ++i) {
    const auto it = named_.find(ContentOf(text, found.pages));
    if (it == named_.end()) break;
    found.pages.numbers.push_back(it->second.page);
    ++found.pages.named;
    found.pages.last_name = it->second.name;
    if (pages_[static_cast<size_t>(it->second.page)].holders == 0) ++found.free;
  }
  return found;
}

void PagePool::Hold(const std::vector<int32_t>& pages) {
  for (const int32_t page : pages) {
    Page& held = Of(page);
    if (held.holders++ == 0) free_.erase({held.freed, page});
  }
}

int32_t PagePool::Take() {
  MW_CHECK(!free_.empty()) << "all pages are held";
  const int32_t page = free_.begin()->second;
  Page& taken = Of(page);
  if (taken.name != kNoPage) named_.erase(taken.content);
  taken.name = kNoPage;
  taken.content = {};
  Hold({page});
  return page;
}

void PagePool::Release(const std::vector<int32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    MW_CHECK(Of(*page).holders > 0) << "page " << *page << " is free";
    if (--Of(*page).holders == 0) Free(*page);
  }
}

void PagePool::NameFull(std::span<const int32_t> text, int64_t computed, TextPages& pages) {
  while (static_cast<int64_t>(pages.named + 1) * page_tokens_ <= computed) {
    pages.last_name = Name(pages.numbers[pages.named], ContentOf(text, pages));
    ++pages.named;
  }
}

// The tokens of the first page without a name, behind those that have one.
PagePool::Content PagePool::ContentOf(std::span<const int32_t> text, const TextPages& pages) const {
  const auto size = static_cast<size_t>(page_tokens_);
  MW_CHECK((pages.named + 1) * size <= text.size()) << text.size() << " tokens fill no such page";
  const auto tokens = text.subspan(pages.named * size, size);
  return {pages.last_name, {tokens.begin(), tokens.end()}};
}

PageName PagePool::Name(int32_t page, Content content) {
  const auto [it, fresh] = named_.try_emplace(content, Named{page, last_name_ + 1});
  if (!fresh) return it->second.name;
  Page& named = Of(page);
  MW_CHECK(named.holders > 0 && named.name == kNoPage) << "page " << page << " has a name";
  named.content = std::move(content);
  named.name = ++last_name_;
  return named.name;
}

PagePool::Page& PagePool::Of(int32_t page) {
  MW_CHECK(page >= 0 && static_cast<size_t>(page) < pages_.size()) << "page " << page;
  return pages_[static_cast<size_t>(page)];
}

void PagePool::Free(int32_t page) {
  Page& freed = Of(page);
  freed.freed = clock_++;
  free_.emplace(freed.freed, page);
}

}  // namespace meshwright::generation
