#include "worker/links.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

std::unique_ptr<collective::Fabric> LocalFabric(int ranks) {
  auto fabric = collective::MakeCpuFabric(LocalOptions(ranks, {}).fabric, nullptr);
  MW_CHECK(fabric.has_value()) << fabric.error();
  return std::move(*fabric);
}

TEST(Links, GroupsOfManyRanksHaveNamesThatFit) {
  constexpr int kRanks = 512;
  const auto fabric = LocalFabric(kRanks);
  Links links(*fabric);
  const MeshSpec by_stage{{{"data", kRanks / 2}, {"tensor", 2}}, {}, 0};
  std::vector<collective::Group*> groups;
  for (const int rank : {0, 1, 2}) {
    const ir::Program program = ProgramMaker("step", rank, by_stage).Finish();
    const auto group = links.GroupOf(program, {"data"});
    ASSERT_TRUE(group.has_value()) << group.error();
    EXPECT_EQ(group->size, kRanks / 2);
    groups.push_back(group->group);
    const auto all = links.GroupOf(program, {"data", "tensor"});
    ASSERT_TRUE(all.has_value()) << all.error();
    EXPECT_EQ(all->size, kRanks);
  }
  // Ranks 0 and 2 are in one group, rank 1 in the other: names that differ only in later ranks.
  EXPECT_NE(groups[0], groups[1]);
  EXPECT_NE(groups[0], groups[2]) << "each rank has its own end";
}

}  // namespace
}  // namespace meshwright::worker
