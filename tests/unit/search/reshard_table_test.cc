#include "search/reshard_table.h"

#include <gtest/gtest.h>

#include "mesh/reshard.h"
#include "search/choice_problem.h"

namespace meshwright::search {
namespace {

using mesh::Sharding;

const mesh::Mesh kMesh{{{"a", 2}, {"b", 4}}, {}};
const ir::TensorType kType{ir::DType::kF32, {16, 8}};

std::vector<Sharding> SomeShardings() {
  using enum ir::PartialKind;
  return {{{{}, {}}, {}},
          {{{"a"}, {}}, {}},
          {{{}, {"b"}}, {}},
          {{{"a"}, {"b"}}, {}},
          {{{"b"}, {"a"}}, {}},
          {{{"a", "b"}, {}}, {}},
          {{{"b", "a"}, {}}, {}},
          {{{}, {}}, {{"a", kSum}}},
          {{{}, {"b"}}, {{"a", kSum}}},
          {{{"a"}, {}}, {{"b", kSum}}},
          {{{}, {}}, {{"a", kSum}, {"b", kSum}}}};
}

TEST(ReshardTable, CostsWhatTheSearchOfPathsSays) {
  const mesh::LinkCost link{1e-5, 1e-8};
  ReshardTable table(kType, kMesh, {{"a", link}, {"b", link}});
  for (const Sharding& from : SomeShardings()) {
    for (const Sharding& to : SomeShardings()) {
      const auto path = mesh::FindReshardPath(kType, from, to, kMesh, link);
      const double seconds = table.Seconds(table.Form(from), table.Form(to));
      const std::string name =
          mesh::FormatSharding(kType, from) + " -> " + mesh::FormatSharding(kType, to);
      if (path.has_value()) {
        EXPECT_NEAR(seconds, path->cost, 1e-12) << name;
      } else {
        EXPECT_EQ(seconds, kForbidden) << name;
      }
    }
  }
}

TEST(ReshardTable, EveryAxisHasItsLink) {
  ReshardTable table(kType, kMesh, {{"a", {1, 0}}, {"b", {100, 0}}});
  const int whole = table.Form({{{}, {}}, {}});
  EXPECT_EQ(table.Seconds(table.Form({{{"a"}, {}}, {}}), whole), 1);
  EXPECT_EQ(table.Seconds(table.Form({{{"b"}, {}}, {}}), whole), 100);
  // Together they take the slow one's call, and no second one.
  EXPECT_EQ(table.Seconds(table.Form({{{"a", "b"}, {}}, {}}), whole), 100);
  EXPECT_EQ(table.Seconds(whole, table.Form({{{"a", "b"}, {}}, {}})), 0);
}

TEST(ReshardTable, BlocksThatAreNoRunsArePacked) {
  // So dear that one call is best.
  const mesh::LinkCost call{1e6, 0};
  ReshardTable table(kType, kMesh, {{"a", call}, {"b", call}}, {0, 1});
  const int whole = table.Form({{{}, {}}, {}});
  const int columns = table.Form({{{}, {"a"}}, {}});
  const int sum = table.Form({{{}, {}}, {{"a", ir::PartialKind::kSum}}});
  const auto bytes = static_cast<double>(kType.bytes());
  EXPECT_EQ(table.Seconds(table.Form({{{"a"}, {}}, {}}), whole), 1e6);
  EXPECT_EQ(table.Seconds(columns, whole), 1e6 + 2 * bytes);
  EXPECT_EQ(table.Seconds(columns, table.Form({{{"a"}, {}}, {}})), 1e6 + bytes) << "of the half";
  EXPECT_EQ(table.Seconds(sum, columns), 1e6) << "reduced whole, then cut";
}

}  // namespace
}  // namespace meshwright::search
