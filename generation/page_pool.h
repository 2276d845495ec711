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
// The same of a text that has a source, by its own number: its pages say more than its tokens do,
// so that only it finds them again.
inline PageName OwnBeginning(int64_t number) { return -1 - number; }

// Of one text, from its beginning on.
struct TextPages {
  std::vector<int32_t> numbers;
  size_t named = 0;  // of them, which are full
  PageName last_name = kNoPage;
};

class PagePool {
 public:
  PagePool(int64_t pages, int64_t page_tokens);

  struct Beginning {
    TextPages pages;
    int64_t free = 0;  // of the pages, those that nobody holds
  };
  // The pages that hold the beginning of a text, at most so many, behind `before`. REQUIRES that it
  // fills them.
  Beginning Find(std::span<const int32_t> text, int64_t most, PageName before = kNoPage) const;
  void Hold(const std::vector<int32_t>& pages);
  // A page that nobody held, without a name. REQUIRES one that is free.
  int32_t Take();
  // The last of them is the first to be taken for something else.
  void Release(const std::vector<int32_t>& pages);
  // Names the pages of a text that its first `computed` tokens fill. Where another page has such a
  // name already, that one keeps it.
  void NameFull(std::span<const int32_t> text, int64_t computed, TextPages& pages);

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

  Content ContentOf(std::span<const int32_t> text, const TextPages& pages) const;
  PageName Name(int32_t page, Content content);
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
