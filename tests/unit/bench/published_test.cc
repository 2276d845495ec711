#include "bench/published.h"

#include <gtest/gtest.h>

#include <string>

namespace meshwright::bench {
namespace {

const PublishedLayout& Named(std::string_view name) {
  for (const PublishedLayout& layout : PublishedLayouts()) {
    if (layout.name == name) return layout;
  }
  ADD_FAILURE() << "no case " << name;
  return PublishedLayouts().front();
}

// All cases: bench/planner published.
class Published : public ::testing::TestWithParam<const char*> {};

TEST_P(Published, FitsAsItDidThereAndOverflowsAsItDidThere) {
  const PublishedLayout& layout = Named(GetParam());
  const auto result = PlanPublished(layout);
  ASSERT_TRUE(result.has_value()) << result.error();
  EXPECT_TRUE(IsMet(layout, *result)) << FormatPublished(layout, *result) << "\n"
                                      << result->refusal;
}

std::string NameOf(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Published,
                         ::testing::Values("gpt-1t-t8-p64", "llama3-405b-t8-p16-d128",
                                           "llama-13b-t1-p1", "llama-30b-t1-p4", "llama-65b-t2-p4",
                                           "llama-13b-t1-p1-mb2", "llama-30b-t1-p2",
                                           "llama-65b-t2-p2"),
                         NameOf);

TEST(ClosedForm, IsThatOfThePublications) {
  constexpr double kGb = 1e9;
  // Korthikanti et al.: 2.08e9 parameters of a stage of two layers with the table, 18 bytes each,
  // and 34 s b h / t for 128 layers in flight.
  const PublishedBytes trillion = ClosedForm(Named("gpt-1t-t8-p64"));
  EXPECT_NEAR(trillion.state / kGb, 18 * (2 * 12 * 25600. * 25600 + 51200. * 25600) / 8e9, 0.01);
  EXPECT_NEAR(trillion.activations / kGb, 34 * 2048 * 25600. * 128 / 8e9, 0.01);
  // Llama 3 405B: a stage's part of the layers and the table, gradients and optimizer over 128.
  const PublishedBytes llama = ClosedForm(Named("llama3-405b-t8-p16-d128"));
  EXPECT_NEAR(llama.state / kGb, (401.65 / 128 + 2.10 / 8) * (2 + 16. / 128), 0.01);
}

}  // namespace
}  // namespace meshwright::bench
