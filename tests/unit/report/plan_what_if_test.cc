#include "report/plan_what_if.h"

#include <gtest/gtest.h>

namespace meshwright::report {
namespace {

TEST(FormatWhatIf, ShowsBeforeAfterAndChange) {
  const PlanFigures before = {0.5, 1 << 30, 0.4, "data=2"};
  const PlanFigures after = {0.25, 1 << 29, 0.5, "data=4"};
  EXPECT_EQ(FormatWhatIf("training.seq_len=64", before, after),
            "WHAT IF  BEFORE    AFTER       CHANGE\n"
            "step     500 ms    250 ms      -50.0 %\n"
            "memory   1.00 GiB  512.00 MiB  -50.0 %\n"
            "MFU      40.0 %    50.0 %      +25.0 %\n"
            "after      training.seq_len=64\n"
            "layout     data=2\n"
            "        -> data=4\n");
  EXPECT_EQ(FormatWhatIf("x", before, before).find("->"), std::string::npos);
  const std::string noted = FormatWhatIf("x", before, after, {"none is hidden", "padded"});
  EXPECT_NE(noted.find("        -> data=4\nnote after: none is hidden\nnote after: padded\n"),
            std::string::npos)
      << noted;
}

}  // namespace
}  // namespace meshwright::report
