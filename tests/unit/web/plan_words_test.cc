// The page and `meshwright why` call the parts of a step the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "report/why.h"
#include "web/assets.h"

namespace meshwright::web {
namespace {

using ::testing::HasSubstr;

TEST(PlanWords, PartsOfAStepAreCalledAsTheCommandCallsThem) {
  std::string script;
  for (const Asset& asset : Assets()) {
    if (asset.name == "job.js") script = std::string(asset.bytes);
  }
  const size_t begin = script.find("const kParts = [");
  ASSERT_NE(begin, std::string::npos);
  const std::string list = script.substr(begin, script.find("]];", begin) - begin);
  report::WhyFigures figures;
  figures.measured.ranks[0] = figures.measured.ranks[1] = {};
  for (double& seconds : figures.measured.mean.seconds) seconds = 1;
  const std::string said = report::FormatWhy(figures);
  const std::regex titles("\\[\\[?'([^']+)', ('[^\\]]*)");
  size_t parts = 0;
  for (std::sregex_iterator at(list.begin(), list.end(), titles), end; at != end; ++at) {
    EXPECT_THAT(said, HasSubstr((*at)[1].str() + "  "));
    const std::string fields = (*at)[2].str();
    parts += static_cast<size_t>(std::count(fields.begin(), fields.end(), '\'')) / 2;
  }
  EXPECT_EQ(parts, report::kStepPartCount) << "each is in one of them";
  for (size_t p = 0; p < report::kStepPartCount; ++p) {
    const auto name = report::StepPartName(static_cast<report::StepPart>(p));
    EXPECT_THAT(list, HasSubstr("'" + std::string(name) + "'"));
  }
}

}  // namespace
}  // namespace meshwright::web
