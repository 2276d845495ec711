// Rows of the op table: attention to pages. Keys have one token in each row of the batch: several
// of them might be given one place.
#include <utility>

#include "tests/conformance/ops/ops_cases.h"

namespace meshwright::ops {
namespace {

struct PagedSizes {
  std::string name;
  int64_t b, h, g, e, pages, page_tokens, text_pages;
};

Arg PlacesBelow(ir::Dims dims, int64_t below) { return {std::move(dims), ArgKind::kIds, below}; }

// Of so many queries of each row of the batch.
OpCase CaseOf(const PagedSizes& r, const std::string& what, int64_t queries) {
  const ir::Dims kv = {r.b, 1, r.g, r.e};
  OpCase made;
  made.name = "paged_attention_" + r.name + what;
  made.op = ir::Op::kPagedAttention;
  made.args = {{{r.b, queries, r.h, r.e}},
               {kv},
               {kv},
               {{r.b, r.pages, 2, r.g, r.page_tokens, r.e}},
               PlacesBelow({r.b, 1, r.text_pages}, r.pages),
               PlacesBelow({r.b, queries}, 1),
               PlacesBelow({r.b, queries}, r.text_pages * r.page_tokens)};
  made.has_gradient = false;
  made.f32_tolerance = 1e-5;
  return made;
}

}  // namespace

std::vector<OpCase> PagedCases() {
  std::vector<OpCase> cases;
  const std::vector<PagedSizes> rows = {{"one", 1, 1, 1, 4, 3, 2, 2},
                                        {"grouped", 3, 6, 2, 5, 7, 3, 4},
                                        {"whole_vectors", 2, 4, 4, 64, 9, 16, 5},
                                        {"multi_query", 2, 3, 1, 20, 5, 5, 3}};
  for (const PagedSizes& r : rows) {
    for (const int64_t window : {0, 4}) {
      OpCase text = CaseOf(r, window > 0 ? "_window" : "", 1);
      if (window > 0) text.attrs.Set("window", window);
      cases.push_back(std::move(text));
    }
    OpCase capped = CaseOf(r, "_capped", 1);
    capped.attrs.Set("score_cap", 0.5);
    cases.push_back(std::move(capped));
    OpCase biased = CaseOf(r, "_bias", 1);
    biased.args.push_back({{r.h, 3}});
    cases.push_back(std::move(biased));
    // Keys with places of their own.
    OpCase source = CaseOf(r, "_source_bias", 3);
    source.args.push_back(PlacesBelow({r.b, 1}, 1));
    source.args.push_back(PlacesBelow({r.b, 1}, r.text_pages * r.page_tokens));
    source.args.push_back({{r.h, 5}});
    cases.push_back(std::move(source));
  }
  return cases;
}

}  // namespace meshwright::ops
