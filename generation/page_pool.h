// The pages of an engine: who holds them, and what the ones that nobody holds still know.
//
// Idea: a page that is full is *named* by its tokens and the name of the page before it, so that a
// name says all of the text up to there. A text that begins like another one finds its pages by
// name and holds them, too; what they hold does not depend on who computed it (docs/generation.md).
// A page that nobody holds any more is free and keeps its name until it is taken for something
// else, those that were freed first first. Names are compared token by token: there is no hash to
// collide. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace meshwright::generation {

using PageName = int64_t;
inline constexpr PageName kNoPage = 0;  // before the first page of a text

class PagePool {
 public:
  PagePool(int64_t pages, int64_t page_tokens);

  struct Beginning {
    std::vector<int32_t> pages;
    PageName last = kNoPage;
    int64_t free = 0;  // of the pages, those that nobody holds
  };
  // The pages that hold the beginning of a text, at most so many.
  Beginning Find(std::span<const int32_t> text, int64_t most) const;
  void Hold(const std::vector<int32_t>& pages);
  // A page that nobody held, without a name. REQUIRES one that is free.
  int32_t Take();
  // The last of them is the first to be taken for something else.
  void Release(const std::vector<int32_t>& pages);
  // The page is full of these tokens, behind the page `before`. Where another page has that name
  // already, this one has none. Returns the name.
  PageName Name(int32_t page, PageName before, std::span<const int32_t> tokens);

  int64_t free() const { return static_cast<int64_t>(free_.size()); }

 private:
  using Content = std::pair<PageName, std::vector<int32_t>>;
  struct Page {
    int64_t holders = 0;
    int64_t freed = 0;     // when; of a free page
    Content content = {};  // of a page with a name
    PageName name = kNoPage;
  };
  struct Named {
    int32_t page = 0;
    PageName name = kNoPage;
  };

  Page& Of(int32_t page);
  void Free(int32_t page);

  const int64_t page_tokens_;
  std::vector<Page> pages_;
  std::set<std::pair<int64_t, int32_t>> free_;  // by when they were freed
  std::map<Content, Named> named_;
  PageName last_name_ = kNoPage;
  int64_t clock_ = 0;
};

}  // namespace meshwright::generation
